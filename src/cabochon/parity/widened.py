"""The f32 twin of a package: its own graph and its own bytes, every half-precision value widened to f32.

Widening is exact, so what the twin computes differs from the package only in the rounding of intermediates.
It runs where no runtime runs the package (bf16 on a CPU), and its errors are small enough for strict limits.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from cabochon.errors import ParityError

__all__ = ["is_drafter", "is_full", "read_graph", "widen", "widen_full", "widen_pair"]

BLOCK = 1 << 22  # elements
ALIGNMENT = 4096
TYPE_ATTRIBUTES = {("Cast", "to")}


def read_graph(package: Path, name: str = "model.onnx") -> Any:
    """The onnx ModelProto of a package without its external data."""
    import onnx

    path = package / name
    try:
        return onnx.load_model(str(path), load_external_data=False)
    except Exception as error:  # a protobuf error or an OSError
        raise ParityError(f"cannot be read as an ONNX model: {error}", at=str(path)) from error


def is_drafter(package: Path) -> bool:
    """True for a drafter, alone or in a pair. Raises ParityError for what is no package."""
    return any((p.key, p.value) == ("cabochon.model", "drafter") for p in read_graph(package).metadata_props)


def widen(package: Path, folder: Path, name: str = "model.onnx") -> Path:
    """Writes the twin of a graph into `folder` and returns its path; takes the bytes of all weights in f32."""
    import onnx

    model = read_graph(package, name)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.data").open("wb") as data:
        for graph in _graphs(model.graph):
            _retype(graph)
            for tensor in graph.initializer:
                if tensor.external_data:
                    _widen_external(tensor, package, data)
                else:
                    _widen_inline(tensor)
    onnx.save_model(model, str(folder / name))
    return folder / name


def widen_pair(pair: Path, folder: Path) -> Path:
    """Writes the twins of a drafter, its target and the look-up of tokens into `folder`: a pair in f32, as it says."""
    for name in ("model.onnx", "token_embedding.onnx"):
        _say_f32(widen(pair, folder, name))
    if is_full(pair / "target"):
        widen_full(pair / "target", folder / "target")
    else:
        _say_f32(widen(pair / "target", folder / "target"))
    return folder


def is_full(package: Path) -> bool:
    """True for a package of several components, each in a folder of its own."""
    return (package / "decoder" / "model.onnx").is_file()


def widen_full(package: Path, folder: Path) -> Path:
    """Writes the twins of all components into `folder`, and the files around them: a full package in f32."""
    for path in sorted(package.glob("*/model.onnx")):
        _say_f32(widen(path.parent, folder / path.parent.name))
    for path in package.iterdir():
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
    return folder


def _say_f32(path: Path) -> None:
    import onnx

    model = onnx.load_model(str(path), load_external_data=False)
    for item in model.metadata_props:
        if item.key == "cabochon.precision":
            item.value = "f32"
    onnx.save_model(model, str(path))


def _graphs(graph: Any) -> Iterator[Any]:
    """A graph and those inside its If and Loop nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                if inner.node:
                    yield from _graphs(inner)


def _retype(graph: Any) -> None:
    """Half-precision types of ports, values, casts and constants become f32."""
    from onnx import TensorProto

    halves = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    for value in [*graph.input, *graph.output, *graph.value_info]:
        if value.type.tensor_type.elem_type in halves:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                _widen_inline(attribute.t)
            if (node.op_type, attribute.name) in TYPE_ATTRIBUTES and attribute.i in halves:
                attribute.i = TensorProto.FLOAT


def _widen_inline(tensor: Any) -> None:
    import onnx

    if _half(tensor.data_type):
        array = onnx.numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


def _widen_external(tensor: Any, package: Path, data: BinaryIO) -> None:
    """Copies one tensor's bytes into the twin's data file, widened, and points the tensor at them."""
    import onnx

    entry = {item.key: item.value for item in tensor.external_data}
    source = (package / entry["location"]).resolve()
    if package.resolve() not in source.parents:
        raise ParityError(
            f"tensor {tensor.name} lies outside the package, in {source}", at=str(package / "model.onnx")
        )
    data.write(b"\0" * (-data.tell() % ALIGNMENT))
    start, half = data.tell(), _half(tensor.data_type)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    count = int(np.prod(tensor.dims, dtype=np.int64))
    for block in _blocks(source, int(entry.get("offset", 0)), dtype, count):
        data.write(block.astype(np.float32 if half else dtype, copy=False).tobytes())
    if half:
        tensor.data_type = onnx.TensorProto.FLOAT
    placed = {"location": Path(data.name).name, "offset": start, "length": data.tell() - start}
    del tensor.external_data[:]
    tensor.external_data.extend(
        onnx.StringStringEntryProto(key=key, value=str(value)) for key, value in placed.items()
    )


def _blocks(path: Path, offset: int, dtype: np.dtype[Any], count: int) -> Iterator[np.ndarray]:
    with path.open("rb") as file:
        file.seek(offset)
        for start in range(0, count, BLOCK):
            want = min(BLOCK, count - start)
            block = np.fromfile(file, dtype, want)
            if len(block) != want:
                raise ParityError(
                    f"ends before the {count} values that model.onnx names at offset {offset}", at=str(path)
                )
            yield block


def _half(data_type: int) -> bool:
    from onnx import TensorProto

    return data_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
