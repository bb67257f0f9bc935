"""A weight of a package as a recipe over a checkpoint tensor: what it will be, before a byte of it is read."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cabochon.checkpoint import Tensor
from cabochon.recipes.cast import TYPES, blocks, bound_blocks, cast_blocks

__all__ = ["Recipe"]

_HEADER_NAMES = {"f32": "F32", "f16": "F16", "bf16": "BF16", "i64": "I64"}
_TYPES = TYPES | {"i64": np.dtype(np.int64)}


@dataclass(frozen=True)
class Recipe:
    """`tensor`, or some `columns` and `rows` of a 2-D one, in `precision` ("f32", "f16", "bf16") under `name`.

    Ids have "i64" for a precision: they are stored as they are.
    """

    name: str
    tensor: Tensor
    precision: str
    columns: slice | None = None
    rows: slice | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the weight: that of the tensor, or as many rows and columns as are taken."""
        if self.columns is None and self.rows is None:
            return self.tensor.shape
        taken = zip((self.rows, self.columns), self.tensor.shape, strict=True)
        return tuple(size if part is None else part.stop - part.start for part, size in taken)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _TYPES[self.precision].itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the weight."""
        return math.prod(self.shape) * self.itemsize

    @property
    def sources(self) -> tuple[Tensor, ...]:
        """The checkpoint tensors it is computed from."""
        return (self.tensor,)

    @property
    def span(self) -> tuple[Path, int] | None:
        """File and offset in bytes where its bytes stand as they are in a file of the checkpoint, else None."""
        unchanged = self.columns is None and self.tensor.dtype == _HEADER_NAMES[self.precision]
        before = 0 if self.rows is None else self.rows.start * self.tensor.shape[1] * self.itemsize
        return (self.tensor.file, self.tensor.offset + before) if unchanged else None

    def blocks(self) -> Iterator[np.ndarray]:
        """Its bytes in order, little endian, row-major, as C-contiguous arrays of a few megabytes.

        Raises TensorError for NaN, for infinity, and where a finite value would become infinite. A single number is a
        bound: beyond the largest of the type it is that, which bounds as much, and so is infinity.
        """
        if not self.tensor.shape:
            return bound_blocks(self.tensor, self.precision)
        if self.precision == "i64":
            return blocks(self.tensor)
        return cast_blocks(self.tensor, self.precision, self.columns, self.rows)
