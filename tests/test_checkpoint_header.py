import numpy as np
import pytest

import checkpoints
from cabochon.checkpoint.header import read_header
from cabochon.errors import SourceError, TensorError, UnsupportedError

BYTE = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}


def entry(**changed):
    return {"a": BYTE | changed}


def second(start, end):
    return entry() | {"b": BYTE | {"shape": [end - start], "data_offsets": [start, end]}}


BROKEN = {
    "empty file": (b"", SourceError, "the file is empty"),
    "ends inside the length": (b"\x02\0\0", SourceError, "ends after 3 bytes"),
    "lfs pointer": (checkpoints.POINTER, SourceError, "Git LFS pointer"),
    "gguf": (b"GGUF\x03\0\0\0\0\0\0\0", UnsupportedError, "GGUF"),
    "zip": (b"PK\x03\x04" + b"\0" * 20, UnsupportedError, "pickle archive"),
    "pickle": (b"\x80\x02}q\x00(X\x05\x00\x00", UnsupportedError, "pickle"),
    "web page": (b"<!DOCTYPE html><html></html>", SourceError, "web page"),
    "absurd length": (checkpoints.raw(b"{}", length=1 << 62), SourceError, "safetensors allows 100000000"),
    "length beyond the file": (
        checkpoints.raw(b"{}", length=500),
        SourceError,
        "the header claims 500 bytes",
    ),
    "no brace": (checkpoints.raw(b"[]"), SourceError, "does not begin with '{'"),
    "not JSON": (checkpoints.raw(b"{'a': 1}"), SourceError, "not JSON"),
    "not UTF-8": (checkpoints.raw(b'{"\xff": 1}'), SourceError, "not UTF-8"),
    "nested too deeply": (checkpoints.raw(b'{"a":' * 100_000), SourceError, "nested too deeply"),
    "huge number": (checkpoints.raw(b'{"a":' + b"9" * 5000 + b"}"), SourceError, "the header is broken"),
    "NaN": (checkpoints.raw(b'{"a": NaN}'), SourceError, "NaN"),
    "duplicate key": (checkpoints.raw(b'{"a": 1, "a": 1}'), SourceError, "'a' is given twice"),
    "metadata": (checkpoints.raw({"__metadata__": {"format": 1}}), SourceError, "__metadata__"),
    "entry is a list": (checkpoints.raw({"a": [1]}), TensorError, "expected the keys dtype, shape"),
    "entry lacks a key": (checkpoints.raw({"a": {"dtype": "U8", "shape": [0]}}), TensorError, "data_offsets"),
    "entry has one more": (checkpoints.raw(entry(x=1), b"1234"), TensorError, "expected the keys"),
    "unknown dtype": (
        checkpoints.raw(entry(dtype="Q4"), b"1234"),
        TensorError,
        "dtype 'Q4'; expected one of",
    ),
    "dtype is a number": (checkpoints.raw(entry(dtype=7), b"1234"), TensorError, "unknown dtype 7"),
    "negative shape": (checkpoints.raw(entry(shape=[-4]), b"1234"), TensorError, "[-4]"),
    "shape of booleans": (checkpoints.raw(entry(shape=[True, 4]), b"1234"), TensorError, "[True, 4]"),
    "shape of fractions": (checkpoints.raw(entry(shape=[4.0]), b"1234"), TensorError, "[4.0]"),
    "overflowing shape": (checkpoints.raw(entry(shape=[2**40, 2**40]), b"1234"), TensorError, "overflows"),
    "size of the data": (checkpoints.raw(entry(shape=[5]), b"1234"), TensorError, "U8 of shape [5] takes 5"),
    "offsets reversed": (checkpoints.raw(entry(data_offsets=[4, 0]), b"1234"), TensorError, "start <= end"),
    "offsets negative": (checkpoints.raw(entry(data_offsets=[-4, 0]), b"1234"), TensorError, "start <= end"),
    "one offset": (checkpoints.raw(entry(data_offsets=[4]), b"1234"), TensorError, "start <= end"),
    "does not start at 0": (
        checkpoints.raw(entry(data_offsets=[2, 6]), b"123456"),
        TensorError,
        "after the header",
    ),
    "overlap": (checkpoints.raw(second(2, 6), b"123456"), TensorError, "overlaps a, which ends at 4"),
    "gap": (checkpoints.raw(second(5, 9), b"123456789"), TensorError, "a gap after a, which ends at 4"),
    "truncated data": (checkpoints.raw(entry(), b"123"), SourceError, "truncated: the file has"),
    "trailing bytes": (checkpoints.raw(entry(), b"12345"), SourceError, "1 bytes trail the last tensor"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_fault_has_its_own_error(tmp_path, name):
    content, kind, message = BROKEN[name]
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(SourceError) as caught:
        read_header(file)
    assert type(caught.value) is kind
    assert message in str(caught.value)
    assert str(caught.value).startswith("model.safetensors")
    assert caught.value.remedy


def test_the_error_names_the_tensor(tmp_path):
    file = tmp_path / "blob"
    file.write_bytes(checkpoints.raw(second(2, 6), b"123456"))
    with pytest.raises(TensorError, match="overlaps"):
        read_header(file)
    with pytest.raises(TensorError) as caught:
        read_header(file, "model.safetensors")
    assert caught.value.at == "model.safetensors: b"


def test_a_length_that_begins_like_another_kind_is_read(tmp_path):
    """A header of 0x3C bytes begins with '<', one of 0x80 bytes as a pickle does."""
    for length in (0x3C, 0x80):
        file = tmp_path / f"{length}.safetensors"
        file.write_bytes(checkpoints.raw(b'{"__metadata__":{}}'.ljust(length)))
        assert read_header(file) == {}


def test_tensors_are_views_of_the_file(tmp_path):
    file = tmp_path / "model.safetensors"
    values = np.arange(6, dtype="<f4").reshape(2, 3)
    checkpoints.write(
        file, {"x": ("U8", [3], b"abc"), "y": ("F32", [2, 3], values.tobytes()), "z": ("F16", [0], b"")}
    )
    tensors = read_header(file)
    assert list(tensors) == ["x", "y", "z"]
    assert (tensors["y"].dtype, tensors["y"].shape, tensors["y"].nbytes) == ("F32", (2, 3), 24)
    assert file.read_bytes()[tensors["y"].offset :] == values.tobytes()
    np.testing.assert_array_equal(tensors["y"].array(), values)
    assert tensors["z"].array().shape == (0,)
