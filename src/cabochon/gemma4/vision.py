"""The vision tower of Gemma 4 and the projection behind it, top to bottom.

An image is a set of patches and their places (x, y). Each patch sees every patch of its image; squares of k x k patches
are averaged to one soft token. Patches at (-1, -1) are padding: whatever they hold, they change nothing.

Shapes: B images · P patches · H hidden · N heads · D head size · C squares of an image · F soft tokens of all images
`g` is the graph being written, in the dialect of its target; `w` the checkpoint; `c` the config.
"""

from typing import NamedTuple

import numpy as np

from cabochon.dialects.standard import Standard, Turn
from cabochon.dialects.surroundings import Surroundings
from cabochon.gemma4.clipped import linear
from cabochon.gemma4.geometry import Rope, frequencies
from cabochon.gemma4.vision_config import VisionConfig
from cabochon.graph import Scope, Value

__all__ = ["vision_encoder"]


class View(NamedTuple):
    """How places turn the heads, and what a patch sees."""

    turn: Turn
    around: Surroundings


def vision_encoder(g: Standard, w: Scope, c: VisionConfig, width: int) -> None:
    """Patches of images in; the soft tokens of all images out, one image after the other, `width` numbers each."""
    m = w / "model"
    tower = m / "vision_tower"
    pixels = g.input("pixel_values", "f32", "images", "patches", 3 * c.patch_size**2)
    places = g.input("pixel_position_ids", "i64", "images", "patches", 2)
    real = g.GreaterOrEqual(g.ReduceMax(places, [2], keepdims=0), 0)  # [B, P]
    places = g.Max(places, 0)

    x = embedded(g, tower / "patch_embedder", pixels, places, real)
    view = View(axial(g, c, places, like=x), g.surroundings(real))
    for i in range(c.layers):
        with g.scope(f"layers.{i}"):
            x = block(g, tower / f"encoder.layers.{i}", c, x, view)

    soft = pooled(g, c, masked(g, g.cast(x, "f32"), real), places, real)
    if c.standardize:
        soft = (soft - g.cast(tower["std_bias"], "f32")) * g.cast(tower["std_scale"], "f32")
    soft = g.cast(g.rms_norm(soft, None, c.eps), w.store.dtype)
    features = g.linear(soft, m / "embed_vision" / "embedding_projection")
    g.output("image_features", features, "image_tokens", width)


def embedded(g: Standard, w: Scope, pixels: Value, places: Value, real: Value) -> Value:
    """A projection of the pixels, from -1 to 1, + what the table of each axis says of the place.   -> [B, P, H]"""
    x = g.linear(g.cast((pixels - 0.5) * 2.0, w.store.dtype), w / "input_proj")
    by_axis = g.Unsqueeze(g.Transpose(places, perm=[2, 0, 1]), [3])
    rows = g.GatherND(w["position_embedding_table"], by_axis, batch_dims=1)  # [2, B, P, H]
    return masked(g, x + g.ReduceSum(rows, [0], keepdims=0), real)


def masked(g: Standard, x: Value, real: Value) -> Value:
    """x, with 0 for padding."""
    return g.Where(g.Unsqueeze(real, [2]), x, g.constant(0.0, like=x))


def axial(g: Standard, c: VisionConfig, places: Value, like: Value) -> Turn:
    """x turns the first half of each head, y the second, as if they were heads of half the size."""
    turns = frequencies(Rope(c.theta, 1.0, 1.0), c.head_dim // 2)
    by_x, by_y = (g.rope(g.Gather(places, axis, axis=2), turns, like) for axis in (0, 1))

    def turned(x: Value) -> Value:
        first, second = g.Split(x, num_outputs=2, axis=3, outputs=2)
        return g.Concat(by_x(first), by_y(second), axis=3)

    return turned


def block(g: Standard, w: Scope, c: VisionConfig, x: Value, view: View) -> Value:
    """x + attention, then + feed-forward.   [B, P, H]"""

    def norm(v: Value, name: str) -> Value:
        return g.rms_norm(v, w[f"{name}.weight"], c.eps)

    h = attention(g, w / "self_attn", c, norm(x, "input_layernorm"), view)
    x = x + norm(h, "post_attention_layernorm")

    h = feed_forward(g, w / "mlp", c, norm(x, "pre_feedforward_layernorm"))
    return x + norm(h, "post_feedforward_layernorm")


def attention(g: Standard, w: Scope, c: VisionConfig, x: Value, view: View) -> Value:
    """softmax(q kᵀ) v, unscaled: the norm of the keys carries the scale."""

    def heads(name: str, count: int, weight: Value | None) -> Value:
        x_heads = linear(g, w / name, c.clipped, x)
        return g.heads(x_heads, count, c.head_dim, lambda v: g.rms_norm(v, weight, c.eps))

    q = view.turn(heads("q_proj", c.heads, w["q_norm.weight"]))
    k = view.turn(heads("k_proj", c.kv_heads, w["k_norm.weight"]))
    v = heads("v_proj", c.kv_heads, None)
    return linear(g, w / "o_proj", c.clipped, g.attend_within(q, k, v, view.around))


def feed_forward(g: Standard, w: Scope, c: VisionConfig, x: Value) -> Value:
    """down(gelu(gate x) · up x)"""
    gated = g.gelu(linear(g, w / "gate_proj", c.clipped, x)) * linear(g, w / "up_proj", c.clipped, x)
    return linear(g, w / "down_proj", c.clipped, gated)


def pooled(g: Standard, c: VisionConfig, x: Value, places: Value, real: Value) -> Value:
    """The means of k x k patches times √H, of the squares that hold a patch, row by row.   f32 [B, P, H] -> [F, H]

    k follows from the number of patches and of squares, as in transformers: it is `pooling_kernel_size` whenever that
    squared divides the number of patches, padding included. A patch beyond the last square makes ScatterND fail.
    """
    patches = g.length(places)
    squares = patches / c.pooling_kernel_size**2
    ratio = g.Max(patches, 1) / g.Max(squares, 1)
    k = g.cast(g.Sqrt(g.cast(ratio, "f32")), "i64")  # rounded down

    column, row = (g.Gather(places, axis, axis=2) for axis in (0, 1))  # [B, P]
    columns = (g.ReduceMax(column, [1], keepdims=1) + 1) / k
    square = column / k + columns * (row / k)
    image = g.Unsqueeze(g.Range(np.int64(0), g.length(places, 0), np.int64(1)), [1])
    image = g.Expand(image, g.Shape(square))
    where = g.Concat(g.Unsqueeze(image, [2]), g.Unsqueeze(square, [2]), axis=2)  # [B, P, 2]

    size = g.Concat(g.Shape(places, start=0, end=1), g.Unsqueeze(squares, [0]), axis=0)
    nothing = g.constant(np.zeros((), np.float32))
    held = g.ScatterND(g.Expand(nothing, size), where, g.cast(real, "f32"), reduction="add")  # [B, C]
    sums = g.Expand(nothing, g.Concat(size, [c.hidden], axis=0))
    sums = g.ScatterND(sums, where, x, reduction="add")  # [B, C, H]
    kept = g.Reshape(g.GatherND(sums, g.Transpose(g.NonZero(held), perm=[1, 0])), [0, c.hidden])
    return kept / g.cast(k * k, "f32") * c.hidden**0.5
