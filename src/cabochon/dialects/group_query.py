"""GroupQueryAttention of ONNX Runtime: the kernel takes lengths instead of a mask.

Rows are left-justified: real tokens first, in decode steps too. Heads lie side by side, [B, S, N, D].
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cabochon.dialects.default import Default
from cabochon.dialects.standard import Attending, Cache, Sight, Standard, Tokens
from cabochon.dialects.targets import WEBGPU_BINDING, layer_table, row_tables
from cabochon.dialects.written_out import attention
from cabochon.graph import Scope, Value

__all__ = ["GroupQuery", "WebGpu"]


@dataclass(frozen=True)
class Lengths:
    """Where left-justified tokens stand."""

    positions: Value  # [B, S] i64

    def __getitem__(self, columns: Value) -> "Lengths":
        return Lengths(columns.tracer.rows(self.positions, columns))


@dataclass(frozen=True)
class Span:
    """What GroupQueryAttention asks for: the index of each row's last key, the columns of the cache, the window."""

    positions: Value  # [B, S] i64
    last_key: Value  # [B] i32
    columns: Value  # [] i32: those of the cache that hold tokens; a buffer shared with the present has more
    first_key: Value  # [] i64: the position of the first entry of the cache
    window: int | None
    ahead: Value | None = None  # [B, S] i64: how many tokens further a token sees


class GroupQuery(Default):
    """Every layer is one GroupQueryAttention; a borrower passes empty keys and values and its owner's cache as past.

    The kernel is causal. Where tokens see some that come later, it only fills the cache, and the scores are written
    out.
    """

    mask = "left-justified"
    accuracy = None

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._nothings: dict[int, Value] = {}
        self._opened: dict[str | None, Cache] = {}

    def tokens(self, attention_mask: Value, ids: Value) -> Tokens:
        """The new tokens are the last of each row; in a prefill a short row has fewer and begins at 0."""
        self._new, self._total = self.length(ids), self.length(attention_mask)
        self._real = self.ReduceSum(attention_mask, [1], keepdims=1)  # [B, 1]
        columns = self.Range(np.int64(0), self._new, np.int64(1))
        return Lengths(self.Max(self._real - self._new, 0) + columns)

    def kept(self, tokens: Tokens, keep: Value) -> Value:
        """The columns of the last `keep` new tokens of each row, in order.   [B, K]

        All columns as they stand where keep is 0 or nothing less than all: the kernel then takes a prefill for granted,
        and query j for position j.
        """
        everything = self.Or(self.Equal(keep, 0), self.GreaterOrEqual(keep, self._new))
        count = self.Where(everything, self._new, keep)
        end = self.Where(everything, self._new, self.Min(self._real, self._new))  # [B, 1]
        return self.Max(end - count + self.Range(np.int64(0), count, np.int64(1)), 0)

    def sight(self, tokens: Tokens, past: Value, how: Attending) -> Sight:
        """Lengths of the rows in a cache that lost its first entries, or has room for more than there are tokens."""
        columns = self.Min(past + self._new, self._total)
        evicted = self._total - columns
        last_key = self.cast(self.Squeeze(self._real - evicted - 1, [1]), "i32")
        return Span(tokens.positions, last_key, self.cast(columns, "i32"), evicted, how.window, how.ahead)

    def heads(self, x: Value, count: int, size: int, norm: Callable[[Value], Value]) -> Value:
        """Split into heads, each normalised.   [B, S, N·D] -> [B, S, N, D]"""
        return norm(self.Reshape(x, [0, 0, count, size]))

    def turn(self, x: Value, cos: Value, sin: Value) -> Value:
        """The kernel turns heads that lie side by side.   [B, S, N, D]"""
        _, _, count, size = x.dims
        turned = self.RotaryEmbedding(self._side_by_side(x), cos, sin, num_heads=count)
        return self.Reshape(turned, [0, 0, count, size])

    def attend(self, q: Value, k: Value, v: Value, cache: Cache, sight: Sight) -> tuple[Value, Cache]:
        """One kernel appends to the cache and attends."""
        grown = f"{cache[0].dims[2]}+sequence"
        y, cache = self._group_query(q, self._side_by_side(k), self._side_by_side(v), cache, sight, grown)
        return (y if sight.ahead is None else self._written_out(q, cache, sight)), cache

    def borrow(self, q: Value, cache: Cache, sight: Sight) -> Value:
        """The same kernel with nothing to append. All three outputs are bound: some versions crash otherwise."""
        if sight.ahead is not None:
            return self._written_out(q, cache, sight)
        nothing = self._nothing(q, cache)
        return self._group_query(q, nothing, nothing, cache, sight, cache[0].dims[2])[0]

    def _group_query(
        self, q: Value, k: Value, v: Value, cache: Cache, sight: Sight, grown: Any
    ) -> tuple[Value, Cache]:
        batch, new, heads, size = q.dims
        kv_heads = cache[0].dims[1]
        y, key, value = self.microsoft(
            "GroupQueryAttention",
            [self._side_by_side(q), k, v, *cache, sight.last_key, sight.columns],
            dict(num_heads=heads, kv_num_heads=kv_heads, scale=1.0, local_window_size=sight.window or -1),
            (q, [batch, new, heads * size]),
            *[(q, [batch, kv_heads, grown, size])] * 2,
        )
        return y, (key, value)

    def _nothing(self, q: Value, cache: Cache) -> Value:
        """Keys or values of no token.   [B, 0, N·D]"""
        width = cache[0].dims[1] * cache[0].dims[3]
        if width not in self._nothings:
            shape = self.Concat(self.Shape(q, start=0, end=1), np.array([0, width]), axis=0)
            self._nothings[width] = self.Expand(self.constant(np.zeros((1, 1, 1)), like=q), shape)
        return self._nothings[width]

    def _side_by_side(self, x: Value) -> Value:
        return self.Reshape(x, [0, 0, x.dims[2] * x.dims[3]])

    def embed_layers(self, w: Scope, ids: Value, scale: float, layers: int) -> Value:
        """One table per layer: all of it would have more elements than an int32 can count.

        [B, S] -> [B, S, layers, width]
        """
        width = w.shape("weight")[1] // layers
        rows = [
            self._look_up(w, layer_table("weight", i), ids, slice(i * width, (i + 1) * width))
            for i in range(layers)
        ]
        return self.Reshape(self.Concat(*rows, axis=2) * scale, [0, 0, layers, width])

    def _look_up(self, w: Scope, name: str, ids: Value, columns: slice | None, of: str = "weight") -> Value:
        """Rows of some columns of the table `of`, which are stored as the table `name`.   [...] -> [..., width]"""
        return self._rows(w, name, ids, columns, None, of)

    def _rows(
        self, w: Scope, name: str, ids: Value, columns: slice | None, rows: slice | None, of: str
    ) -> Value:
        """Rows of a part of the table `of`, which is stored as the table `name`."""
        if w.in_blocks(of):
            return self.cast(self.gather_blocks(w.blocks(name, of, columns, rows), ids), w.store.dtype)
        return self.cast(self.Gather(w.part(name, of, columns, rows), ids), w.store.dtype)

    def _written_out(self, q: Value, cache: Cache, sight: Sight) -> Value:
        """softmax(q kᵀ) v in plain operators, within a window."""
        keys, values = self._open(cache, sight)
        q = self.Transpose(q, perm=[0, 2, 1, 3])
        return self._merge(attention(self, q, keys, values, self._seen(sight), cache[0].dims[1]))

    def _open(self, cache: Cache, sight: Sight) -> Cache:
        """Keys, and values with nothing but zeros behind a row's last key, where the kernel left whatever was in
        memory. Of a shared buffer only the columns that hold tokens."""
        if cache[0].name not in self._opened:
            columns = self.Range(np.int32(0), sight.columns, np.int32(1))
            real = self.LessOrEqual(columns, self.Unsqueeze(sight.last_key, [1]))  # [B, C]
            end = self.Unsqueeze(self.cast(sight.columns, "i64"), [0])
            keys, values = (self.Slice(x, [0], end, [2]) for x in cache)
            values = self.Where(self.Unsqueeze(real, [1, 3]), values, self.constant(0.0, like=values))
            self._opened[cache[0].name] = keys, values
        return self._opened[cache[0].name]

    def _seen(self, sight: Sight) -> Value:
        """Not ahead and within the window.   [B, 1, K, C]"""
        keys = sight.first_key + self.Range(np.int64(0), self.cast(sight.columns, "i64"), np.int64(1))
        queries = self.Unsqueeze(sight.positions, [1, 3])
        highest = queries if sight.ahead is None else queries + self.Unsqueeze(sight.ahead, [1, 3])
        return self.And(self.LessOrEqual(keys, highest), self.Greater(keys, queries - sight.window))


class WebGpu(GroupQuery):
    """WebGPU computes a borrowed cache with a window wrongly: there the scores are written out.

    A table that no binding holds is stored as several, by rows.
    """

    binding = WEBGPU_BINDING

    def borrow(self, q: Value, cache: Cache, sight: Sight) -> Value:
        """Without a window the fused kernel is right; with one, softmax(q kᵀ) v in plain operators."""
        return super().borrow(q, cache, sight) if sight.window is None else self._written_out(q, cache, sight)

    def multiply(self, x: Value, weight: Value) -> Value:
        """WebGPU has no kernel for FusedMatMul."""
        return Standard.multiply(self, x, weight)

    def unembed(self, x: Value, w: Scope) -> Value:
        """The logits of one table behind those of the other."""
        logits = [self._product(x, w, name, rows) for name, rows in self._tables(w, "weight", None).items()]
        return logits[0] if len(logits) == 1 else self.Concat(*logits, axis=-1)

    def _product(self, x: Value, w: Scope, name: str, rows: slice | None) -> Value:
        if w.in_blocks("weight"):
            return self.multiply_blocks(x, w.blocks(name, "weight", None, rows))
        return self.multiply(x, w.part(name, "weight", None, rows))

    def rows_of(self, w: Scope, ids: Value, name: str = "weight") -> Value:
        """Rows of a table.   [...] -> [..., width]"""
        return self._look_up(w, name, ids, None, name)

    def _look_up(self, w: Scope, name: str, ids: Value, columns: slice | None, of: str = "weight") -> Value:
        """A row is that of the last table that begins at its id or before."""
        (first, rows), *others = self._tables(w, name, columns, of).items()
        found = self._rows(w, first, self.Min(ids, rows.stop - 1) if others else ids, columns, rows, of)
        for table, rows in others:
            inside = self.Clip(ids - rows.start, np.int64(0), np.int64(rows.stop - rows.start - 1))
            here = self._rows(w, table, inside, columns, rows, of)
            found = self.Where(self.Unsqueeze(self.GreaterOrEqual(ids, rows.start), [-1]), here, found)
        return found

    def _tables(self, w: Scope, name: str, columns: slice | None, of: str = "weight") -> dict[str, slice]:
        """The tables in which some columns of a table are stored, and the rows of each."""
        height, width = w.shape(of)
        if columns is not None:
            width = columns.stop - columns.start
        return row_tables(name, height, w.row_bytes(of, width), self.binding)
