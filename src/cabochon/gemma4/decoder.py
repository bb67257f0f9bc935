"""The Gemma 4 text decoder, top to bottom.

Shapes: B batch · S new tokens · K kept tokens · H hidden · L layers · P per-layer input · N heads · D head size
`g` is the graph being written, in the dialect of its target; `w` the checkpoint; `c` the config.
"""

from typing import NamedTuple

import numpy as np

from cabochon.dialects.standard import Attending, Cache, Sight, Standard, Tokens, Turn
from cabochon.gemma4.config import Experts, Layer, TextConfig
from cabochon.gemma4.geometry import frequencies
from cabochon.graph import Scope, Value

__all__ = ["TOKEN_ROWS", "decoder", "fed_decoder", "layer_rows", "per_layer_inputs"]

TOKEN_ROWS = "token_rows"  # the value that a pair cuts its look-up of tokens by: scaled rows of the table


class View(NamedTuple):
    """What a kind of layer sees: how positions turn the heads, which keys are in sight, which positions go on."""

    turn: Turn
    sight: Sight
    kept: Value | None = None  # all


def decoder(g: Standard, w: Scope, c: TextConfig, keep: int = 0) -> None:
    """Token ids and the owners' caches in; logits, the last hidden state and the grown caches out."""
    m = w / "model"
    ids = g.input("input_ids", "i64", "batch", "sequence")
    attention_mask = g.input("attention_mask", "i64", "batch", "total_sequence")
    x = g.called(TOKEN_ROWS, g.embed(m / "embed_tokens", ids, c.hidden**0.5))
    extras = per_layer_inputs(g, m, c, layer_rows(g, m, c, ids), x)
    layers(g, w, c, x, extras, g.tokens(attention_mask, ids), keep)


def fed_decoder(g: Standard, w: Scope, c: TextConfig, vision_ids: tuple[int, ...], keep: int = 0) -> None:
    """The same decoder, fed with what the embedding made of tokens, images and sound.

    `vision_ids`: the placeholders of images and video, where the tokens of an image see each other on sliding layers.
    """
    x = g.input("inputs_embeds", w.store.dtype, "batch", "sequence", c.hidden)
    extras = None
    if c.per_layer_input:
        width = len(c.layers) * c.per_layer_input
        extras = g.input("per_layer_inputs", w.store.dtype, "batch", "sequence", width)
        extras = g.Reshape(extras, [0, 0, len(c.layers), c.per_layer_input])
    ids = g.input("input_ids", "i64", "batch", "sequence") if vision_ids else None
    attention_mask = g.input("attention_mask", "i64", "batch", "total_sequence")
    further = None if ids is None else ahead(g, ids, vision_ids)
    layers(g, w, c, x, extras, g.tokens(attention_mask, x), keep, further)


def layers(
    g: Standard,
    w: Scope,
    c: TextConfig,
    x: Value,
    extras: Value | None,
    tokens: Tokens,
    keep: int,
    ahead: Value | None = None,
) -> None:
    """From embedded tokens to logits.

    x [B, S, H], per-layer inputs [B, S, L, P]; `ahead` i64 [B, S]: how many tokens further one sees on sliding layers.
    """
    m = w / "model"
    caches = {i: past(g, m, i, c.layers[i]) for i in c.owners}
    held = {kind: g.length(caches[layer.cache][0], axis=2) for kind, layer in c.kinds.items()}
    kept = g.kept(tokens, kept_count(g, keep))  # [B, K]

    seen = views(g, c, tokens, held, ahead, like=x)
    for i, layer in enumerate(c.layers):
        if i == c.first_shared:
            seen = views(g, c, tokens[kept], held, g.rows(ahead, kept), like=x)
        view = seen[layer.kind]
        if (
            i == c.first_shared - 1
        ):  # the last to make keys and values: from here on only kept positions matter
            view, extras = view._replace(kept=kept), g.rows(extras, kept)
        with g.scope(f"layers.{i}"):
            x, caches[i] = block(
                g, m / f"layers.{i}", c, layer, x, part(g, extras, i), caches[layer.cache], view
            )

    hidden = g.rms_norm(x, m["norm.weight"], c.eps)
    logits = softcap(
        g, g.unembed(hidden, w / "lm_head" if "lm_head.weight" in w else m / "embed_tokens"), c.softcap
    )

    positions = 1 if keep == 1 else "kept"
    g.output("logits", logits, "batch", positions, c.vocab)
    g.output(f"hidden_states.{len(c.layers) - 1}", hidden, "batch", positions, c.hidden)
    for i in c.owners:
        present(g, i, c.layers[i], caches[i])


def kept_count(g: Standard, keep: int) -> Value:
    """How many of the last positions get logits, 0 for all: an input with a default, but for 1.

    1 is fixed, and then the ports say so: onnxruntime-genai feeds no count, and makes room for the logits of all
    positions unless their port has a number.
    """
    return g.constant(np.array(1)) if keep == 1 else g.default("logits_to_keep", np.int64(keep))


def ahead(g: Standard, ids: Value, vision_ids: tuple[int, ...]) -> Value:
    """How many tokens behind it belong to the same image, 0 for text.   [B, S]

    An image is a run of placeholders: those that begin with the n-th have the number n.
    """
    vision = g.among(ids, vision_ids)
    columns = g.Range(np.int64(0), g.length(ids), np.int64(1))
    inside = g.cast(vision, "i64")
    before = g.Slice(g.Pad(inside, [0, 1, 0, 0]), [0], [-1], [1])
    number = g.CumSum(inside * (1 - before), np.int64(1))  # [B, S]
    ends = g.ScatterElements(number * 0, number, inside * columns, axis=1, reduction="max")
    return inside * (g.GatherElements(ends, number, axis=1) - columns)


def views(
    g: Standard, c: TextConfig, tokens: Tokens, held: dict[str, Value], ahead: Value | None, like: Value
) -> dict[str, View]:
    """What each kind of layer sees for these tokens, with so many entries in its caches."""
    return {
        kind: View(
            g.rope(tokens.positions, frequencies(c.rope[kind], layer.head_dim), like),
            g.sight(tokens, held[kind], attending(c, layer, ahead)),
        )
        for kind, layer in c.kinds.items()
    }


def attending(c: TextConfig, layer: Layer, ahead: Value | None) -> Attending:
    """How a layer attends: further than its token on sliding layers alone."""
    return Attending(c.heads, layer.kv_heads, layer.window, None if layer.window is None else ahead)


def block(
    g: Standard,
    w: Scope,
    c: TextConfig,
    layer: Layer,
    x: Value,
    extra: Value | None,
    cache: Cache,
    view: View,
) -> tuple[Value, Cache]:
    """x + attention, then + feed-forward, then + gated per-layer input; scaled.   [B, S, H] -> [B, S or K, H]"""

    def norm(v: Value, name: str) -> Value:
        return g.rms_norm(v, w[f"{name}.weight"], c.eps)

    h, cache = attention(g, w / "self_attn", c, layer, norm(x, "input_layernorm"), cache, view)
    x = g.rows(x, view.kept) + norm(h, "post_attention_layernorm")

    h = feed_forward(g, w / "mlp", norm(x, "pre_feedforward_layernorm"))
    if c.experts is not None:
        mixed = mixture(g, w, c.experts, c.eps, x, norm(x, "pre_feedforward_layernorm_2"))
        h = norm(h, "post_feedforward_layernorm_1") + norm(mixed, "post_feedforward_layernorm_2")
    x = x + norm(h, "post_feedforward_layernorm")

    if extra is not None:
        h = g.linear(g.gelu(g.linear(x, w / "per_layer_input_gate")) * extra, w / "per_layer_projection")
        x = x + norm(h, "post_per_layer_input_norm")
    return x * w["layer_scalar"], cache


def attention(
    g: Standard, w: Scope, c: TextConfig, layer: Layer, x: Value, cache: Cache, view: View
) -> tuple[Value, Cache]:
    """softmax(q kᵀ) v, unscaled: the norm of the keys carries the scale. A borrower computes only q."""

    def heads(name: str, count: int, weight: Value | None) -> Value:
        x_heads = g.linear(x, w / name)
        return g.heads(x_heads, count, layer.head_dim, lambda v: g.rms_norm(v, weight, c.eps))

    q = view.turn(heads("q_proj", c.heads, w["q_norm.weight"]))
    if layer.shares_kv:
        y = g.borrow(q, cache, view.sight)
    else:
        k = view.turn(heads("k_proj", layer.kv_heads, w["k_norm.weight"]))
        v = heads("k_proj" if layer.k_eq_v else "v_proj", layer.kv_heads, None)
        y, cache = g.attend(q, k, v, cache, view.sight)
    return g.linear(g.rows(y, view.kept), w / "o_proj"), cache


def feed_forward(g: Standard, w: Scope, x: Value) -> Value:
    """down(gelu(gate x) · up x)"""
    return g.linear(g.gelu(g.linear(x, w / "gate_proj")) * g.linear(x, w / "up_proj"), w / "down_proj")


def mixture(g: Standard, w: Scope, c: Experts, eps: float, x: Value, h: Value) -> Value:
    """Σ share · expert(h) over the experts that a router chooses by x.   [B, S, H] -> [B, S, H]

    Of the router's probabilities the largest, made to add up to one, times a scale of each expert.
    """
    r = w / "router"
    scores = g.linear(g.rms_norm(x, None, eps) * r["scale"] * x.dims[-1] ** -0.5, r / "proj")
    best, which = g.TopK(g.Softmax(g.cast(scores, "f32"), axis=-1), [c.chosen], outputs=2)
    shares = best / g.ReduceSum(best, [-1]) * g.cast(g.Gather(r["per_expert_scale"], which), "f32")
    return g.mix(h, which, shares, c.count, lambda g, e, y: expert(g, w / "experts", c, e, y))


def expert(g: Standard, w: Scope, c: Experts, e: Value, x: Value) -> Value:
    """down(gelu(gate x) · up x) of expert number e, whose weights are some rows of those of all.   [T, H] -> [T, H]"""

    def rows(name: str, count: int) -> Value:
        return g.rows_of(w, e * count + np.arange(count), name)

    gate, up = g.Split(g.multiply(x, rows("gate_up_proj", 2 * c.width)), axis=-1, num_outputs=2, outputs=2)
    return g.multiply(g.gelu(gate) * up, rows("down_proj", x.dims[-1]))


def layer_rows(g: Standard, w: Scope, c: TextConfig, ids: Value) -> Value | None:
    """The embedding of tokens for every layer.   [B, S] -> [B, S, L, P]"""
    if not c.per_layer_input:
        return None
    return g.embed_layers(w / "embed_tokens_per_layer", ids, c.per_layer_input**0.5, len(c.layers))


def per_layer_inputs(g: Standard, w: Scope, c: TextConfig, rows: Value | None, x: Value) -> Value | None:
    """(a projection of x + the rows of `layer_rows`) / √2, for every layer.   -> [B, S, L, P]"""
    if rows is None:
        return None
    projected = g.linear(x, w / "per_layer_model_projection") * c.hidden**-0.5
    projected = g.Reshape(projected, [0, 0, len(c.layers), c.per_layer_input])
    projected = g.rms_norm(projected, w["per_layer_projection_norm.weight"], c.eps)
    return (projected + rows) * 2**-0.5


def part(g: Standard, extras: Value | None, i: int) -> Value | None:
    """One layer's share of the per-layer inputs.   [B, S, L, P] -> [B, S, P]"""
    return None if extras is None else g.Gather(extras, i, axis=2)


def softcap(g: Standard, x: Value, cap: float | None) -> Value:
    """cap · tanh(x / cap): values beyond ±cap flatten out."""
    return x if cap is None else g.Tanh(x / cap) * cap


_PREFIX = {"sliding_attention": "sliding_", "full_attention": ""}


def past(g: Standard, w: Scope, i: int, layer: Layer) -> Cache:
    """The cache of an owner as it comes in. Sliding caches have a length of their own: they may be evicted."""
    length = f"{_PREFIX[layer.kind]}past_sequence"
    key, value = (
        g.input(f"past_key_values.{i}.{part}", w.store.dtype, "batch", layer.kv_heads, length, layer.head_dim)
        for part in ("key", "value")
    )
    return key, value


def present(g: Standard, i: int, layer: Layer, cache: Cache) -> None:
    """The cache of an owner as it goes out, the new tokens in it."""
    length = f"{_PREFIX[layer.kind]}present_sequence"
    for part, value in zip(("key", "value"), cache, strict=True):
        g.output(f"present.{i}.{part}", value, "batch", layer.kv_heads, length, layer.head_dim)
