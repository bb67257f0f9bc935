"""The Gemma 4 drafter ("assistant"), top to bottom: four narrow layers that read the keys of another model.

A step proposes the token after the newest one, whose keys do not exist yet. It reads the newest token's scaled
embedding and the target's last hidden state side by side, and answers with logits and with a state in the target's
width, which stands in for the hidden state when the next step continues from the token just proposed.

The query stands right behind the real tokens of its row: behind the ones in those columns of the mask that the
full-attention keys cover, wherever zeros stand among them. It stands there in every step of a round, as the keys stay
the same; and so do all queries of one call. This holds after a prefill and after a partial acceptance, whether rejected
entries were cut off or masked out. A mask longer than the keys is cut: transformers passes one column for the newest
token. No key is ahead of the query: full layers see every real one, sliding layers the last window + 1. A sliding cache
that lost its first entries holds those of the mask's last columns.

Shapes: B batch · S queries · H hidden · M hidden of the target · V vocabulary · K centroids taken · A tokens scored
`g` is the graph being written, in the dialect of its target; `w` the checkpoint; `c` the config.
"""

from cabochon.dialects.standard import Attending, Cache, Standard, Tokens
from cabochon.gemma4.config import FULL, Layer
from cabochon.gemma4.decoder import View, block, frequencies
from cabochon.gemma4.drafter_config import Centroids, DrafterConfig
from cabochon.graph import Scope, Value

__all__ = ["drafter"]


def drafter(g: Standard, w: Scope, c: DrafterConfig) -> None:
    """Embedding and hidden state, and the target's keys and values, in; logits and the next hidden state out."""
    m, text = w / "model", c.text
    inputs = g.input("inputs_embeds", w.store.dtype, "batch", "sequence", 2 * c.backbone)
    attention_mask = g.input("attention_mask", "i64", "batch", "kv_sequence")
    shared = {kind: borrowed(g, w, layer) for kind, layer in sorted(text.kinds.items())}
    tokens = g.drafted(attention_mask, g.length(shared[FULL][0], axis=2), g.length(inputs))

    x = g.linear(inputs, w / "pre_projection")
    seen = {kind: view(g, c, layer, tokens, shared[kind], like=x) for kind, layer in text.kinds.items()}
    for i, layer in enumerate(text.layers):
        with g.scope(f"layers.{i}"):
            x, _ = block(g, m / f"layers.{i}", text, layer, x, None, shared[layer.kind], seen[layer.kind])

    hidden = g.rms_norm(x, m["norm.weight"], text.eps)
    table = w / "lm_head" if "lm_head.weight" in w else m / "embed_tokens"
    logits = (
        g.linear(hidden, table)
        if c.centroids is None
        else routed(g, w / "masked_embedding", table, c.centroids, hidden)
    )
    g.output("logits", logits, "batch", "sequence", text.vocab)
    g.output("projected_state", g.linear(hidden, w / "post_projection"), "batch", "sequence", c.backbone)


def borrowed(g: Standard, w: Scope, layer: Layer) -> Cache:
    """The target's keys and values of one kind, normed and turned already; they are read, and nothing else."""
    length = "kv_sequence" if layer.kind == FULL else "sliding_kv_sequence"
    key, value = (
        g.input(
            f"shared_kv.{layer.kind}.{part}", w.store.dtype, "batch", layer.kv_heads, length, layer.head_dim
        )
        for part in ("key", "value")
    )
    return key, value


def view(g: Standard, c: DrafterConfig, layer: Layer, tokens: Tokens, cache: Cache, like: Value) -> View:
    """What a kind of layer sees. A window counts the token itself, which has no key here, and a drafter sees one more
    than its target: window + 1 keys are a window of window + 2."""
    text, held = c.text, g.length(cache[0], axis=2)
    window = None if layer.window is None else layer.window + 2
    return View(
        g.rope(tokens.positions, frequencies(text.rope[layer.kind], layer.head_dim), like),
        g.sight(tokens, held, Attending(text.heads, layer.kv_heads, window)),
    )


def routed(g: Standard, w: Scope, table: Scope, c: Centroids, hidden: Value) -> Value:
    """Scores of the tokens whose centroids score best; every other token lies 1 below the least of them.

    The least is that of the whole tensor, batch and positions, as in transformers: rows of a batch share it.
    [B, S, H] -> [B, S, V]
    """
    _, best = g.TopK(
        g.cast(g.linear(hidden, w / "centroids"), "f32"), [c.top_k], sorted=0, outputs=2
    )  # [B, S, K]
    ids = g.Gather(g.Reshape(w["token_ordering"], [c.count, -1]), best)  # [B, S, K, V/count]
    ids = g.Reshape(ids, [0, 0, -1])  # [B, S, A]
    rows = g.rows_of(table, ids)  # [B, S, A, H]
    scores = g.Squeeze(rows @ g.Unsqueeze(hidden, [3]), [3])
    rest = g.CastLike(g.ReduceMin(g.cast(scores, "f32"), keepdims=0) - 1.0, scores)
    everyone = g.Concat(g.Shape(hidden, start=0, end=2), [table.shape("weight")[0]], axis=0)
    return g.ScatterElements(g.Expand(rest, everyone), ids, scores, axis=2)
