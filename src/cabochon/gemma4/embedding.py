"""The embedding of a full package: tokens, with the features of images and sound in the place of their placeholders.

Placeholders are padding to both tables, but their ids are looked up as they come, and rows of padding taken instead:
where the ids of a look-up are computed, ONNX Runtime's CPU provider takes it into a stretch of operators that it widens
to f32, with the whole table. E2B's tables in f16 then took 11 GB of memory instead of their file's pages.

Shapes: B batch · S tokens · H hidden · L layers · P per-layer input · F features
"""

import functools

import numpy as np

from cabochon.dialects.standard import Standard
from cabochon.gemma4.decoder import TOKEN_ROWS, layer_rows, per_layer_inputs
from cabochon.gemma4.full_config import FullConfig
from cabochon.graph import Scope, Value

__all__ = ["embedding"]


def embedding(g: Standard, w: Scope, c: FullConfig) -> None:
    """Token ids and features in; what the decoder takes out. Who has no images or sound gives no rows of features."""
    m, text = w / "model", c.text
    ids = g.input("input_ids", "i64", "batch", "sequence")
    places = {name: g.among(ids, placeholders) for name, placeholders in c.placeholders.items()}
    padded = functools.reduce(g.Or, places.values())
    padding = g.constant(np.array([[text.pad_token_id]]))

    def rows(of: Value) -> Value:
        return g.embed(m / "embed_tokens", of, text.hidden**0.5)

    x = g.Where(g.Unsqueeze(padded, [2]), rows(padding), g.called(TOKEN_ROWS, rows(ids)))
    for name, here in places.items():
        features = g.input(f"{name}_features", w.store.dtype, f"{name}_tokens", text.hidden)
        x = spread(g, x, here, features)
    extras = layer_rows(g, m, text, ids)
    if extras is not None:
        extras = g.Where(g.Unsqueeze(padded, [2, 3]), layer_rows(g, m, text, padding), extras)
    extras = per_layer_inputs(g, m, text, extras, x)

    g.output("inputs_embeds", x, "batch", "sequence", text.hidden)
    if extras is not None:
        width = len(text.layers) * text.per_layer_input
        g.output("per_layer_inputs", g.Reshape(extras, [0, 0, width]), "batch", "sequence", width)


def spread(g: Standard, x: Value, here: Value, features: Value) -> Value:
    """x with the n-th row of features where `here` is true for the n-th time, row by row through the batch.

    Without any features x stays as it is: a placeholder that the decoder itself proposed is padding, as in
    transformers. With some, a place without one makes Gather fail, and one without a place is not looked at: who calls
    counts both.

    x [B, S, H], here bool [B, S], features [F, H] -> [B, S, H]
    """
    here = g.And(here, g.Greater(g.length(features, axis=0), 0))
    number = g.CumSum(g.cast(g.Reshape(here, [-1]), "i64"), 0)  # 1 for the first
    number = g.Where(here, g.Reshape(number, g.Shape(here)), 0)
    nothing = g.Expand(g.constant(0.0, like=x), [1, x.dims[2]])
    return g.Where(g.Unsqueeze(here, [2]), g.Gather(g.Concat(nothing, features, axis=0), number), x)
