"""The compiled path of casts: cast.c, which gives the bits that numpy gives."""

import ctypes
from functools import cache
from pathlib import Path

import numpy as np

from cabochon.compiled import library

__all__ = ["converted", "loaded"]

_TYPES = {"bfloat16": 0, "float16": 1, "float32": 2}
_INT, _LONG, _ARRAY = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
_FUNCTIONS = {"cabochon_cast_1": [_ARRAY, _INT, _LONG, _LONG, _LONG, _ARRAY, _INT]}


@cache
def loaded() -> ctypes.CDLL | None:
    """The functions of cast.c; None where it was not built, or not from this source."""
    return library(Path(__file__).with_name("cast.c"), _FUNCTIONS)


def converted(found: ctypes.CDLL, values: np.ndarray, target: np.dtype) -> np.ndarray | None:
    """`values`, flat or whole columns of rows, as `target`, C-contiguous; themselves where nothing changes.

    None where a value is no finite number, or none in the type of `target`.
    """
    rows, columns = (1, values.size) if values.ndim == 1 else values.shape
    stride = columns if values.ndim == 1 else values.strides[0] // values.itemsize
    same = values.dtype == target
    result = np.ascontiguousarray(values) if same else np.empty(values.shape, target)
    out = None if same else result.ctypes.data
    source, to = _TYPES[values.dtype.name], _TYPES[target.name]
    wrong = found.cabochon_cast_1(values.ctypes.data, source, rows, columns, stride, out, to)
    return None if wrong else result
