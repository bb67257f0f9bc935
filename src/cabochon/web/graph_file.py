"""One graph of a package as a browser loads it: its ports, its properties, and the files it needs; no weights."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from cabochon.errors import PackageError
from cabochon.runtime.ports import PREFIX, REBUILD

__all__ = ["GraphFile", "read_graph"]


@dataclass
class Port:
    """A port as onnxruntime describes it (`type` "tensor(float)"): an `Argument`, which `runtime.ports` judges."""

    name: str
    type: str
    shape: list[int | str | None]
    element: str  # numpy's name of it, and that of tensors in a browser: "float32"


@dataclass(frozen=True)
class GraphFile:
    """What the file of a graph says. `data` are its data files, relative to its folder, and how many bytes of each it
    reads; `inputs` must be given, `optional` ones may be; `types` are the element types of everything it holds, by
    numpy's names."""

    path: Path
    metadata: Mapping[str, str]
    inputs: Mapping[str, Port]
    optional: Mapping[str, Port]
    outputs: Mapping[str, Port]
    data: Mapping[str, int]
    types: frozenset[str]

    def property(self, key: str) -> str | None:
        """A `cabochon.*` property."""
        return self.metadata.get(PREFIX + key)

    def width(self, output: str) -> int:
        """The last dimension of an output; PackageError where it is missing or not fixed."""
        size = self.outputs[output].shape[-1] if output in self.outputs else None
        if not isinstance(size, int):
            raise PackageError(f"no output {output!r} of a fixed width", at=str(self.path), remedy=REBUILD)
        return size


def read_graph(path: Path) -> GraphFile:
    """Read a graph without its weights. Raises PackageError for a file that is none."""
    import onnx

    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf raises a class of its own
        raise PackageError(f"not a graph: {error}", at=str(path), remedy=REBUILD) from error
    weights = list(_weights(model.graph))
    given = {port.name: port for port in map(_port, model.graph.input)}
    preset = {weight.name for weight in model.graph.initializer}
    made = {port.name: port for port in map(_port, model.graph.output)}
    return GraphFile(
        path,
        {entry.key: entry.value for entry in model.metadata_props},
        {name: port for name, port in given.items() if name not in preset},
        {name: port for name, port in given.items() if name in preset},
        made,
        _data(path, weights),
        frozenset(
            {port.element for port in (*given.values(), *made.values())} | _types(model.graph, weights)
        ),
    )


def _port(value: Any) -> Port:
    from onnx import TensorProto

    from cabochon.validation import protos

    tensor = value.type.tensor_type
    element = protos.name(tensor.elem_type)
    called = "float" if tensor.elem_type == TensorProto.FLOAT else element
    shape = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
    return Port(value.name, f"tensor({called})", shape, element)


def _weights(graph: Any) -> Iterable[Any]:
    """The initializers of a graph and of those within its nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _weights(attribute.g)


def _types(graph: Any, weights: Iterable[Any]) -> set[str]:
    """Of the weights, and of what nodes convert to."""
    from cabochon.validation import protos

    casts = (a.i for node in graph.node if node.op_type == "Cast" for a in node.attribute if a.name == "to")
    return {protos.name(number) for number in (*casts, *(weight.data_type for weight in weights))}


def _data(path: Path, weights: Iterable[Any]) -> dict[str, int]:
    """The data files in order of first use, and where the last weight in each ends.

    Raises PackageError for one outside of the graph's folder.
    """
    found: dict[str, int] = {}
    for weight in weights:
        said = {entry.key: entry.value for entry in weight.external_data}
        if "location" in said:
            end = sum(int(said[key]) for key in ("offset", "length") if said.get(key, "").isdecimal())
            found[said["location"]] = max(found.get(said["location"], 0), end)
    for name in found:
        location = PurePosixPath(name)
        if location.is_absolute() or ".." in location.parts:
            raise PackageError(
                f"its data file is {name!r}; expected one within its folder", at=str(path), remedy=REBUILD
            )
    return found
