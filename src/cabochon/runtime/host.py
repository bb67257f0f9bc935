"""Values in host memory."""

import numpy as np
import onnxruntime as ort

__all__ = ["held"]

TYPES = {  # as onnx.TensorProto counts them
    np.dtype(np.float32): 1,
    np.dtype(np.int64): 7,
    np.dtype(np.bool_): 9,
    np.dtype(np.float16): 10,
}


def held(array: np.ndarray) -> ort.OrtValue:
    """A C-contiguous array as a value, which any graph takes: the array itself, kept alive.

    Naming the type spares onnxruntime the device, which takes it twice as long to make as the value.
    """
    if array.dtype not in TYPES:
        return ort.OrtValue.ortvalue_from_numpy(array)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, TYPES[array.dtype])
