"""Pure ai.onnx: any conformant runtime. Attention takes a mask, so zeros may stand anywhere in it.

Shapes: B batch · S new tokens · K kept tokens · T tokens so far · C tokens in a cache · N heads · D head size
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from cabochon.dialects.looping import Looping
from cabochon.dialects.surroundings import Surroundings, in_blocks, surroundings
from cabochon.dialects.unpacking import rows_across, rows_along
from cabochon.graph import DTYPES, Blocks, Scope, Value

__all__ = ["FAR", "Attending", "Cache", "Sight", "Standard", "Tokens", "Turn"]

Cache = tuple[Value, Value]  # keys and values, [B, kv heads, C, D]
Turn = Callable[[Value], Value]  # rotates heads by their positions
# What a dialect knows of the tokens, and of what they see. The model hands both back without looking inside,
# except that tokens have `positions`, and that `tokens[columns]` are some of them.
Tokens = Any
Sight = Any

FAR = 1 << 40  # beyond every position: where padding stands


@dataclass(frozen=True)
class Attending:
    """How a kind of layer attends: its heads, those of its keys, and what they see."""

    heads: int
    kv_heads: int
    window: int | None  # keys a token sees, itself included; None where it sees all
    ahead: Value | None = None  # [B, S] i64: how many tokens further it sees; None where none does


@dataclass(frozen=True)
class Queries:
    """Where tokens stand among the real tokens of their row, and up to which position they may look."""

    positions: Value  # [B, S] i64
    highest: Value  # [B, S] i64
    real: Value | None  # [B, S] bool; None where all are

    def __getitem__(self, columns: Value) -> "Queries":
        g = columns.tracer
        return Queries(*(g.rows(v, columns) for v in (self.positions, self.highest, self.real)))


class Standard(Looping):
    """How the portable target spells the idioms of the model."""

    mask = "anywhere"

    def __init__(self, name: str) -> None:
        super().__init__(name, opset=23)

    # tokens and what they see

    def tokens(self, attention_mask: Value, ids: Value) -> Tokens:
        """The new tokens. Their positions count the real tokens before them; padding counts for nothing."""
        self._new = self.length(ids)
        standing = self._stand(attention_mask)
        positions = self.last(standing, self._new)
        real = self.cast(self.last(attention_mask, self._new), "bool")
        # Padding looks at every real key: nothing reads its result, but it must not be a softmax over nothing.
        return Queries(self.Max(positions, 0), self.Where(real, positions, np.int64(FAR - 1)), real)

    def drafted(self, attention_mask: Value, columns: Value, queries: Value) -> Tokens:
        """Tokens that have no keys yet: each of the `queries` stands right behind the real tokens of its row.

        Of the mask only the first `columns` count, which have keys.
        """
        self._new = self.constant(0)
        mask = self.Slice(attention_mask, [0], self.Unsqueeze(columns, [0]), [1])
        self._stand(mask)
        behind = self.ReduceSum(mask, [1], keepdims=1)  # [B, 1]
        positions = self.Expand(behind, self.Concat([1], self.Unsqueeze(queries, [0]), axis=0))
        return Queries(positions, positions, None)

    def _stand(self, attention_mask: Value) -> Value:
        """The positions of a row's columns. Keys that stand there are remembered; padding has none.   [B, T]"""
        standing = self.CumSum(attention_mask, np.int64(1)) - 1
        self._keys = self.Where(self.cast(attention_mask, "bool"), standing, np.int64(FAR))
        return standing

    def kept(self, tokens: Tokens, keep: Value) -> Value:
        """The columns of the last `keep` real tokens of each row, in order; all columns where keep is 0.   [B, K]

        K is clamped to the number of new tokens. A row with fewer real tokens fills its first places with padding.
        """
        everything = self.Equal(keep, 0)
        columns = self.Range(np.int64(0), self._new, np.int64(1))  # [S]
        rank = self.Where(
            self.Or(tokens.real, everything), columns, columns - self._new
        )  # real tokens rank above padding
        count = self.Where(everything, self._new, self.Min(keep, self._new))
        best, _ = self.TopK(rank, self.Unsqueeze(count, [0]), outputs=2)
        in_order = self.Slice(best, [-1], [np.iinfo(np.int64).min], [1], [-1])
        return self.Where(self.Less(in_order, 0), in_order + self._new, in_order)

    def sight(self, tokens: Tokens, past: Value, how: Attending) -> Sight:
        """True where a token may look: a real token, not further on than `how.ahead`, within the window.   [B, 1, S, C]

        Distances are between positions, not columns. A cache may hold fewer entries than there were tokens: it holds
        the last ones.
        """
        keys = self.Unsqueeze(self.keys(past), [1, 2])  # [B, 1, 1, C]
        highest = tokens.highest if how.ahead is None else tokens.highest + how.ahead
        seen = self.LessOrEqual(keys, self.Unsqueeze(highest, [1, 3]))
        if how.window is None:
            return seen
        lowest = tokens.positions - how.window
        if tokens.real is not None:
            lowest = self.Where(tokens.real, lowest, np.int64(-1))
        return self.And(seen, self.Greater(keys, self.Unsqueeze(lowest, [1, 3])))

    def keys(self, past: Value) -> Value:
        """Where the keys of a cache stand that had `past` entries before the new tokens came.   [B, C]"""
        return self.last(self._keys, past + self._new)

    # layers

    def rms_norm(self, x: Value, weight: Value | None, eps: float) -> Value:
        """x / sqrt(mean(x²) + eps) · weight over the last axis; the statistics in f32."""
        if weight is None:
            weight = self.constant(np.ones(x.dims[-1]), like=x)
        return self.RMSNormalization(x, weight, axis=-1, epsilon=eps)

    def linear(self, x: Value, w: Scope) -> Value:
        """x @ weightᵀ; the weight has the checkpoint's orientation, [out, in], or lies in blocks."""
        if w.in_blocks("weight"):
            return self.multiply_blocks(x, w.blocks("weight"))
        return self.multiply(x, w["weight"])

    def multiply(self, x: Value, weight: Value) -> Value:
        """x @ weightᵀ"""
        return x @ self.Transpose(weight, perm=[1, 0])

    def multiply_blocks(self, x: Value, weight: Blocks) -> Value:
        """The same of a weight in blocks, which lies [in, out]: runtimes fuse both operators only so."""
        block = weight.scheme.block
        return x @ self.DequantizeLinear(weight.codes, *weight.parameters, axis=0, block_size=block)

    def unembed(self, x: Value, w: Scope) -> Value:
        """x @ tableᵀ: a logit for every row of a table.   [B, K, width] -> [B, K, rows]"""
        return self.linear(x, w)

    def among(self, ids: Value, some: tuple[int, ...]) -> Value:
        """Whether an id is one of some.   [B, S] -> bool [B, S]"""
        found = [self.Equal(ids, np.int64(each)) for each in some]
        return functools.reduce(self.Or, found)

    def embed(self, w: Scope, ids: Value, scale: float) -> Value:
        """Rows of a table, times a scale in the type of activations.   [B, S] -> [B, S, width]"""
        return self.rows_of(w, ids) * scale

    def rows_of(self, w: Scope, ids: Value, name: str = "weight") -> Value:
        """Rows of a table.   [...] -> [..., width]"""
        if w.in_blocks(name):
            return self.cast(self.gather_blocks(w.blocks(name), ids), w.store.dtype)
        return self.cast(self.Gather(w[name], ids), w.store.dtype)

    def mix(
        self,
        x: Value,
        which: Value,
        shares: Value,
        count: int,
        expert: Callable[[Self, Value, Value], Value],
    ) -> Value:
        """Σ share · expert(x) over the experts of each token.   [B, S, H] -> [B, S, H]

        which i64 and shares f32 [B, S, k]. A loop over those of the `count` experts that any token asks for: `expert`
        gets its tracer, the number of one, and the rows of x that ask for it; nothing of another is read. Sums in f32.
        """
        rows, which, shares = (self.Reshape(v, [-1, v.dims[-1]]) for v in (x, which, shares))
        once = self.Reshape(which, [-1])
        asked = self.ScatterElements(np.zeros(count, np.int64), once, once * 0 + 1)

        def step(g: Self, e: Value, so_far: Value) -> Value:
            here = g.Equal(which, e)
            each = g.ReduceSum(g.Where(here, shares, np.float32(0)), [-1])  # [T, 1]
            asking = g._places(g.ReduceSum(g.cast(here, "i64"), [-1], keepdims=0))
            made = g.cast(expert(g, e, g.Gather(rows, asking)), "f32") * g.Gather(each, asking)
            return g.ScatterND(so_far, g.Unsqueeze(asking, [-1]), made, reduction="add")

        nothing = self.ConstantOfShape(self.Shape(rows))  # f32
        nothing.shape = rows.shape
        mixed = self.fold(self._places(asked), nothing, step)
        return self.Reshape(self.CastLike(mixed, x), self.Shape(x))

    def _places(self, counts: Value) -> Value:
        """Where there is anything but 0, in order.   [N] -> i64 [n]"""
        return self.Reshape(self.NonZero(counts), [-1])

    def gather_blocks(self, table: Blocks, ids: Value) -> Value:
        """Rows of a table in blocks, in the type of its scales.   [...] -> [..., width]"""
        return (rows_across if table.across else rows_along)(self, table, ids)

    def embed_layers(self, w: Scope, ids: Value, scale: float, layers: int) -> Value:
        """Rows of a table that holds one block of columns per layer.   [B, S] -> [B, S, layers, width]

        In blocks it is stored with a row for each layer of a token, so that no block reaches into another layer's.
        """
        if w.in_blocks("weight"):
            table = w.blocks("weight", width=w.shape("weight")[1] // layers)
            each = self.Unsqueeze(ids, [2]) * layers + np.arange(layers)
            return self.cast(self.gather_blocks(table, each), w.store.dtype) * scale
        return self.Reshape(self.embed(w, ids, scale), [0, 0, layers, -1])

    def between(self, x: Value, low: Value | float, high: Value | float) -> Value:
        """x, but no less than `low` and no more than `high`. For bf16 CUDA has kernels of Min and Max, but not of Clip;
        for other types WebGPU has one of Clip, but not of Min and Max."""
        if x.dtype == DTYPES["bf16"]:
            return self.Min(self.Max(x, low), high)
        return self.Clip(x, low, high)

    def gelu(self, x: Value) -> Value:
        """The tanh form."""
        return self.Gelu(x, approximate="tanh")

    def heads(self, x: Value, count: int, size: int, norm: Callable[[Value], Value]) -> Value:
        """Split into heads, each normalised.   [B, S, N·D] -> [B, N, S, D]"""
        return self.Transpose(norm(self.Reshape(x, [0, 0, count, size])), perm=[0, 2, 1, 3])

    def rope(self, positions: Value, frequencies: np.ndarray, like: Value) -> Turn:
        """Rotary embedding: pairs (i, i + D/2) turn by position · frequency[i].

        Angles in f32, cos and sin in the type of `like`.
        """
        angle = self.Unsqueeze(self.cast(positions, "f32"), [2]) * self.constant(frequencies)  # [B, S, D/2]
        cos, sin = (self.CastLike(f(angle), like) for f in (self.Cos, self.Sin))
        return lambda x: self.turn(x, cos, sin)

    def turn(self, x: Value, cos: Value, sin: Value) -> Value:
        """Heads in this dialect's layout, turned."""
        return self.RotaryEmbedding(x, cos, sin)

    def attend(self, q: Value, k: Value, v: Value, cache: Cache, sight: Sight) -> tuple[Value, Cache]:
        """softmax(q kᵀ) v over the cache and the new keys and values, which join it.   -> [B, S, N·D]"""
        y, key, value = self._attention(q, k, v, sight, *cache, outputs=3)
        return self._merge(y), (key, value)

    def borrow(self, q: Value, cache: Cache, sight: Sight) -> Value:
        """softmax(q kᵀ) v over another layer's cache.   -> [B, S, N·D]"""
        return self._merge(self._attention(q, *cache, sight, outputs=1))

    def _attention(self, *inputs: Value, outputs: int) -> Any:
        """The scores are not scaled, and their softmax is taken in f32."""
        return self.Attention(*inputs, scale=1.0, softmax_precision=1, outputs=outputs)

    def _merge(self, y: Value) -> Value:
        return self.Reshape(self.Transpose(y, perm=[0, 2, 1, 3]), [0, 0, -1])

    # encoders

    def surroundings(self, real: Value) -> Surroundings:
        """What may be seen in rows that are wholes of their own: every real token.   real bool [B, S]"""
        return surroundings(self, real)

    def attend_within(self, q: Value, k: Value, v: Value, around: Surroundings) -> Value:
        """softmax(q kᵀ) v within each row.   [B, N, S, D] -> [B, S, N·D]"""
        return in_blocks(self, q, k, v, around)

    def attend_block(self, q: Value, k: Value, v: Value, seen: Value) -> Value:
        """softmax(q kᵀ) v of some queries of one row; seen bool [1, 1, 1, S].   [1, N, Q, D] -> [1, Q, N·D]"""
        seen = self.Expand(seen, self.Concat([1, 1], self.Shape(q, start=2, end=3), [1], axis=0))
        return self._merge(self._attention(q, k, v, seen, outputs=1))
