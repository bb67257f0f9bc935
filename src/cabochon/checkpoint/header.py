"""The header of a safetensors file, read strictly: every byte of the file is accounted for.

    u64 little-endian n | n bytes of JSON {name: {dtype, shape, data_offsets}} | the data, without gaps

Format: https://huggingface.co/docs/safetensors (the length of the header is at most 100 MB).
"""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cabochon.checkpoint.refusals import refuse_pointer
from cabochon.checkpoint.tensor import BITS, Tensor
from cabochon.errors import SourceError, TensorError, UnsupportedError
from cabochon.strict_json import parse_object

__all__ = ["read_header"]

HEADER_LIMIT = 100_000_000
_DOWNLOAD = "download the file again"


def read_header(file: Path, name: str | None = None) -> dict[str, Tensor]:
    """The tensors of `file`, by name. Only the header is read.

    `name` is what errors call the file (a link's name says more than that of the blob it leads to).
    Raises SourceError or TensorError for a broken file, UnsupportedError for one of another kind.
    """
    called = name or file.name
    size = file.stat().st_size
    with file.open("rb") as opened:
        start = opened.read(1024)
        _refuse_other_kinds(start, size, called)
        length = _header_length(start, size, called)
        opened.seek(8)
        text = opened.read(length)
    try:
        entries = parse_object(text)
    except ValueError as error:
        raise SourceError(f"the header is broken: {error}", at=called, remedy=_DOWNLOAD) from None
    _check_metadata(entries.pop("__metadata__", {}), called)
    tensors = [_tensor(key, entry, file, 8 + length, called) for key, entry in entries.items()]
    _check_layout(tensors, 8 + length, size, called)
    return {tensor.name: tensor for tensor in tensors}


_PICKLE = ("which can run code when it is opened", "save the model as safetensors")
_OTHER_KINDS: tuple[tuple[bytes, type[SourceError], str, str], ...] = (
    (
        b"GGUF",
        UnsupportedError,
        "a GGUF file",
        "give the original checkpoint in safetensors (bf16, f16 or f32)",
    ),
    (b"PK\x03\x04", UnsupportedError, f"a pickle archive, {_PICKLE[0]}", _PICKLE[1]),
    (b"\x80", UnsupportedError, f"a pickle, {_PICKLE[0]}", _PICKLE[1]),
    (b"<", SourceError, "a web page, not data", _DOWNLOAD + "; the server may have asked for a login"),
)


def _refuse_other_kinds(start: bytes, size: int, called: str) -> None:
    if size == 0:
        raise SourceError("the file is empty; expected a safetensors file", at=called, remedy=_DOWNLOAD)
    refuse_pointer(start, called)
    for magic, kind, what, remedy in _OTHER_KINDS:
        # One byte may as well begin a length: then the header follows at byte 8.
        if start.startswith(magic) and start[8:9] != b"{":
            raise kind(f"this is {what}", at=called, remedy=remedy)


def _header_length(start: bytes, size: int, called: str) -> int:
    if size < 10:
        raise SourceError(f"the file ends after {size} bytes, inside the header", at=called, remedy=_DOWNLOAD)
    length = int.from_bytes(start[:8], "little")
    if length > HEADER_LIMIT:
        raise SourceError(
            f"the header claims {length} bytes; safetensors allows {HEADER_LIMIT}: not a safetensors file",
            at=called, remedy=_DOWNLOAD,
        )  # fmt: skip
    if 8 + length > size:
        raise SourceError(
            f"truncated: the header claims {length} bytes, the file has {size}", at=called, remedy=_DOWNLOAD
        )
    if start[8:9] != b"{":
        raise SourceError(
            "the header does not begin with '{'; not a safetensors file", at=called, remedy=_DOWNLOAD
        )
    return length


def _check_metadata(metadata: Any, called: str) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise SourceError("__metadata__ is not an object of strings", at=called, remedy=_DOWNLOAD)


def _tensor(name: str, entry: Any, file: Path, data: int, called: str) -> Tensor:
    def wrong(what: str) -> TensorError:
        return TensorError(what, at=f"{called}: {name}", remedy=_DOWNLOAD + ", or save the checkpoint again")

    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise wrong(f"the entry is {entry!r:.200}; expected the keys dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise wrong(f"unknown dtype {dtype!r}; expected one of {', '.join(BITS)}")
    if not _counts(shape):
        raise wrong(f"the shape {shape!r:.200} is not a list of sizes from 0 upwards")
    if math.prod(shape) * BITS[dtype] >= 2**66:
        raise wrong(f"the shape {shape} overflows: more elements than a file can hold")
    if not _counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise wrong(f"data_offsets are {offsets!r:.200}; expected [start, end] with start <= end")
    nbytes = offsets[1] - offsets[0]
    if nbytes * 8 != math.prod(shape) * BITS[dtype]:
        takes = f"{math.prod(shape) * BITS[dtype] / 8:.15g}"
        raise wrong(f"{nbytes} bytes are stored; {dtype} of shape {shape} takes {takes}")
    return Tensor(name, dtype, tuple(shape), file, data + offsets[0], nbytes)


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and size >= 0 for size in value)


def _check_layout(tensors: Iterable[Tensor], data: int, size: int, called: str) -> None:
    """Tensors lie end to end from `data` to the end of the file at `size` (both in bytes)."""
    end, before = data, "the header"
    for tensor in sorted(tensors, key=lambda tensor: (tensor.offset, tensor.offset + tensor.nbytes)):
        if tensor.offset != end:
            what = "overlaps" if tensor.offset < end else "leaves a gap after"
            raise TensorError(
                f"starts at byte {tensor.offset - data} of the data and {what} {before}, "
                f"which ends at {end - data}",
                at=f"{called}: {tensor.name}",
                remedy=_DOWNLOAD + ", or save the checkpoint again",
            )
        end, before = tensor.offset + tensor.nbytes, tensor.name
    if size < end:
        raise SourceError(
            f"truncated: the file has {size} bytes, its header promises {end}", at=called, remedy=_DOWNLOAD
        )
    if size > end:
        raise SourceError(
            f"{size - end} bytes trail the last tensor: the file has {size} bytes, its header promises {end}",
            at=called, remedy=_DOWNLOAD,
        )  # fmt: skip
