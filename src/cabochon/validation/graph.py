"""One .onnx file as a rule sees it: ports, nodes, weights by name. The bytes of weights stay on the disk."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from cabochon.errors import PackageError
from cabochon.metadata.ports import Ports
from cabochon.validation import protos

__all__ = ["External", "Graph", "Weight", "read_graph"]

_MOST = (1 << 31) - 1  # bytes; protobuf's own limit
REMEDY = "build or download the package again"


@dataclass(frozen=True)
class External:
    """A reference as it is written: `offset` and `length` as text, None where absent. `location` may be anything."""

    location: str | None
    offset: str | None
    length: str | None


@dataclass(frozen=True)
class Weight:
    """An initializer: its type by numpy's name, its shape, and where its bytes are (None: inside the graph)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    external: External | None
    proto: TensorProto

    @property
    def bits(self) -> int:
        """Bits of one element; 0 for a type without a size, such as strings."""
        return protos.bits(self.proto.data_type)

    @property
    def nbytes(self) -> int:
        """The bytes that shape and type take; -1 for a shape that is none."""
        return -(-math.prod(self.shape) * self.bits // 8) if min(self.shape, default=0) >= 0 else -1


@dataclass(frozen=True)
class Graph:
    """A graph of the package. `path` is its file, `ports` its inputs and outputs."""

    root: Path
    path: str
    proto: ModelProto
    ports: Ports

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """The metadata properties of the model."""
        return {entry.key: entry.value for entry in self.proto.metadata_props}

    @cached_property
    def opsets(self) -> Mapping[str, int]:
        """The version of each operator domain; "" is ai.onnx."""
        return {
            "" if entry.domain == "ai.onnx" else entry.domain: entry.version
            for entry in self.proto.opset_import
        }

    @cached_property
    def nodes(self) -> tuple[NodeProto, ...]:
        """Every node, those of subgraphs and functions included, each before what is inside it."""
        inside = _nodes(self.proto.graph.node)
        return (*inside, *(node for function in self.proto.functions for node in _nodes(function.node)))

    @cached_property
    def initializers(self) -> Mapping[str, Weight]:
        """The weights of the main graph by name."""
        return {tensor.name: _weight(tensor) for tensor in self.proto.graph.initializer}

    @cached_property
    def tensors(self) -> Mapping[str, Weight]:
        """Every tensor by where it is: initializers by name, those of subgraphs and of attributes by their path."""
        return dict(_tensors(self.proto.graph, ""))

    @cached_property
    def producers(self) -> Mapping[str, NodeProto]:
        """The node of the main graph that makes a value."""
        return {name: node for node in self.proto.graph.node for name in node.output if name}

    @cached_property
    def consumers(self) -> Mapping[str, tuple[NodeProto, ...]]:
        """The nodes of the graph that read a value, those of subgraphs included."""
        found = dict[str, list[NodeProto]]()
        for node in _nodes(self.proto.graph.node):
            for name in dict.fromkeys(node.input):
                found.setdefault(name, []).append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    def inline(self, name: str) -> np.ndarray | None:
        """The value of an initializer, or of a Constant node, that is inside the graph; else None."""
        weight = self.initializers.get(name)
        tensor = weight.proto if weight else _constant(self.producers.get(name))
        if tensor is None or tensor.data_location == TensorProto.EXTERNAL:
            return None
        try:
            return onnx.numpy_helper.to_array(tensor)
        except (ValueError, TypeError):
            return None

    def array(self, name: str) -> np.ndarray:
        """The values of a weight, read-only; external ones are mapped. Raises PackageError where they cannot be.

        Numbers that share a byte are unpacked, each into one of its own.
        """
        weight = self.initializers[name]
        if weight.external is None:
            return self._inline(name)
        if 0 < weight.bits < 8:
            return _unpacked(weight, _mapped(self, weight))
        dtype = protos.dtype(weight.proto.data_type)
        if dtype is None:
            raise PackageError(f"numpy has no {weight.dtype}", at=f"{self.path}: {name}", remedy=REMEDY)
        return _mapped(self, weight).view(dtype).reshape(weight.shape)

    def raw(self, name: str) -> np.ndarray:
        """The bytes of a weight as they lie, uint8 [bytes], read-only. Raises PackageError as `array` does."""
        weight = self.initializers[name]
        if weight.external is not None:
            return _mapped(self, weight)
        return np.ascontiguousarray(self._inline(name)).reshape(-1).view(np.uint8)

    def _inline(self, name: str) -> np.ndarray:
        value = self.inline(name)
        if value is None:
            raise PackageError("its bytes do not fit its shape and type", at=f"{self.path}: {name}")
        return value

    def folder(self) -> PurePosixPath:
        """The folder that external locations are relative to, inside the package."""
        return PurePosixPath(self.path).parent


def _weight(tensor: TensorProto) -> Weight:
    external = None
    if tensor.data_location == TensorProto.EXTERNAL:
        said = {entry.key: entry.value for entry in tensor.external_data}
        external = External(said.get("location"), said.get("offset"), said.get("length"))
    return Weight(tensor.name, protos.name(tensor.data_type), tuple(tensor.dims), external, tensor)


def _nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    for node in nodes:
        yield node
        for graph in _subgraphs(node):
            yield from _nodes(graph.node)


def _subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def _tensors(graph: GraphProto, prefix: str) -> Iterator[tuple[str, Weight]]:
    for tensor in graph.initializer:
        yield prefix + tensor.name, _weight(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                yield f"{prefix}{node.name or node.op_type}.{attribute.name}", _weight(attribute.t)
        for inner in _subgraphs(node):
            yield from _tensors(inner, f"{prefix}{node.name or node.op_type}/")


def _constant(node: NodeProto | None) -> TensorProto | None:
    if node is None or node.op_type != "Constant":
        return None
    return next((a.t for a in node.attribute if a.name == "value"), None)


def _mapped(graph: Graph, weight: Weight) -> np.ndarray:
    """The bytes of an external weight."""
    assert weight.external is not None
    at = f"{graph.path}: {weight.name}"
    try:
        offset = int(weight.external.offset or 0)
        file = (graph.root / graph.folder() / (weight.external.location or "")).resolve()
        if not file.is_relative_to(graph.root) or offset < 0 or weight.nbytes < 0:
            raise ValueError("the reference leads out of the package")
        if weight.nbytes == 0:
            return np.empty(0, np.uint8)
        return np.memmap(file, np.uint8, "r", offset, weight.nbytes)
    except (ValueError, TypeError, OSError) as error:
        raise PackageError(f"its bytes cannot be mapped: {error}", at=at, remedy=REMEDY) from None


def _unpacked(weight: Weight, raw: np.ndarray) -> np.ndarray:
    """Numbers of 2 or 4 bits, the first in the low bits of a byte, each in a byte of its own."""
    bits, count = weight.bits, math.prod(weight.shape)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    codes = (raw[:, None] >> shifts & np.uint8((1 << bits) - 1)).reshape(-1)[:count].reshape(weight.shape)
    if weight.dtype.startswith("int"):
        sign = np.uint8(1 << bits - 1)
        return (codes ^ sign).astype(np.int8) - np.int8(sign)
    return codes


def read_graph(root: Path, path: str) -> Graph:
    """Parse a graph; external weights are not loaded. Raises PackageError for what is no graph with typed ports."""
    file = root / path
    try:
        if file.stat().st_size > _MOST:
            raise PackageError(f"{file.stat().st_size} bytes; protobuf takes 2 GiB", at=path, remedy=REMEDY)
        proto = ModelProto.FromString(file.read_bytes())
    except (DecodeError, OSError) as error:
        raise PackageError(f"it cannot be parsed as ONNX: {error}", at=path, remedy=REMEDY) from None
    if not proto.HasField("graph") or not proto.graph.output:
        raise PackageError("it holds no graph with outputs", at=path, remedy=REMEDY)
    return Graph(root, path, proto, protos.ports(proto.graph, path))
