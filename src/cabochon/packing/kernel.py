"""The compiled path: kernel.c, built with the package where there is a C compiler, called outside of Python's lock."""

import ctypes
from functools import cache
from pathlib import Path

import numpy as np

from cabochon.compiled import library

from .nf4 import BETWEEN
from .scheme import Scheme
from .search import steps

__all__ = ["TYPES", "blocks", "loaded", "nf4"]

TYPES = {"bfloat16": 0, "float16": 1, "float32": 2}
_INT, _LONG, _FLOAT, _ARRAY = ctypes.c_int32, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
_FUNCTIONS = {
    "cabochon_blocks_1": [_ARRAY, _INT, _LONG, _LONG, *[_INT] * 4, _ARRAY, _INT, _FLOAT, *[_ARRAY] * 4],
    "cabochon_nf4_1": [_ARRAY, _INT, _LONG, _INT, _INT, _ARRAY, _FLOAT, _ARRAY, _ARRAY],
}


@cache
def loaded() -> ctypes.CDLL | None:
    """The functions of kernel.c; None where it was not built, or not from this source."""
    return library(Path(__file__).with_name("kernel.c"), _FUNCTIONS)


def blocks(
    found: ctypes.CDLL,
    values: np.ndarray,
    scheme: Scheme,
    limit: float,
    importance: np.ndarray | None,
    out: tuple[np.ndarray, ...],
) -> bool:
    """Packs contiguous `values` [rows, columns] into `out`: codes, scales, a byte for each zero point.

    False where a number is not finite or not below `limit` in size.
    """
    levels = steps(scheme)
    shape = (*values.shape, scheme.block, scheme.bits, scheme.symmetric, scheme.scales == "f16")
    weights = None if importance is None else importance.ctypes.data
    return not found.cabochon_blocks_1(
        values.ctypes.data, TYPES[values.dtype.name], *shape, levels.ctypes.data, len(levels), limit, weights,
        *(array.ctypes.data for array in out),
    )  # fmt: skip


def nf4(
    found: ctypes.CDLL, values: np.ndarray, scheme: Scheme, limit: float, out: tuple[np.ndarray, ...]
) -> bool:
    """The same of NF4: contiguous `values` [blocks, block] into codes and scales."""
    return not found.cabochon_nf4_1(
        values.ctypes.data, TYPES[values.dtype.name], *values.shape, scheme.scales == "f16",
        BETWEEN.ctypes.data, limit, *(array.ctypes.data for array in out),
    )  # fmt: skip
