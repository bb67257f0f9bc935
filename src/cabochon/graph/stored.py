"""A weight as a package stores it: known by name, type and shape now, computed block by block when it is written."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import numpy as np
import onnx_ir as ir

from cabochon.checkpoint import Tensor

__all__ = ["Stored"]


class Stored(ir.LazyTensor):
    """An initializer whose bytes exist only while they are written.

    `blocks()` yields C-contiguous arrays of a few megabytes; their bytes in order are the tensor's bytes, little
    endian, row-major. `sources` are the checkpoint tensors it is computed from. `span` is (file, offset in bytes)
    when the bytes are exactly those of a range of a checkpoint file, else None. `numpy()` has the whole tensor in
    memory: for tests.
    """

    def __init__(
        self,
        name: str,
        dtype: ir.DataType,
        shape: tuple[int, ...],
        blocks: Callable[[], Iterator[np.ndarray]],
        sources: tuple[Tensor, ...],
        span: tuple[Path, int] | None = None,
    ) -> None:
        super().__init__(self._whole, dtype=dtype, shape=ir.Shape(shape), name=name)
        self.blocks, self.sources, self.span = blocks, sources, span

    def seen_as(self, dtype: ir.DataType, shape: tuple[int, ...]) -> Self:
        """The same bytes in another type and shape."""
        return type(self)(self.name or "", dtype, shape, self.blocks, self.sources, self.span)

    def _whole(self) -> ir.TensorProtocol:
        data = np.concatenate([block.reshape(-1).view(np.uint8) for block in self.blocks()])
        if self.dtype.bitwidth < 8:
            return ir.PackedTensor(data, self.dtype, shape=self.shape, name=self.name)
        return ir.Tensor(data.view(self.dtype.numpy()).reshape(self.shape.numpy()), name=self.name)
