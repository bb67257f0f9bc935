"""What is checked of a package before it gets its name, without reading the weights back."""

import stat
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

import onnx
import onnx_ir as ir

from cabochon.errors import PackageError
from cabochon.package.layout import GRAPH

__all__ = ["check_graph", "external_ranges"]

_INLINE_LIMIT = 1 << 16  # bytes; more than any constant of a graph, less than any matrix


def check_graph(folder: Path, weights: Iterable[str] = ()) -> None:
    """Check model.onnx in `folder` and the bytes it refers to. `weights` must all be external.

    Every reference must be to a regular file in the folder, at a multiple of the element's size, within the
    file, and of exactly the bytes that shape and type take. Raises PackageError with every fault.
    """
    proto = onnx.load(folder / GRAPH, load_external_data=False)
    external = {tensor.name for tensor in proto.graph.initializer if _is_external(tensor)}
    faults = [f"{name}: its bytes are inside {GRAPH}" for name in weights if name not in external]
    faults += [fault for tensor in proto.graph.initializer for fault in _faults(folder, tensor)]
    try:
        onnx.checker.check_model(_without_weights(proto))
    except onnx.checker.ValidationError as error:
        faults.append(f"onnx.checker: {str(error).strip().splitlines()[0]}")
    if faults:
        shown = "\n".join(faults[:20])
        raise PackageError(
            f"{len(faults)} faults in the graph that was written:\n{shown}", at=str(folder / GRAPH),
            remedy="this is a fault of cabochon, or of the disk: report it",
        )  # fmt: skip


def external_ranges(proto: onnx.ModelProto) -> Iterator[tuple[str, str, int, int]]:
    """Of every external initializer: its name, the file, the offset and the length in bytes."""
    for tensor in proto.graph.initializer:
        if _is_external(tensor):
            yield tensor.name, *_reference(tensor)


def _reference(tensor: onnx.TensorProto) -> tuple[str, int, int]:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    return entries["location"], int(entries.get("offset", 0)), int(entries.get("length", -1))


def _is_external(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL


def _faults(folder: Path, tensor: onnx.TensorProto) -> Iterator[str]:
    dtype = ir.DataType(tensor.data_type)
    count = 1
    for size in tensor.dims:
        count *= size
    expected = -(-count * dtype.bitwidth // 8)
    if not _is_external(tensor):
        if expected > _INLINE_LIMIT:
            yield f"{tensor.name}: {expected} bytes are inside {GRAPH}"
        return
    location, offset, length = _reference(tensor)
    if PurePosixPath(location).name != location or "\\" in location or location in ("", ".."):
        yield f"{tensor.name}: {location!r} is not the name of a file beside {GRAPH}"
        return
    status = (folder / location).lstat() if (folder / location).exists() else None
    if status is None or not stat.S_ISREG(status.st_mode):
        yield f"{tensor.name}: {location} is not a regular file of the package"
        return
    if offset < 0 or length < 0 or offset + length > status.st_size:
        yield f"{tensor.name}: bytes {offset} to {offset + length} of {location}, which has {status.st_size}"
    if length != expected:
        yield f"{tensor.name}: {length} bytes; {dtype.name} {list(tensor.dims)} takes {expected}"
    if offset % max(dtype.bitwidth // 8, 1):
        yield f"{tensor.name}: byte {offset} of {location} is no multiple of an element's size"


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
            model.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, shape))
    return model
