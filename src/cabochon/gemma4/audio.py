"""The Gemma 4 audio encoder, top to bottom: a conformer that hears four frames as one.

Attention is local: blocks of queries, each with the keys that its queries' windows span, so that memory grows with the
length of a clip and not with its square. Scores and softmax are taken in f32, whatever the precision.

The real frames of a clip come first, padding behind them; then a clip gives the same in any company and however far it
is padded, and what stands in padding may be anything, NaN included. A mask with zeros before or between real frames
gives what transformers gives: masked frames are silence to the convolutions and not attended to, so that such a clip is
not the clip without them. There may be no clip at all, or none with a real frame, but T is at least 1: onnxruntime
convolves no empty axis.

Shapes: B clips · T frames · S frames of four · H hidden · N heads · D head size · F mels of four
        U blocks · C queries of a block · K keys that a block spans
`g` is the graph being written, in the dialect of its target; `w` the checkpoint; `c` the config.
"""

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from cabochon.dialects.standard import Standard
from cabochon.gemma4.audio_config import AudioConfig
from cabochon.gemma4.clipped import linear
from cabochon.gemma4.decoder import softcap
from cabochon.graph import Scope, Value

__all__ = ["audio_encoder", "tower"]

# Norms of the feed-forwards and around attention are built without an epsilon in transformers, which has this default;
# rms_norm_eps concerns the others.
_EPS = 1e-6
_END = np.iinfo(np.int64).max


def audio_encoder(g: Standard, w: Scope, c: AudioConfig, width: int) -> None:
    """Log-mel frames of some clips in; the real frames of all clips out, in order, as rows for the text model."""
    m = w / "model"
    features = g.input("input_features", "f32", "clips", "time", c.features)
    mask = g.input("input_features_mask", "bool", "clips", "time")
    x, real = tower(g, m / "audio_tower", c, features, mask)
    x = g.linear(g.rms_norm(x, None, c.eps), m / "embed_audio" / "embedding_projection")
    kept = g.Squeeze(g.NonZero(g.Reshape(real, [-1])), [0])
    rows = g.Gather(g.Reshape(x, [-1, width]), kept)  # not Compress, which knows no bf16
    g.output("audio_features", rows, "audio_tokens", width)


def tower(g: Standard, w: Scope, c: AudioConfig, features: Value, mask: Value) -> tuple[Value, Value]:
    """[B, T, mels] f32, [B, T] bool -> [B, S, output], and which frames are real, [B, S] bool"""
    x, real = subsampled(g, w / "subsample_conv_projection", c, features, mask)
    blocks = cut(g, c, x, real)
    for i in range(c.layers):
        with g.scope(f"layers.{i}"):
            x = layer(g, w / f"layers.{i}", c, x, blocks)
    return g.linear(x, w / "output_proj") + w["output_proj.bias"], real


def subsampled(g: Standard, w: Scope, c: AudioConfig, x: Value, real: Value) -> tuple[Value, Value]:
    """Two convolutions, each of which halves time and mels; then channels of all mels side by side.   -> [B, S, H]"""
    x = g.Unsqueeze(g.cast(x, w.store.dtype), [3])  # [B, T, mels, channels]
    for half in (w / "layer0", w / "layer1"):
        x = g.Where(g.Unsqueeze(real, [2, 3]), x, g.constant(0.0, like=x))
        x = g.Conv(
            g.Transpose(x, perm=[0, 3, 1, 2]), half["conv.weight"],
            kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1],
        )  # fmt: skip
        x = g.cast(g.Transpose(x, perm=[0, 2, 3, 1]), "f32")  # CUDA has no kernel of this norm for bf16
        x = g.LayerNormalization(x, g.cast(half["norm.weight"], "f32"), axis=-1, epsilon=c.eps)
        x, real = g.Relu(g.cast(x, w.store.dtype)), g.Slice(real, [0], [_END], [1], [2])
    x = g.Reshape(x, [0, 0, c.subsampled_mels * c.channels[1]])
    return g.linear(x, w / "input_proj_linear"), real


def layer(g: Standard, w: Scope, c: AudioConfig, x: Value, blocks: "Blocks") -> Value:
    """Half a feed-forward, attention, convolution, half a feed-forward; normed.   [B, S, H] -> [B, S, H]"""
    x = feed_forward(g, w / "feed_forward1", c, x)
    h = attention(g, w / "self_attn", c, norm(g, w / "norm_pre_attn", c, x), blocks)
    x = x + norm(g, w / "norm_post_attn", c, h)
    x = convolution(g, w / "lconv1d", c, x)
    x = feed_forward(g, w / "feed_forward2", c, x)
    return norm(g, w / "norm_out", c, x)


def feed_forward(g: Standard, w: Scope, c: AudioConfig, x: Value) -> Value:
    """x + weight · norm(down(silu(up(norm(x)))))"""
    h = linear(g, w / "ffw_layer_1", c.clipped, norm(g, w / "pre_layer_norm", c, x))
    h = linear(g, w / "ffw_layer_2", c.clipped, silu(g, h))
    return x + norm(g, w / "post_layer_norm", c, h) * c.residual_weight


def convolution(g: Standard, w: Scope, c: AudioConfig, x: Value) -> Value:
    """x + a convolution over the last frames, channel by channel, between two linear maps, the first of them gated."""
    h = linear(g, w / "linear_start", c.clipped, g.rms_norm(x, w["pre_layer_norm.weight"], c.eps))
    h, gate = g.Split(h, axis=-1, num_outputs=2, outputs=2)
    h = g.Conv(
        g.Transpose(h * g.Sigmoid(gate), perm=[0, 2, 1]), w["depthwise_conv1d.weight"],
        group=c.hidden, kernel_shape=[c.conv_kernel], pads=[c.conv_kernel - 1, 0],
    )  # fmt: skip
    h = norm(g, w / "conv_norm", c, g.Transpose(h, perm=[0, 2, 1]), c.eps)
    return x + linear(g, w / "linear_end", c.clipped, silu(g, h))


@dataclass(frozen=True)
class Blocks:
    """How frames lie in blocks. Place S, behind the last frame, is silence: what a block spans beyond the clip."""

    queries: Value  # [U, C] i64, places
    keys: Value  # [U, K] i64, places
    sight: Value  # [B, 1, U, C, K] bool
    silence: Value  # [B, 1, N, D] f32
    distances: Value  # [K + 1, H]
    frames: Value  # [1] i64: S
    padded: Value  # [1] i64: U · C


def cut(g: Standard, c: AudioConfig, x: Value, real: Value) -> Blocks:
    """The blocks of x: which frame is a query of which block, which are its keys, and which keys a query sees."""
    frames = g.Shape(x, start=1, end=2)
    starts = g.Range(np.int64(0), g.Squeeze(frames, [0]), np.int64(c.chunk))  # [U]
    first = g.Unsqueeze(starts, [1])
    keys = first + np.arange(-c.past, c.context - c.past)
    keys = g.Where(g.Less(keys, 0), frames, g.Min(keys, frames))
    clips = g.Shape(x, start=0, end=1)
    nothing = g.Expand(np.array(False), g.Concat(clips, [1], axis=0))
    heard = g.Gather(g.Concat(real, nothing, axis=1), keys, axis=1)  # [B, U, K]
    return Blocks(
        queries=g.Min(first + np.arange(c.chunk), frames),
        keys=keys,
        sight=g.And(g.Unsqueeze(heard, [1, 3]), g.constant(near(c))),
        silence=g.Expand(np.float32(0), g.Concat(clips, [1, c.heads, c.head_dim], axis=0)),
        distances=g.constant(distances(c), like=x),
        frames=frames,
        padded=g.Shape(starts) * c.chunk,
    )


def near(c: AudioConfig) -> np.ndarray:
    """Whether key j of a block is within the window of query i.   [C, K] bool"""
    ahead = np.arange(c.context) - c.past - np.arange(c.chunk)[:, None]
    return ((ahead <= 0) & (ahead > -c.past)) | ((ahead > 0) & (ahead < c.context_right))


def distances(c: AudioConfig) -> np.ndarray:
    """Sines, then cosines, of the distances from half the context down to 0; periods 2π to 20000π.   [K + 1, H]

    The rows behind that, up to one more than there are keys, are zeros: farther distances have no bias.
    """
    half = c.hidden // 2
    rates = np.exp(np.arange(half, dtype=np.float32) * np.float32(-math.log(1e4) / max(half - 1, 1)))
    angles = np.arange(c.context // 2, -1, -1, dtype=np.float32)[:, None] * rates
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
    return np.concatenate([table, np.zeros((c.context + 1 - len(table), c.hidden), np.float32)])


def attention(g: Standard, w: Scope, c: AudioConfig, x: Value, blocks: Blocks) -> Value:
    """softmax(cap(q kᵀ + a bias of the distance)) v, where in sight; in f32.   [B, S, H] -> [B, S, H]"""

    def heads(v: Value) -> Value:
        return g.Reshape(g.cast(v, "f32"), [0, 0, c.heads, c.head_dim])

    q, k, v = (heads(linear(g, w / f"{name}_proj", c.clipped, x)) for name in "qkv")
    q = q * (g.Softplus(g.cast(w["per_dim_scale"], "f32")) * (c.head_dim**-0.5 / math.log(2)))
    k = k * (math.log1p(math.e) / math.log(2))
    q, k, v = (
        in_blocks(g, y, blocks.silence, places)
        for y, places in ((q, blocks.queries), (k, blocks.keys), (v, blocks.keys))
    )

    scores = q @ g.Transpose(k, perm=[0, 1, 2, 4, 3]) + biases(g, w, c, q, blocks.distances)
    scores = g.Where(blocks.sight, softcap(g, scores, c.logit_cap), np.float32(c.invalid_logit))
    y = g.Transpose(g.Softmax(scores, axis=-1) @ v, perm=[0, 2, 3, 1, 4])  # [B, U, C, N, D]
    y = g.Reshape(y, g.Concat([0], blocks.padded, [c.hidden], axis=0))
    return linear(g, w / "post", c.clipped, g.cast(g.Slice(y, [0], blocks.frames, [1]), w.store.dtype))


def in_blocks(g: Standard, x: Value, silence: Value, places: Value) -> Value:
    """Heads of frames at the places of each block.   [B, S, N, D], [U, C or K] -> [B, N, U, C or K, D]"""
    return g.Transpose(g.Gather(g.Concat(x, silence, axis=1), places, axis=1), perm=[0, 3, 1, 2, 4])


def biases(g: Standard, w: Scope, c: AudioConfig, q: Value, table: Value) -> Value:
    """q · a projection of the distance between query i and key j, which is column j - i of the product.

    Rows of K + 1 columns are read as rows of K, so that each begins one column later than the one above it
    (https://arxiv.org/abs/1901.02860, appendix B).   -> [B, N, U, C, K]
    """
    k = g.Reshape(g.cast(g.linear(table, w / "relative_k_proj"), "f32"), [-1, c.heads, c.head_dim])
    products = q @ g.Unsqueeze(g.Transpose(k, perm=[1, 2, 0]), [1])  # [B, N, U, C, K + 1]
    row = g.Reshape(products, [0, 0, 0, c.chunk * (c.context + 1)])
    row = g.Slice(row, [0], [c.chunk * c.context], [3])
    return g.Reshape(row, [0, 0, 0, c.chunk, c.context])


def norm(g: Standard, w: Scope, c: AudioConfig, x: Value, eps: float = _EPS) -> Value:
    """The norm of x between ± gradient_clipping.

    In f16 that is beyond the largest number, which takes its place, as in transformers: a product that became infinite
    is then a large number again, and not NaN behind the norm.
    """
    bound = min(c.gradient_clipping, float(ml_dtypes.finfo(w.store.dtype.numpy()).max))
    return g.rms_norm(g.between(x, -bound, bound), w["weight"], eps)


def silu(g: Standard, x: Value) -> Value:
    """x · sigmoid(x)"""
    return x * g.Sigmoid(x)
