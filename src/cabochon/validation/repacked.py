"""Weights in blocks whose scales nobody can derive again: whether every code is the nearest one for its scale."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cabochon.packing import Packed, Scheme, nearest, pack, unpack
from cabochon.packing.nibbles import codes_in, in_bytes
from cabochon.recipes.part import Part
from cabochon.validation.blocks import SCALES, zero_points_of
from cabochon.validation.graph import Graph

__all__ = ["not_nearest"]

_AT_ONCE = 1 << 23  # numbers in memory at once
_WORSE = 3.0  # times the squared error of rounding to nearest; scales of twice the size make it four times


def not_nearest(graph: Graph, codes: Part, stored: str) -> str:
    """Where a code is not the nearest one for its scale and zero point, or all are far off; "" where they are right.

    `stored`: the initializer that holds the codes.
    """
    packing, error, least = codes.packing, 0.0, 0.0
    scheme, columns = packing.scheme, packing.shape[1]
    plain = scheme if scheme.method == "nf4" else Scheme("round", scheme.bits, scheme.block, True, "f32")
    for first, packed, values in _rows(graph, codes, stored):
        expected = nearest(values, packed, scheme)
        if not np.array_equal(expected.reshape(packed.codes.shape), packed.codes):
            return f"codes in rows from {first} on that are not the nearest for their scales"
        error += _squared(values, unpack(packed, scheme, columns))
        least += _squared(values, unpack(pack(values, plain), plain, columns))
    if error > _WORSE * least:
        return (
            f"{error / least if least else float('inf'):.1f} times the squared error of rounding to nearest"
        )
    return ""


def _squared(values: np.ndarray, other: np.ndarray) -> float:
    return float(np.square(values.astype(np.float32) - other.reshape(values.shape), dtype=np.float64).sum())


def _rows(graph: Graph, codes: Part, stored: str) -> Iterator[tuple[int, Packed, np.ndarray]]:
    """Some rows at a time: the first of them, what is stored of them, and their numbers in the checkpoint."""
    values, held = _values(codes), _held(graph, codes, stored)
    step = max(_AT_ONCE // max(values.shape[1], 1) // 64, 1) * 64  # whole flat blocks, whatever a row has
    for first in range(0, len(values), step):
        some = values[first : first + step]
        yield first, held.some(first, some), some


def _values(codes: Part) -> np.ndarray:
    packing = codes.packing
    values = packing.tensor.array()
    values = values if packing.rows is None else values[packing.rows]
    values = values if packing.columns is None else values[:, packing.columns]
    return np.ascontiguousarray(values).reshape(packing.shape)


@dataclass(frozen=True)
class _Held:
    """Codes, scales and zero points, each a row for a row, or all of them flat."""

    scheme: Scheme
    codes: np.ndarray
    scales: np.ndarray
    zero_points: np.ndarray | None

    def some(self, first: int, values: np.ndarray) -> Packed:
        """What belongs to some rows."""
        if self.scheme.method == "nf4":
            start = first * values.shape[1]
            halves = slice(start // 2, -(-(start + values.size) // 2))
            blocks = slice(start // self.scheme.block, -(-(start + values.size) // self.scheme.block))
            return Packed(self._filled(self.codes[halves]), self.scales[blocks], None)
        taken = slice(first, first + len(values))
        points = None if self.zero_points is None else self.zero_points[taken]
        return Packed(self.codes[taken], self.scales[taken], points)

    def _filled(self, codes: np.ndarray) -> np.ndarray:
        """Whole flat blocks: those of no number are 0."""
        missing = -len(codes) % (self.scheme.block // 2)
        zero = nearest(np.zeros((1, self.scheme.block), np.float32), _NOTHING, self.scheme)[: missing or None]
        return np.concatenate([codes, zero]) if missing else codes


_NOTHING = Packed(np.zeros(0, np.uint8), np.ones(1, np.float32), None)


def _held(graph: Graph, codes: Part, stored: str) -> _Held:
    packing, name = codes.packing, codes.name
    scheme, (rows, columns) = packing.scheme, packing.shape
    blocks = scheme.blocks(columns)
    scales = graph.array(f"{name}{SCALES}")
    stored_points = next(iter(zero_points_of(graph, name)), None)
    points = None if stored_points is None else graph.raw(stored_points)
    if not packing.across:
        shape = (-1,) if scheme.method == "nf4" else (rows, blocks, scheme.block * scheme.bits // 8)
        beside = None if points is None else points.reshape(rows, -1)
        return _Held(scheme, graph.raw(stored).reshape(shape), scales, beside)
    codes_across = codes_in(graph.raw(stored), scheme.bits, rows * columns).reshape(columns, rows)
    if scheme.symmetric:
        codes_across = codes_across ^ np.uint8(1 << scheme.bits - 1)  # two's complement
    whole, beside = np.empty((rows, blocks * scheme.block), np.uint8), None
    whole[:] = scheme.middle
    if points is not None:
        each = np.ascontiguousarray(codes_in(points, scheme.bits, rows * blocks).reshape(blocks, rows).T)
        whole[:] = np.repeat(each, scheme.block, axis=1)
        beside = in_bytes(each, scheme.bits, scheme.middle)
    whole[:, :columns] = codes_across.T
    packed = in_bytes(whole, scheme.bits).reshape(rows, blocks, -1)
    return _Held(scheme, packed, np.ascontiguousarray(scales.T), beside)
