"""The f32 twin of a package: its own graph and its own bytes, every half-precision value widened to f32.

Widening is exact, so what the twin computes differs from the package only in the rounding of intermediates.
It runs where no runtime runs the package (bf16 on a CPU), and its errors are small enough for strict limits.

Weights in blocks keep their codes, byte by byte; their scales are widened, and the kernels that multiply with them are
asked not to round what they multiply: in the node, and where onnxruntime fuses DequantizeLinear and MatMul into one of
its own, in the session (`exactly`).
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from cabochon.errors import ParityError
from cabochon.runtime.folder import graph_file
from cabochon.runtime.ports import PREFIX
from cabochon.runtime.properties import IR, said

__all__ = [
    "exactly",
    "is_drafter",
    "is_full",
    "read_graph",
    "read_properties",
    "widen",
    "widen_full",
    "widen_pair",
]

BLOCK = 1 << 22  # elements
ALIGNMENT = 4096
TYPE_ATTRIBUTES = {("Cast", "to")}
TWIN = "exact_twin"
ACCURACY = "session.qdq_matmulnbits_accuracy_level"
"""onnxruntime: of the kernels that it fuses from DequantizeLinear and MatMul; 4, its default, is int8."""


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
    return read_properties(package).get("cabochon.model") == "drafter"


def read_properties(package: Path) -> dict[str, str]:
    """The metadata properties of the graph in a folder. Raises ParityError for what is no package."""
    file = graph_file(package)
    if file is not None and file.suffix == IR:
        return {PREFIX + key: value for key, value in said(file).items() if key != "axes"}
    return {item.key: item.value for item in read_graph(package).metadata_props}


def widen(package: Path, folder: Path, name: str = "model.onnx") -> Path:
    """Writes the twin of a graph into `folder` and returns its path; takes the bytes of all weights in f32."""
    import onnx

    model = read_graph(package, name)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.data").open("wb") as file:
        data = _Data(package, file)
        for graph in _graphs(model.graph):
            _retype(graph)
            for tensor in graph.initializer:
                if tensor.external_data:
                    data.widen(tensor)
                else:
                    _widen_inline(tensor)
    model.metadata_props.append(onnx.StringStringEntryProto(key=TWIN, value="true"))
    onnx.save_model(model, str(folder / name))
    return folder / name


def exactly(graph: Path) -> dict[str, str]:
    """The entries of a session's configuration without which a twin is not exact; none for any other graph."""
    twin = any(item.key == TWIN for item in read_graph(graph.parent, graph.name).metadata_props)
    return {ACCURACY: "0"} if twin else {}


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
    return graph_file(package / "decoder") is not None


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
    said = {item.key: item for item in model.metadata_props}
    for key in ("cabochon.activations", "cabochon.precision"):
        if key in said:
            said[key].value = "f32"
            break
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
    """Half-precision types of ports, values, casts and constants become f32, and no kernel rounds to int8."""
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
            if (node.op_type, attribute.name) == ("MatMulNBits", "accuracy_level"):
                attribute.i = 0


def _widen_inline(tensor: Any) -> None:
    import onnx

    if _half(tensor.data_type):
        array = onnx.numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))


class _Data:
    """The twin's data file. What several tensors read from one range of the package is written once."""

    def __init__(self, package: Path, file: BinaryIO) -> None:
        self._package, self._file = package, file
        self._placed: dict[tuple[Any, ...], dict[str, Any]] = {}

    def widen(self, tensor: Any) -> None:
        """Copies one tensor's bytes, halves widened, and points the tensor at them."""
        import onnx

        entry = {item.key: item.value for item in tensor.external_data}
        source = (self._package / entry["location"]).resolve()
        if self._package.resolve() not in source.parents:
            raise ParityError(
                f"tensor {tensor.name} lies outside the package, in {source}",
                at=str(self._package / "model.onnx"),
            )
        half, size = _half(tensor.data_type), _bytes(tensor)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type) if half else np.dtype(np.uint8)
        key = (source, int(entry.get("offset", 0)), dtype, size // dtype.itemsize)
        placed = self._placed[key] if key in self._placed else self._copied(*key)
        self._placed[key] = placed
        if half:
            tensor.data_type = onnx.TensorProto.FLOAT
        del tensor.external_data[:]
        tensor.external_data.extend(
            onnx.StringStringEntryProto(key=name, value=str(value)) for name, value in placed.items()
        )

    def _copied(self, source: Path, offset: int, dtype: np.dtype[Any], count: int) -> dict[str, Any]:
        data = self._file
        data.write(b"\0" * (-data.tell() % ALIGNMENT))
        start, wide = data.tell(), dtype if dtype == np.uint8 else np.dtype(np.float32)
        for block in _blocks(source, offset, dtype, count):
            data.write(block.astype(wide, copy=False).tobytes())
        return {"location": Path(data.name).name, "offset": start, "length": data.tell() - start}


def _bytes(tensor: Any) -> int:
    """Of a tensor outside of the graph's file; codes of four bits stand two in a byte."""
    from onnx import TensorProto, helper

    count = int(np.prod(tensor.dims, dtype=np.int64))
    if tensor.data_type in (TensorProto.UINT4, TensorProto.INT4):
        return (count + 1) // 2
    return count * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def _blocks(path: Path, offset: int, dtype: np.dtype[Any], count: int) -> Iterator[np.ndarray]:
    with path.open("rb") as file:
        file.seek(offset)
        for start in range(0, count, BLOCK):
            want = min(BLOCK, count - start)
            block = np.fromfile(file, dtype, want)
            if len(block) != want:
                raise ParityError(
                    f"ends before the {count * dtype.itemsize} bytes that model.onnx names at offset {offset}",
                    at=str(path),
                )
            yield block


def _half(data_type: int) -> bool:
    from onnx import TensorProto

    return data_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
