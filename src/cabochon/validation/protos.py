"""Types and ports as protobuf has them. onnx_ir knows them too, but takes most of a second to import."""

from collections.abc import Collection, Iterable, Mapping
from functools import cache

import numpy as np
import onnx
from onnx import GraphProto, TensorProto, ValueInfoProto

from cabochon.errors import PackageError
from cabochon.metadata.ports import Port, Ports

__all__ = ["bits", "dtype", "name", "ports"]

_NARROW = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2}  # several elements in a byte


@cache
def dtype(data_type: int) -> np.dtype | None:
    """numpy's type of a tensor's data type; None for one that is not known, and for text."""
    if data_type == TensorProto.STRING:
        return None
    try:
        return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(data_type))
    except (KeyError, TypeError, ValueError):
        return None


@cache
def name(data_type: int) -> str:
    """numpy's name of a data type, "string" for text, and of one that is not known its number."""
    found = dtype(data_type)
    if found is not None:
        return found.name
    return "string" if data_type == TensorProto.STRING else f"type {data_type}"


@cache
def bits(data_type: int) -> int:
    """Bits of one element; 0 for text and for a type that is not known."""
    found = dtype(data_type)
    return 0 if found is None else _NARROW.get(found.name, 8 * found.itemsize)


def ports(graph: GraphProto, at: str) -> Ports:
    """The ports of a graph. Raises PackageError for one without a name, an element type or a rank."""
    optional = {tensor.name for tensor in graph.initializer}
    return Ports(_ports(graph.input, optional, at), _ports(graph.output, (), at))


def _ports(values: Iterable[ValueInfoProto], optional: Collection[str], at: str) -> Mapping[str, Port]:
    return {value.name: _port(value, value.name in optional, at) for value in values}


def _port(value: ValueInfoProto, optional: bool, at: str) -> Port:
    where = f"{at}: {value.name}"
    if not value.name:
        raise PackageError("a port has no name; expected one", at=at)
    if not value.type.HasField("tensor_type"):
        raise PackageError("its type is no dense tensor; expected one", at=where)
    tensor = value.type.tensor_type
    if dtype(tensor.elem_type) is None and tensor.elem_type != TensorProto.STRING:
        raise PackageError(f"its element type is {tensor.elem_type}; expected one that is defined", at=where)
    if not tensor.HasField("shape"):
        raise PackageError("its rank is not known; expected a shape", at=where)
    shape = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param for d in tensor.shape.dim)
    return Port(value.name, name(tensor.elem_type), shape, optional)
