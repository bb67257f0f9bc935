"""A graph of ONNX into OpenVINO's IR: read, told what the IR would forget, written, and every weight compared."""

import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from cabochon import files
from cabochon.errors import PackageError
from cabochon.metadata.ports import Port, Ports
from cabochon.openvino.adapted import Adapted, adapted
from cabochon.openvino.states import made_stateful, require_steps
from cabochon.package.facts import installed
from cabochon.package.layout import GRAPH
from cabochon.runtime.openvino_graph import library
from cabochon.validation.graph import Graph, Weight
from cabochon.validation.net import read_net, weights_of

__all__ = ["SECTION", "TARGET", "require_readable", "write_ir"]

TARGET, SECTION = "openvino-ir", "cabochon"
_PIECE = 4 << 20  # bytes
_COUNTED = re.compile(r"[A-Za-z]+(_\d+)+")  # no weight is called so: its name has dots
# OpenVINO's names of the types that weights have, by numpy's.
_TYPES = {
    "bool": "boolean", "float16": "f16", "float32": "f32", "bfloat16": "bf16", "int4": "i4", "uint4": "u4",
    "int8": "i8", "uint8": "u8", "int32": "i32", "int64": "i64",
}  # fmt: skip


def write_ir(graph: Graph, xml: Path, advance: Callable[[int], object], *, stateful: bool = False) -> None:
    """Convert `graph` into the file `xml` and the weights beside it.

    Raises PackageError where OpenVINO refuses the graph, and where a weight is not stored as the graph has it.
    """
    made = adapted(graph)
    with tempfile.TemporaryDirectory(dir=xml.parent, prefix=".onnx-") as folder:
        model = _read(made, Path(folder))
        _name_ports(model, graph.ports)
        if stateful:
            made_stateful(model)
        _inform(model, graph, stateful)
        _name_nodes(model)
        library().save_model(model, xml, compress_to_fp16=False)
    _compare(made, xml, advance)
    if stateful:
        require_steps(xml)


def require_readable(xml: Path, named: Path) -> None:
    """Raise PackageError, which calls it `named`, for an IR that OpenVINO does not read."""
    try:
        library().Core().read_model(xml)
    except RuntimeError as error:
        raise PackageError(
            f"OpenVINO {installed('openvino')} cannot read it: {error}",
            at=str(named),
            remedy="convert the graph again",
        ) from error


def _read(made: Adapted, folder: Path) -> Any:
    """OpenVINO's model of the graph; it maps weights, which must lie below the folder of the graph."""
    graph = made.graph
    (folder / GRAPH).write_bytes(graph.proto.SerializeToString())
    for name in {w.external.location for w in graph.tensors.values() if w.external and w.external.location}:
        placed, own = folder / name, (graph.root / graph.folder() / name).resolve()
        placed.parent.mkdir(parents=True, exist_ok=True)
        if files.hard_link(own, placed):
            files.copy(own, placed)
    try:
        return library().Core().read_model(folder / GRAPH)
    except RuntimeError as error:
        raise PackageError(
            f"OpenVINO {installed('openvino')} cannot convert it: {error}",
            at=str(graph.root / graph.path),
            remedy="this is a limit of OpenVINO's reader of ONNX, or a fault of cabochon: report it",
        ) from error


def _name_ports(model: Any, ports: Ports) -> None:
    """Exactly the names of the graph, and no others that OpenVINO knows a value by."""
    for found, wanted in ((model.inputs, ports.inputs), (model.outputs, ports.outputs)):
        for port, name in zip(found, wanted, strict=True):
            if name not in port.get_names():
                raise PackageError(f"OpenVINO calls the port {sorted(port.get_names())}", at=name)
            port.get_tensor().set_names({name})


def _name_nodes(model: Any) -> None:
    """Those without a name of their own are called after a counter of the process: it becomes their place in the graph,
    so that every conversion gives the same bytes."""
    for i, node in enumerate(model.get_ordered_ops()):
        if _COUNTED.fullmatch(node.get_friendly_name()):
            node.set_friendly_name(f"{node.get_type_name()}.{i}")
        if hasattr(node, "get_function"):  # the body of a loop
            _name_nodes(node.get_function())


def _inform(model: Any, graph: Graph, stateful: bool) -> None:
    """What IR has no place for: our properties, and the names of dimensions, line by line."""
    said = {key.removeprefix("cabochon."): value for key, value in graph.properties.items()}
    said |= {"target": TARGET} | ({"stateful": "true"} if stateful else {})
    ports = [*graph.ports.inputs.values(), *graph.ports.outputs.values()]  # a state is no port, but has axes
    said["axes"] = "\n".join(_axes(port, stateful) for port in ports)
    for key, value in said.items():
        model.set_rt_info(value, [SECTION, key])


def _axes(port: Port, stateful: bool) -> str:
    shape = ["1" if stateful and size == "batch" else str(size) for size in port.shape]
    return f"{port.name}: {','.join(shape)}"


def _compare(made: Adapted, xml: Path, advance: Callable[[int], object]) -> None:
    """Every weight of the graph is a constant of its name, type, shape and bytes."""
    found = {constant.layer: constant for constant in read_net(xml.parent, xml.name).constants}
    stored = np.memmap(xml.with_name(weights_of(xml.name)), np.uint8, "r")
    for weight in made.weights():
        constant, expected = found.get(weight.name), (_TYPES.get(weight.dtype), weight.shape)
        if constant is None or (constant.dtype, constant.shape) != expected:
            kept = constant and (constant.dtype, constant.shape)
            raise _otherwise(weight, xml, f"is stored as {kept}; the graph has {expected}")
        start = int(constant.offset or 0)
        if not _same(stored[start : start + weight.nbytes], made.raw(weight), advance):
            raise _otherwise(weight, xml, "has other bytes than in the graph")


def _otherwise(weight: Weight, xml: Path, what: str) -> PackageError:
    return PackageError(
        what,
        at=f"{xml.name}: {weight.name}",
        remedy=f"OpenVINO {installed('openvino')} did not keep a weight as it is: report it",
    )


def _same(stored: np.ndarray, own: np.ndarray, advance: Callable[[int], object]) -> bool:
    """Whether two ranges of bytes are the same, looked at piece by piece."""
    for start in range(0, len(own), _PIECE):
        piece = own[start : start + _PIECE]
        if not np.array_equal(piece, stored[start : start + _PIECE]):
            return False
        advance(len(piece))
    return len(own) == len(stored)
