"""Attention in plain operators, where the kernels are wrong: in drafters, and in the windows of WebGPU.

GroupQueryAttention turns a lone query by the position of the last key, but a drafter's stands one further; it has no
window of the last W + 1 keys; and with a borrowed cache some releases crash. Attention of ai.onnx has no kernel for
WebGPU, and for CUDA only in recent releases.

Shapes: B batch · S queries · C tokens in a cache · N heads · D head size
"""

from dataclasses import dataclass

import numpy as np

from cabochon.dialects.default import Default
from cabochon.dialects.standard import FAR, Attending, Cache, Sight, Standard, Tokens
from cabochon.graph import Tracer, Value

__all__ = ["WebGpuWrittenOut", "WrittenOut", "attention"]


def attention(g: Tracer, q: Value, keys: Value, values: Value, seen: Value, groups: int) -> Value:
    """softmax(q kᵀ) v where `seen`; scores and softmax in f32. The heads of a group meet their keys in one product.

    q [B, N, S, D], keys and values [B, groups, C, D], seen bool [B, 1, S, C] -> [B, N, S, D]
    """
    _, heads, _, size = q.dims
    turned = g.Transpose(g.Reshape(q, [0, groups, -1, size]), perm=[0, 1, 3, 2])
    scores = g.Transpose(
        keys @ turned, perm=[0, 1, 3, 2]
    )  # the few queries are transposed, not the many keys
    scores = g.Reshape(g.cast(scores, "f32"), [0, heads, -1, 0])  # [B, N, S, C]
    scores = g.Where(seen, scores, np.float32(np.finfo(np.float32).min))
    share = g.Reshape(g.CastLike(g.Softmax(scores, axis=-1), q), [0, groups, -1, 0])
    return g.Reshape(share @ values, [0, heads, -1, size])


@dataclass(frozen=True)
class Seen:
    """Which keys a token may look at, and which of a cache are those of real tokens."""

    mask: Value  # [B, 1, S, C] bool
    real: Value  # [B, C] bool


class WrittenOut(Default):
    """CUDA's drafters."""

    accuracy = None

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._clean: dict[str | None, Value] = {}

    def sight(self, tokens: Tokens, past: Value, how: Attending) -> Sight:
        """As `Standard` says."""
        mask = Standard.sight(self, tokens, past, how)
        return Seen(mask, self.Less(self.keys(past), FAR))

    def borrow(self, q: Value, cache: Cache, sight: Sight) -> Value:
        """softmax(q kᵀ) v over another model's cache.   -> [B, S, N·D]"""
        keys, values = cache
        values = self._cleaned(values, sight.real)
        return self._merge(attention(self, q, keys, values, sight.mask, keys.dims[1]))

    def attend_block(self, q: Value, k: Value, v: Value, seen: Value) -> Value:
        """softmax(q kᵀ) v of some queries of one row.   [1, N, Q, D] -> [1, Q, N·D]"""
        return self._merge(attention(self, q, k, v, seen, k.dims[1]))

    def _cleaned(self, values: Value, real: Value) -> Value:
        """Zeros where no real token stands: a kernel left whatever was in memory there, and 0 times that may be NaN."""
        if values.name not in self._clean:
            zero = self.constant(0.0, like=values)
            self._clean[values.name] = self.Where(self.Unsqueeze(real, [1, 3]), values, zero)
        return self._clean[values.name]


class WebGpuWrittenOut(WrittenOut):
    """WebGPU's drafters.

    Of what a drafter asks for beyond the decoder, TopK (f32 and f16; since pull request 27560 of onnxruntime, March
    2026) and ScatterElements have kernels for WebGPU, both with ids in i64. A release without one of them runs that
    operator on the CPU between two copies. Read in its source, not run.
    """

    def multiply(self, x: Value, weight: Value) -> Value:
        """WebGPU has no kernel for FusedMatMul."""
        return Standard.multiply(self, x, weight)
