"""A graph of onnx-standard as OpenVINO's reader of ONNX takes it. Its weights stay where they are.

Four things differ. An input that may be left out has an initializer, which OpenVINO would make a constant: here it
must be given. Properties are left out: they are written into the IR by us. And a last block that is shorter than the
others is refused ("cannot be divided by block_size"): its weight is cut into blocks of a length that fits, several of
which share a scale. A shift of bytes to the right OpenVINO 2026.4.1 computes as a division that rounds (253 >> 4 is 16
there): it is made in 32 bits, where it is exact.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from cabochon.validation.graph import Graph, Weight

__all__ = ["Adapted", "adapted"]


@dataclass(frozen=True)
class Adapted:
    """The graph; `written`: the initializers that are not those of the package."""

    graph: Graph
    written: frozenset[str]

    def weights(self) -> Iterator[Weight]:
        """Those that a node reads, and that must be found again in what is made of the graph."""
        read = {name for node in self.graph.nodes for name in node.input}
        for name, weight in self.graph.initializers.items():
            if name in read and (weight.external or name in self.written):
                yield weight

    def raw(self, weight: Weight) -> np.ndarray:
        """The bytes of a weight, uint8 [bytes]; those of the package are mapped."""
        if weight.external:
            return self.graph.raw(weight.name)
        return np.frombuffer(weight.proto.raw_data, np.uint8)


def adapted(graph: Graph) -> Adapted:
    """What OpenVINO is to read in the place of `graph`."""
    proto = ModelProto()
    proto.CopyFrom(graph.proto)
    del proto.metadata_props[:]
    inputs = {value.name for value in proto.graph.input}
    anew = dict[str, TensorProto]()
    for each in list(_graphs(proto.graph)):
        shifted = [made for node in each.node for made in _shifted(node)]
        del each.node[:]
        each.node.extend(shifted)
        anew |= {tensor.name: tensor for node in each.node for tensor in _divided(node, graph)}
    kept = [tensor for tensor in proto.graph.initializer if tensor.name not in inputs]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend([*kept, *anew.values()])
    return Adapted(replace(graph, proto=proto), frozenset(anew))


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and the bodies of its loops, the innermost first: who changes nodes of one makes copies of them."""
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)
    yield graph


def _shifted(node: NodeProto) -> Iterator[NodeProto]:
    """A shift to the right with what makes it exact around it; any other node as it is. Ours are of bytes."""
    if node.op_type != "BitShift" or helper.get_node_attr_value(node, "direction") != b"RIGHT":
        yield node
        return
    made = node.output[0]
    wide = [f"{made}.input_{i}" for i in range(2)]
    for own, name in zip(node.input, wide, strict=True):
        yield helper.make_node("Cast", [own], [name], name=name, to=TensorProto.UINT32)
    yield helper.make_node("BitShift", wide, [f"{made}.wide"], name=f"{made}.wide", direction="RIGHT")
    yield helper.make_node("Cast", [f"{made}.wide"], [made], name=node.name, to=TensorProto.UINT8)


def _divided(node: NodeProto, graph: Graph) -> Iterator[TensorProto]:
    """Where the blocks of a DequantizeLinear do not divide its weight, they do afterwards. Its new scales and zero
    points, under names of their own: another node may read the old ones."""
    said: dict[str, Any] = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.op_type != "DequantizeLinear" or not said.get("block_size"):
        return
    axis, block = said.get("axis", 1), said["block_size"]
    size = graph.initializers[node.input[0]].shape[axis]
    if size % block == 0:
        return
    short = math.gcd(size, block)
    rows = np.arange(0, size, short) // block
    next(a for a in node.attribute if a.name == "block_size").i = short
    for i, name in enumerate(node.input[1:], 1):
        node.input[i] = f"{name}.by_{short}"
        dtype = graph.initializers[name].proto.data_type
        values = np.take(graph.array(name), rows, axis)
        yield helper.make_tensor(node.input[i], dtype, values.shape, _raw(values, dtype), raw=True)


def _raw(values: np.ndarray, dtype: int) -> bytes:
    """The bytes of a tensor; numbers of four bits lie in pairs, the first in the low bits."""
    if dtype not in (TensorProto.INT4, TensorProto.UINT4):
        return values.tobytes()
    nibbles = np.append(values.reshape(-1).view(np.uint8) & 15, np.zeros(values.size % 2, np.uint8))
    return (nibbles[::2] | nibbles[1::2] << 4).tobytes()
