"""The table of precisions."""

from dataclasses import dataclass

import onnx_ir as ir

from cabochon.checkpoint import Tensor
from cabochon.graph import DTYPES, Stored
from cabochon.recipes.cast import cast_blocks

__all__ = ["PRECISIONS", "Precision"]

_HEADER_NAMES = {"f32": "F32", "f16": "F16", "bf16": "BF16"}


@dataclass(frozen=True)
class Precision:
    """One floating type for weights, activations and ports."""

    name: str

    @property
    def dtype(self) -> ir.DataType:
        """The type of ports and activations."""
        return DTYPES[self.name]

    def store(self, name: str, tensor: Tensor, columns: slice | None = None) -> Stored:
        """The tensor, or a slice of the columns of a 2-D tensor, cast to this precision while it is written.

        Rounds to nearest, ties to even. Writing raises TensorError where a finite value would become infinite.
        """
        shape = tensor.shape if columns is None else (tensor.shape[0], columns.stop - columns.start)
        unchanged = columns is None and tensor.dtype == _HEADER_NAMES[self.name]
        return Stored(
            name,
            self.dtype,
            shape,
            lambda: cast_blocks(tensor, self.dtype, columns),
            sources=(tensor,),
            span=(tensor.file, tensor.offset) if unchanged else None,
        )


PRECISIONS = {name: Precision(name) for name in ("f32", "f16", "bf16")}
