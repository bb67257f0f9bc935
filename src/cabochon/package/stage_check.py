"""What is checked of a package before it gets its name, without reading the weights back."""

import math
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from cabochon.errors import PackageError
from cabochon.package.layout import GRAPH

__all__ = ["check_graph", "external_ranges"]

_INLINE_LIMIT = 1 << 16  # bytes; more than any constant of a graph, less than any matrix
_SHOWN = 20  # faults that an error lists


def check_graph(folder: Path, weights: Iterable[str] = ()) -> None:
    """Check model.onnx in `folder` and the bytes it refers to. `weights` must all be external.

    Every reference must be to a regular file in the folder, at a multiple of the element's size, within the
    file, and of exactly the bytes that shape and type take. Raises PackageError with every fault.
    """
    try:
        proto = onnx.load(folder / GRAPH, load_external_data=False)
    except DecodeError as error:
        raise _error(folder, [f"it cannot be parsed: {error}"]) from None
    external = {tensor.name for tensor in proto.graph.initializer if _is_external(tensor)}
    faults = [f"{name}: its bytes are inside {GRAPH}" for name in weights if name not in external]
    for tensor in proto.graph.initializer:
        faults += [f"{tensor.name}: {fault}" for fault in _faults(folder, tensor)]
    try:
        onnx.checker.check_model(_without_weights(proto))
    except onnx.checker.ValidationError as error:
        faults.append(f"onnx.checker: {str(error).strip().splitlines()[0]}")
    if faults:
        raise _error(folder, faults)


def _error(folder: Path, faults: list[str]) -> PackageError:
    shown = "\n".join(faults[:_SHOWN])
    return PackageError(
        f"{len(faults)} faults in the graph that was written:\n{shown}",
        at=str(folder / GRAPH),
        remedy="this is a fault of cabochon, or of the disk: build again, and report it if it stays",
    )


def external_ranges(proto: onnx.ModelProto) -> Iterator[tuple[str, str, int, int]]:
    """Of every external initializer: its name, the file, the offset and the length in bytes."""
    for tensor in proto.graph.initializer:
        if _is_external(tensor):
            yield tensor.name, *_reference(tensor)


def _is_external(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL


def _reference(tensor: onnx.TensorProto) -> tuple[str, int, int]:
    """File, offset and length; the length is -1 where it is not said. Raises ValueError or KeyError."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    return entries["location"], int(entries.get("offset", 0)), int(entries.get("length", -1))


def _faults(folder: Path, tensor: onnx.TensorProto) -> Iterator[str]:
    dtype = ir.DataType(tensor.data_type)
    expected = -(-math.prod(tensor.dims) * dtype.bitwidth // 8)
    if not _is_external(tensor):
        if expected > _INLINE_LIMIT:
            yield f"{expected} bytes are inside {GRAPH}"
        return
    try:
        location, offset, length = _reference(tensor)
    except (KeyError, ValueError):
        said = {entry.key: entry.value for entry in tensor.external_data}
        yield f"the reference {said} is not one"
        return
    if length not in (expected, -1):
        yield f"{length} bytes; {dtype.name} {list(tensor.dims)} takes {expected}"
    if offset % max(dtype.bitwidth // 8, 1):
        yield f"byte {offset} of {location} is no multiple of an element's size"
    yield from _file_faults(folder, location, offset, length)


def _file_faults(folder: Path, location: str, offset: int, length: int) -> Iterator[str]:
    """A plain name of a regular file, which has the bytes from `offset` on. Links are not followed."""
    if location in ("", ".", "..") or "/" in location or "\\" in location:
        yield f"{location!r} is not the name of a file beside {GRAPH}"
        return
    try:
        status = (folder / location).lstat()
    except FileNotFoundError:
        status = None
    if status is None or not stat.S_ISREG(status.st_mode):
        yield f"{location} is not a regular file of the package"
    elif offset < 0 or length < 0 or offset + length > status.st_size:
        yield f"bytes {offset} to {offset + length} of {location}, which has {status.st_size}"


def _without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its external initializers as inputs: onnx's checker would look for their files."""
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    del model.graph.initializer[:]
    given = {value.name for value in model.graph.input}
    for tensor in proto.graph.initializer:
        if not _is_external(tensor):
            model.graph.initializer.append(tensor)
        elif tensor.name not in given:
            shape = list(tensor.dims)
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, shape)
            model.graph.input.append(value)
    return model
