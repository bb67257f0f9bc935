"""What a graph says of its own ports: the authority for every statement of the document."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cabochon.errors import GraphError

if TYPE_CHECKING:
    import onnx_ir as ir  # takes most of a second to import; a validator reads ports without it

__all__ = ["Port", "Ports", "last", "read"]


@dataclass(frozen=True)
class Port:
    """An input or output of a graph."""

    name: str
    dtype: str  # numpy's name: "int64", "float16", "bfloat16", "bool" ...
    shape: tuple[int | str, ...]  # a string is a symbol; "" is a dimension the graph does not name
    optional: bool = False  # an initializer of that name exists: it may be left out


@dataclass(frozen=True)
class Ports:
    """The ports of a graph by name, in the order of the graph."""

    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]


def read(model: "ir.Model") -> Ports:
    """The ports of the main graph. Raises GraphError for one without a name, a tensor type or a rank."""
    graph = model.graph
    return Ports(
        {p.name: p for p in (_port(v, v.name in graph.initializers) for v in graph.inputs)},
        {p.name: p for p in (_port(v, False) for v in graph.outputs)},
    )


def last(port: Port) -> int:
    """The last dimension of a port. Raises GraphError where it is no number."""
    size = port.shape[-1] if port.shape else None
    if not isinstance(size, int):
        raise GraphError(f"its last dimension is {size!r}; expected a number", at=port.name)
    return size


def _port(value: "ir.Value", optional: bool) -> Port:
    import onnx_ir as ir

    if not value.name:
        raise GraphError("a port has no name; expected one")
    if not isinstance(value.type, ir.TensorType):
        raise GraphError(f"its type is {value.type}; expected a dense tensor", at=value.name)
    if value.shape is None:
        raise GraphError("its rank is not known; expected a shape", at=value.name)
    shape = tuple(d if isinstance(d, int) else (d.value or "") for d in value.shape)
    return Port(value.name, _name(value.type.dtype, value.name), shape, optional)


def _name(dtype: "ir.DataType", port: str) -> str:
    import onnx_ir as ir

    if dtype == ir.DataType.STRING:  # numpy calls it an object
        return "string"
    try:
        return dtype.numpy().name
    except TypeError:
        raise GraphError("its element type is not defined; expected one", at=port) from None
