"""A tensor of a safetensors file: where its bytes lie, and a view of them that copies nothing."""

import mmap
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from cabochon.errors import TensorError

__all__ = ["BITS", "Tensor"]

# Bits of one element of every dtype that the safetensors format knows (its `Dtype`, version 0.6).
BITS: dict[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip

# The dtypes that a checkpoint of ours may hold in other than quantized form, and what numpy calls them.
_NUMPY: dict[str, str] = {
    "BOOL": "?", "U8": "<u1", "I8": "<i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4",
    "U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8", "C64": "<c8",
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """A tensor as its file's header describes it; `offset` and `nbytes` address its bytes in `file`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    offset: int
    nbytes: int

    def array(self) -> np.ndarray:
        """The values, shape `self.shape`: a read-only view of the memory map. BF16 is `ml_dtypes.bfloat16`.

        Raises TensorError where numpy has no such dtype (the 8-bit floats and below).
        """
        return self.raw().view(self._numpy_dtype()).reshape(self.shape)

    def raw(self) -> np.ndarray:
        """The bytes, uint8 [nbytes]: a read-only view of the memory map."""
        stat = self.file.stat()
        return _mapped(self.file, stat.st_size, stat.st_mtime_ns)[self.offset : self.offset + self.nbytes]

    def _numpy_dtype(self) -> np.dtype:
        if self.dtype == "BF16":
            import ml_dtypes

            return np.dtype(ml_dtypes.bfloat16)
        if self.dtype not in _NUMPY:
            raise TensorError(
                f"values of dtype {self.dtype} cannot be viewed; expected BF16, {', '.join(_NUMPY)}",
                at=f"{self.file.name}: {self.name}",
                remedy="give the unquantized checkpoint (bf16, f16 or f32)",
            )
        return np.dtype(_NUMPY[self.dtype])


@lru_cache(maxsize=64)
def _mapped(file: Path, size: int, changed: int) -> np.ndarray:
    """The whole file as bytes, mapped once for as long as it has this size and time of change."""
    with file.open("rb") as opened:
        return np.frombuffer(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
