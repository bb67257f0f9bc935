"""ONNX Runtime: the portable form, and what was measured to pay there.

Shapes: B batch · S new tokens · C tokens in a cache · N heads · G heads that share keys · D head size
"""

from dataclasses import dataclass

import numpy as np

from cabochon.dialects.standard import Attending, Cache, Sight, Standard, Tokens
from cabochon.graph import DTYPES, Blocks, Scope, Value

__all__ = ["Default"]


@dataclass(frozen=True)
class Fold:
    """What a token may see, and how its heads lie: the G heads of a group as queries of one head, if it is alone."""

    mask: Value  # [B, 1, S, C], or [B, 1, G, C] for a single token
    heads: Value  # [1] i64: N, or N / G for a single token


class Default(Standard):
    """Attention stays ai.onnx, because zeros may stand anywhere in the mask."""

    accuracy: int | None = 4  # of the kernels for CPUs: activations are rounded to 8 bits, block by block

    def multiply(self, x: Value, weight: Value) -> Value:
        """x @ weightᵀ as FusedMatMul, which reads the weight as it lies in the file, [out, in].

        A Transpose before a MatMul is folded when a session loads: a second copy of every weight in memory.
        """
        return self.microsoft("FusedMatMul", [x, weight], dict(transB=1), (x, [*x.dims[:-1], weight.dims[0]]))

    def multiply_blocks(self, x: Value, weight: Blocks) -> Value:
        """x @ weightᵀ by a kernel that reads the blocks as they lie."""
        scheme, out = weight.scheme, (x, [*x.dims[:-1], weight.rows])
        sizes = dict(K=weight.columns, N=weight.rows, block_size=scheme.block)
        if scheme.method == "nf4":
            return self.microsoft(
                "MatMulBnb4", [x, weight.codes, weight.scales], sizes | dict(quant_type=1), out
            )
        shape = weight.rows, scheme.blocks(weight.columns), scheme.block * scheme.bits // 8
        codes = weight.seen_as("blocks", DTYPES["u8"], shape)
        how = (
            sizes
            | dict(bits=scheme.bits)
            | ({} if self.accuracy is None else {"accuracy_level": self.accuracy})
        )
        return self.microsoft("MatMulNBits", [x, codes, *weight.parameters], how, out)

    def rows_of(self, w: Scope, ids: Value, name: str = "weight") -> Value:
        """Rows of a table.   [...] -> [..., width]

        Between a loop's number and FusedMatMul, neither of which has a kernel for f16, the CPU provider widens a Gather
        together with its table, in every turn. Reshape has one, and changes nothing else.
        """
        rows = super().rows_of(w, ids, name)
        if self._around is None or w.in_blocks(name) or rows.dtype != DTYPES["f16"]:
            return rows
        return self.Reshape(rows, [*[0] * len(ids.dims), -1])

    def gather_blocks(self, table: Blocks, ids: Value) -> Value:
        """Rows of a table in blocks, in the type of its scales.   [...] -> [..., width]"""
        scheme = table.scheme
        whole = scheme.blocks(table.columns) * scheme.block
        rows = self.microsoft(
            "GatherBlockQuantized",
            [table.codes, ids, *table.parameters],
            dict(bits=scheme.bits, block_size=scheme.block, gather_axis=0, quantize_axis=1),
            (table.scales, [*ids.dims, whole]),
        )
        return rows if whole == table.columns else self.Slice(rows, [0], [table.columns], [-1])

    def gelu(self, x: Value) -> Value:
        """The tanh form. ai.onnx Gelu has no f16 kernel on the CPU provider: it falls into eleven operators there."""
        return self.microsoft("FastGelu", [x], {}, (x, x.dims))

    def sight(self, tokens: Tokens, past: Value, how: Attending) -> Sight:
        """True where a token may look, as `Standard` says, and how heads are folded.

        The kernel reads the keys once per head. A single token therefore takes the heads that share keys as queries of
        one head; many tokens do not, since then the scores are what costs.
        """
        alone = self.Equal(self.length(tokens.positions), 1)
        mask = super().sight(tokens, past, how)
        queries = self.Where(alone, np.int64(how.heads // how.kv_heads), np.int64(1))
        mask = self.Expand(mask, self.Concat([1, 1], self.Unsqueeze(queries, [0]), [1], axis=0))
        return Fold(mask, self.Unsqueeze(self.Where(alone, np.int64(how.kv_heads), np.int64(how.heads)), [0]))

    def attend(self, q: Value, k: Value, v: Value, cache: Cache, sight: Sight) -> tuple[Value, Cache]:
        """softmax(q kᵀ) v over the cache and the new keys and values, which join it.   -> [B, S, N·D]"""
        y, key, value = self._attention(self._folded(q, sight), k, v, sight.mask, *cache, outputs=3)
        return self._unfolded(y, q), (key, value)

    def borrow(self, q: Value, cache: Cache, sight: Sight) -> Value:
        """softmax(q kᵀ) v over another layer's cache.   -> [B, S, N·D]"""
        return self._unfolded(self._attention(self._folded(q, sight), *cache, sight.mask, outputs=1), q)

    def _folded(self, q: Value, sight: Sight) -> Value:
        return self.Reshape(q, self.Concat([0], sight.heads, [-1, q.dims[3]], axis=0))

    def _unfolded(self, y: Value, q: Value) -> Value:
        return self._merge(self.Reshape(y, [0, q.dims[1], -1, q.dims[3]]))
