"""A weight in blocks, as the two or three tensors that a package stores of it, computed together."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cabochon.checkpoint import Tensor
from cabochon.errors import PackingError, TensorError
from cabochon.packing import Packed, Scheme, pack

__all__ = ["BITS", "Packing", "Part", "parts", "unfolded"]

_AT_ONCE = 1 << 22  # numbers packed at once
_ACROSS = 1 << 25  # numbers in memory at once where rows and columns change places
_WHOLE = 64  # rows packed at once are a multiple of it: whatever a row has, flat blocks end with them


@dataclass(frozen=True)
class Slab:
    """What a part of a weight becomes."""

    codes: np.ndarray
    scales: np.ndarray
    zero_points: np.ndarray | None


@dataclass(frozen=True, eq=False)
class Packing:
    """How a 2-D tensor, or some `columns` and `rows` of it, becomes codes, scales and zero points.

    `width`: a row is stored as rows of so many numbers, which no block crosses. `across`: what is stored is
    [columns, rows], the blocks down the columns, in types of ai.onnx. `importance`: mean squares of the input channels.
    """

    tensor: Tensor
    scheme: Scheme
    columns: slice | None = None
    rows: slice | None = None
    width: int | None = None
    across: bool = False
    importance: np.ndarray | None = None
    _left: dict[str, np.ndarray] = field(default_factory=dict[str, np.ndarray], init=False, repr=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of what is packed."""
        taken = zip((self.rows, self.columns), self.tensor.shape, strict=True)
        rows, columns = (size if part is None else part.stop - part.start for part, size in taken)
        return (rows, columns) if self.width is None else (rows * columns // self.width, self.width)

    def codes(self) -> Iterator[np.ndarray]:
        """The codes, a few megabytes at a time. Scales and zero points are left for whoever asks next."""
        scales, zero_points, at = None, None, 0
        for slab in self._across() if self.across else self._along():
            scales = self._joined(scales, slab.scales, at)
            if slab.zero_points is not None:
                zero_points = self._joined(zero_points, slab.zero_points, at)
            at += len(slab.scales)
            yield slab.codes
        assert scales is not None
        self._left["scales"] = scales
        if zero_points is not None:
            self._left["zero_points"] = _folded(zero_points, self.scheme.bits) if self.across else zero_points

    def _joined(self, whole: np.ndarray | None, some: np.ndarray, at: int) -> np.ndarray:
        """`whole`, with `some` of its rows from row `at` on. It is made once: of large tables it has 200 MB."""
        if whole is None:
            (rows, columns), block = self.shape, self.scheme.block
            flat = -(-rows * columns // block) if self.scheme.method == "nf4" else rows
            length = self.scheme.blocks(columns) if self.across else flat
            whole = np.empty((length, *some.shape[1:]), some.dtype)
        whole[at : at + len(some)] = some
        return whole

    def rest(self, what: str) -> np.ndarray:
        """The "scales" or the "zero_points" that the last pass left, or else those of a pass for them."""
        if what not in self._left:
            for _ in self.codes():
                pass
        return self._left.pop(what)

    def _along(self) -> Iterator[Slab]:
        values = self._values()
        step = max(_AT_ONCE // values.shape[1] // _WHOLE, 1) * _WHOLE
        for start in range(0, len(values), step):
            some = values[start : start + step]
            packed = self._pack(some, self.importance)
            codes = packed.codes[: -(-some.size // 2)] if self.scheme.method == "nf4" else packed.codes
            yield Slab(codes, packed.scales, packed.zero_points)

    def _across(self) -> Iterator[Slab]:
        """Whole blocks of columns of all rows at once."""
        values, (rows, columns), block = self._values(), self.shape, self.scheme.block
        step = max(_ACROSS // rows // block, 1) * block
        for start in range(0, columns, step):
            yield self._turned(values[:, start : start + step], slice(start, start + step))

    def _turned(self, values: np.ndarray, columns: slice) -> Slab:
        importance = None if self.importance is None else self.importance[columns]
        step, bits = max(_AT_ONCE // values.shape[1], 1), self.scheme.bits
        codes, scales, points = np.empty(values.T.shape, np.uint8), list[np.ndarray](), list[np.ndarray]()
        for start in range(0, len(values), step):
            packed = self._pack(values[start : start + step], importance)
            whole = unfolded(packed.codes.reshape(len(packed.codes), -1), bits)[:, : values.shape[1]]
            codes[:, start : start + len(whole)] = whole.T
            scales.append(packed.scales.T)
            if packed.zero_points is not None:
                points.append(unfolded(packed.zero_points, bits)[:, : packed.scales.shape[1]].T)
        if self.scheme.symmetric:
            codes ^= np.uint8(1 << bits - 1)  # two's complement
        return Slab(
            _folded(codes, bits), np.concatenate(scales, 1), np.concatenate(points, 1) if points else None
        )

    def _values(self) -> np.ndarray:
        values = self.tensor.array()
        values = values if self.rows is None else values[self.rows]
        values = values if self.columns is None else values[:, self.columns]
        return values if self.width is None else values.reshape(-1, self.width)

    def _pack(self, values: np.ndarray, importance: np.ndarray | None) -> Packed:
        try:
            return pack(np.ascontiguousarray(values), self.scheme, importance)
        except PackingError as error:
            raise TensorError(error.message, at=self.tensor.name, remedy=error.remedy) from error


@dataclass(frozen=True)
class Part:
    """One tensor of a weight in blocks. `what`: "codes", "scales" or "zero_points"."""

    name: str
    what: str
    precision: str
    shape: tuple[int, ...]
    packing: Packing

    @property
    def tensor(self) -> Tensor:
        """The checkpoint tensor it is computed from."""
        return self.packing.tensor

    @property
    def sources(self) -> tuple[Tensor, ...]:
        """The checkpoint tensors it is computed from."""
        return (self.packing.tensor,)

    @property
    def span(self) -> tuple[Path, int] | None:
        """Never in the checkpoint as it is."""
        return None

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        return -(-math.prod(self.shape) * BITS[self.precision] // 8)

    def blocks(self) -> Iterator[np.ndarray]:
        """Its bytes in order. Codes come first: what they leave is not computed again.

        Raises TensorError for NaN, for infinity, and for what no scale can hold.
        """
        if self.what == "codes":
            yield from self.packing.codes()
        else:
            yield self.packing.rest(self.what)


BITS = {"u4": 4, "i4": 4, "u8": 8, "i8": 8, "f16": 16, "f32": 32}


def parts(name: str, packing: Packing, table: bool) -> tuple[Part, ...]:
    """The tensors of the weight `name`: codes under its own name, scales and zero points under longer ones.

    Along rows codes are bytes, of a table [rows, bytes], else [rows, blocks, bytes] as they are multiplied; "nf4" is
    flat. Across they are numbers of four or eight bits, [columns, rows].
    """
    scheme, (rows, columns) = packing.scheme, packing.shape
    count, size = scheme.blocks(columns), scheme.block * scheme.bits // 8
    kind, numbers, points = "u8", (rows, count, size), (rows, -(-count * scheme.bits // 8))
    scales = (rows, count)
    if scheme.method == "nf4":
        numbers, scales = (-(-rows * columns // 2),), (-(-rows * columns // scheme.block),)
    elif packing.across:
        kind = f"{'i' if scheme.symmetric else 'u'}{scheme.bits}"
        numbers, scales, points = (columns, rows), (count, rows), (count, rows)
    elif table:
        numbers = (rows, count * size)
    found = [
        Part(name, "codes", kind, numbers, packing),
        Part(f"{name}_scales", "scales", scheme.scales, scales, packing),
    ]
    if not scheme.symmetric and scheme.method != "nf4":
        found.append(Part(f"{name}_zero_points", "zero_points", kind, points, packing))
    return tuple(found)


def unfolded(codes: np.ndarray, bits: int) -> np.ndarray:
    """One byte for each code of the last axis, which holds two of four bits, the low one first."""
    if bits == 8:
        return codes
    return np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:-1], -1)


def _folded(codes: np.ndarray, bits: int) -> np.ndarray:
    """The bytes of codes that lie one behind the other, as ai.onnx packs them."""
    flat = np.ascontiguousarray(codes).reshape(-1)
    if bits == 8:
        return flat
    flat = flat if flat.size % 2 == 0 else np.append(flat, np.uint8(0))
    folded = flat[1::2] << 4
    folded |= flat[::2]
    return folded
