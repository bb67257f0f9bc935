"""The unified model's images and sound, top to bottom: projections where others have towers.

A patch of pixels or a frame of samples becomes a row for the text model, whatever stands beside it; so real ones are
taken out first, and padding, whatever it holds, is never computed. Norms are taken in f32.

Shapes: B images or clips · P patches · T frames · F real ones of all · H hidden · W hidden of the text model
`g` is the graph being written, in the dialect of its target; `w` the checkpoint; `c` the config.
"""

import numpy as np

from cabochon.dialects.standard import Standard
from cabochon.gemma4.embedder_config import AudioEmbedder, VisionEmbedder
from cabochon.graph import Scope, Value

__all__ = ["audio_embedder", "vision_embedder"]

_EPS = 1e-5  # of layer norms: torch's default, which no config says


def vision_embedder(g: Standard, w: Scope, c: VisionEmbedder, width: int) -> None:
    """Patches of images in; the soft tokens of all images out, one image after the other, `width` numbers each."""
    m = w / "model"
    pixels = g.input("pixel_values", "f32", "images", "patches", 3 * c.patch_size**2)
    places = g.input("pixel_position_ids", "i64", "images", "patches", 2)
    real = g.GreaterOrEqual(g.ReduceMin(places, [2], keepdims=0), 0)  # [B, P]

    e = m / "vision_embedder"
    x = layer_norm(g, e / "patch_ln1", rows(g, pixels, real))
    x = g.linear(x, e / "patch_dense") + e["patch_dense.bias"]
    x = layer_norm(g, e / "patch_ln2", x) + placed(g, e, rows(g, places, real))
    x = layer_norm(g, e / "pos_norm", x)
    g.output("image_features", projected(g, m / "embed_vision", x, c.eps), "image_tokens", width)


def audio_embedder(g: Standard, w: Scope, c: AudioEmbedder, width: int) -> None:
    """Frames of the samples of some clips in; the real ones of all clips out, in order, as rows for the text model."""
    frames = g.input("input_features", "f32", "clips", "time", c.features)
    mask = g.input("input_features_mask", "bool", "clips", "time")
    x = projected(g, w / "model" / "embed_audio", rows(g, frames, mask), c.eps)
    g.output("audio_features", x, "audio_tokens", width)


def rows(g: Standard, x: Value, real: Value) -> Value:
    """What is real of all images or clips, one behind the other.   [B, P, n], bool [B, P] -> [F, n]"""
    kept = g.Squeeze(g.NonZero(g.Reshape(real, [-1])), [0])
    return g.Gather(g.Reshape(x, [-1, x.dims[2]]), kept)  # not Compress, which knows no bf16


def placed(g: Standard, w: Scope, places: Value) -> Value:
    """What the table says of x, and of y, added up.   i64 [F, 2] -> [F, H]"""
    by_axis = g.Unsqueeze(places, [2])
    axes = by_axis * 0 + np.array([[[0], [1]]])
    return g.ReduceSum(g.GatherND(w["pos_embedding"], g.Concat(by_axis, axes, axis=2)), [1], keepdims=0)


def layer_norm(g: Standard, w: Scope, x: Value) -> Value:
    """(x - mean) / √(variance + ε) · weight + bias, in the type of activations."""
    weight, bias = (g.cast(w[name], "f32") for name in ("weight", "bias"))
    return g.cast(g.LayerNormalization(g.cast(x, "f32"), weight, bias, axis=-1, epsilon=_EPS), w.store.dtype)


def projected(g: Standard, w: Scope, x: Value, eps: float) -> Value:
    """A projection of the norm.   [F, n] -> [F, W]"""
    x = g.cast(g.rms_norm(g.cast(x, "f32"), None, eps), w.store.dtype)
    return g.linear(x, w / "embedding_projection")
