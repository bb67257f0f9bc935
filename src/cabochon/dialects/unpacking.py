"""Rows of tables in blocks, in plain operators: only what is looked up is unpacked.

DequantizeLinear before Gather would unpack the whole table in every run, and ONNX gathers no numbers of four bits.

Shapes: V rows · C columns · M blocks of a row
"""

import numpy as np

from cabochon.graph import DTYPES, Blocks, Tracer, Value

__all__ = ["rows_across", "rows_along"]


def rows_along(g: Tracer, b: Blocks, ids: Value) -> Value:
    """Rows of a table whose codes lie as bytes, [V, bytes].   [...] -> [..., C]"""

    def gathered(stored: Value) -> Value:
        found = g.Gather(stored, ids)
        if b.scheme.bits == 8:
            return found
        halves = [g.BitwiseAnd(found, np.uint8(15)), g.BitShift(found, np.uint8(4), direction="RIGHT")]
        pairs = g.Concat(*(g.Unsqueeze(half, [-1]) for half in halves), axis=-1)
        return g.Reshape(pairs, [*[0] * len(ids.dims), -1])

    codes = gathered(b.codes)
    if b.columns != b.scheme.blocks(b.columns) * b.scheme.block:
        codes = g.Slice(codes, [0], [b.columns], [-1])
    zero_points = None if b.zero_points is None else gathered(b.zero_points)
    return _unpacked(g, b, codes, g.Gather(b.scales, ids), zero_points)


def rows_across(g: Tracer, b: Blocks, ids: Value) -> Value:
    """Rows of a table that is stored as a linear map reads it: codes [C, V], scales and zero points [M, V].

    Numbers of four bits are not gathered: their bytes are, under another name.   [...] -> [..., C]
    """

    def gathered(which: int, count: int) -> Value:
        stored, u8 = b.stored[which], DTYPES["u8"]
        if b.scheme.bits == 8:
            return _last(g, g.Gather(b.scope.held(stored, "bytes", u8, (count, b.rows)), ids, axis=1))
        byte, odd = _halved(g, g.Unsqueeze(ids, [-1]), np.arange(count), b.rows)
        held = b.scope.held(stored, "bytes", u8, (-(-count * b.rows // 2),))
        shift = g.cast(odd * 4, "u8")
        return g.BitwiseAnd(g.BitShift(g.Gather(held, byte), shift, direction="RIGHT"), np.uint8(15))

    codes = gathered(0, b.columns)
    if b.scheme.symmetric:  # two's complement
        codes = g.BitwiseXor(codes, np.uint8(1 << b.scheme.bits - 1))
    zero_points = None if b.scheme.symmetric else gathered(2, b.scheme.blocks(b.columns))
    return _unpacked(g, b, codes, _last(g, g.Gather(b.scales, ids, axis=1)), zero_points)


def _halved(g: Tracer, ids: Value, columns: np.ndarray, rows: int) -> tuple[Value, Value]:
    """Half of column x rows + id, and what is left over, 0 or 1.   ids [..., 1], columns [count]

    Where columns have whole bytes the id alone is halved: OpenVINO divides whole numbers as f32, which is exact below
    2^24, and the columns of a large table have more places.
    """
    if rows % 2:
        number = ids + columns * rows
        return (half := number / 2), number - half * 2
    half = ids / 2
    return half + columns * (rows // 2), ids - half * 2


def _last(g: Tracer, x: Value) -> Value:
    """The first axis as the last."""
    return g.Transpose(x, perm=[*range(1, len(x.dims)), 0])


def _unpacked(g: Tracer, b: Blocks, codes: Value, scales: Value, zero_points: Value | None) -> Value:
    """(code - zero point) · scale; codes [..., C], the others [..., M]."""
    block = np.arange(b.columns) // b.scheme.block

    def spread(x: Value) -> Value:
        return g.CastLike(g.Gather(x, block, axis=-1), scales)

    zero = (
        g.constant(float(1 << b.scheme.bits - 1), like=scales) if zero_points is None else spread(zero_points)
    )
    return (g.CastLike(codes, scales) - zero) * spread(scales)
