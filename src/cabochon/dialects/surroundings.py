"""Attention of encoders: every row of a batch is a whole of its own, in which everything sees everything real.

Scores grow with the square of a row's length: an image of 10,080 patches has 4.9 GB of them in f32 for 12 heads, and
ONNX Runtime's Attention holds those of all images of a batch. They are therefore made for one block of queries of one
row at a time, in a Loop. What a run took beyond its inputs, ONNX Runtime 1.32, one core of an AMD EPYC that others used
too, 12 heads of 64 in f32, 2026-11:

    images x patches    Attention at once    in blocks, Attention    in blocks, written out
    4 x 2,520           1,230 MB, 2.7 s      79 MB, 3.4 s            95 MB, 4.6 s
    1 x 10,080          4,910 MB, 17.8 s     194 MB, 10.0 s
    100 x 2,520         29 GB of scores      1,614 MB: twice the result, and one block

Blocks of 64, 192 and 512 queries differ less than two runs do. MultiHeadAttention of com.microsoft without a mask took
97 MB and 1.4 s for the first line, but it has no f16 kernel for the CPU, and with a mask of keys it took 1,354 MB.

WebGPU has no kernel for Loop: the loop itself runs on the CPU, its body on the GPU. Read in ONNX Runtime's source.

Shapes: B rows · S tokens of a row · N heads · D head size · Q queries of a block · T blocks of all rows
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir

from cabochon.graph import Tracer, Value

if TYPE_CHECKING:
    from cabochon.dialects.standard import Standard

__all__ = ["Surroundings", "in_blocks", "surroundings"]

_MOST = 192  # queries of a block: with 16 heads and 10,080 keys they have 118 MiB of scores; WebGPU binds 128


@dataclass(frozen=True)
class Surroundings:
    """What may be seen, and how queries are cut into blocks of one size: the last of a row overlaps its neighbour."""

    seen: Value  # [B, 1, 1, S] bool
    size: Value  # [1] i64: Q
    row: Value  # [T] i64: of which row a block is
    begin: Value  # [T] i64: its first query
    blocks: Value  # [2] i64: rows, and queries of all blocks of one row
    back: Value  # [S] i64: where each query of a row stands among those of its blocks


def surroundings(g: Tracer, real: Value) -> Surroundings:
    """The real tokens of each row, [B, S] bool. Where none is, all are seen: a softmax over nothing is no number."""
    nothing = g.Not(g.cast(g.ReduceMax(g.cast(real, "i32"), [1], keepdims=1), "bool"))
    seen = g.Unsqueeze(g.Or(real, nothing), [1, 2])

    rows, length = g.length(real, 0), g.length(real)
    blocks = (length + (_MOST - 1)) / _MOST
    size = (length + blocks - 1) / g.Max(blocks, 1)
    last = length - size
    number = g.Range(np.int64(0), rows * blocks, np.int64(1))
    row = number / g.Max(blocks, 1)
    begin = g.Min((number - row * blocks) * size, last)

    query = g.Range(np.int64(0), length, np.int64(1))
    begun = query / g.Max(size, 1) * size
    back = begun + query - g.Min(begun, last)
    both = g.Concat(g.Unsqueeze(rows, [0]), g.Unsqueeze(blocks * size, [0]), axis=0)
    return Surroundings(seen, g.Unsqueeze(size, [0]), row, begin, both, back)


def in_blocks(g: "Standard", q: Value, k: Value, v: Value, around: Surroundings) -> Value:
    """softmax(q kᵀ) v within each row, one block of queries after the other, as `g.attend_block` writes it.

    q [B, N, S, D], k and v [B, groups, S, D] -> [B, S, N·D]
    """
    _, heads, _, size = q.dims

    def block(body: "Standard", number: Value) -> Value:
        row, begin = (body.Unsqueeze(body.Gather(x, number), [0]) for x in (around.row, around.begin))
        ends = body.Concat(row + 1, begin + around.size, axis=0)
        queries = body.Slice(q, body.Concat(row, begin, axis=0), ends, [0, 2])
        queries.shape = ir.Shape([1, heads, None, size])
        keys, values, seen = (body.Gather(x, row, axis=0) for x in (k, v, around.seen))
        y = body.Squeeze(body.attend_block(queries, keys, values, seen), [0])
        y.shape = ir.Shape([None, heads * size])
        return y

    blocks = g.repeat(g.length(around.row, 0), block)
    rows = g.Reshape(blocks, g.Concat(around.blocks, [heads * size], axis=0))
    return g.Gather(rows, around.back, axis=1)
