from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import checkpoints
from cabochon.checkpoint.header import read_header
from cabochon.checkpoint.tensor import BITS, Tensor
from cabochon.errors import TensorError


def test_bf16_is_a_read_only_view_and_nothing_is_copied(tmp_path):
    values = np.array([[1.5, -2.0]], ml_dtypes.bfloat16)
    file = tmp_path / "model.safetensors"
    checkpoints.write(
        file, {"a": ("BF16", [1, 2], values.tobytes()), "b": ("BF16", [], values[0, :1].tobytes())}
    )
    tensors = read_header(file)
    array = tensors["a"].array()
    assert array.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(array, values)
    assert not array.flags.writeable and not array.flags.owndata
    assert np.shares_memory(array, tensors["a"].raw()), "one map serves every view"
    assert tensors["b"].array() == ml_dtypes.bfloat16(1.5)
    assert bytes(tensors["a"].raw()) == values.tobytes()


def test_a_file_that_was_replaced_is_mapped_anew(tmp_path):
    file = tmp_path / "model.safetensors"
    for value in (b"one", b"three"):
        checkpoints.write(file, {"a": ("U8", [len(value)], value)})
        assert bytes(read_header(file)["a"].raw()) == value


@pytest.mark.parametrize(("dtype", "itemsize"), [("I64", 8), ("F64", 8), ("BOOL", 1), ("U16", 2), ("F16", 2)])
def test_every_plain_dtype_can_be_viewed(tmp_path, dtype, itemsize):
    file = tmp_path / "model.safetensors"
    checkpoints.write(file, {"a": (dtype, [3], b"\1" * (3 * itemsize))})
    assert read_header(file)["a"].array().itemsize == itemsize
    assert BITS[dtype] == 8 * itemsize


def test_eight_bit_floats_are_refused_with_a_remedy(tmp_path):
    file = tmp_path / "model.safetensors"
    checkpoints.write(file, {"a": ("F8_E4M3", [2], b"12")})
    with pytest.raises(TensorError, match="F8_E4M3") as caught:
        read_header(file)["a"].array()
    assert "unquantized" in caught.value.remedy


def test_a_tensor_is_a_value():
    one = Tensor("a", "U8", (1,), Path("f"), 8, 1)
    assert one == Tensor("a", "U8", (1,), Path("f"), 8, 1)
    assert hash(one) == hash(Tensor("a", "U8", (1,), Path("f"), 8, 1))
