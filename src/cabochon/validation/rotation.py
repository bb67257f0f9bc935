"""How heads are rotated: the RotaryEmbedding that a value comes from, and its frequencies."""

from dataclasses import dataclass

import numpy as np
from onnx import NodeProto

from cabochon.validation.attention_nodes import given
from cabochon.validation.graph import Graph

__all__ = ["Rotation", "rotation"]

_PASSED = {"Identity", "Cast", "CastLike", "Reshape", "Transpose"}
_FAR = 12  # nodes


@dataclass(frozen=True)
class Rotation:
    """A RotaryEmbedding; `frequencies`: radians per position of each pair, None where they are no constant."""

    node: NodeProto
    frequencies: np.ndarray | None


def rotation(graph: Graph, name: str) -> Rotation | None:
    """The rotation that a value comes from; None where none can be traced."""
    for _ in range(_FAR):
        node = graph.producers.get(name)
        if node is None:
            return None
        if node.op_type == "RotaryEmbedding":
            return Rotation(node, _frequencies(graph, given(node, 1)))
        if node.op_type not in _PASSED:
            return None
        name = given(node, 0)
    return None


def _frequencies(graph: Graph, cosine: str) -> np.ndarray | None:
    """cos(position · frequency): the constant factor."""
    for _ in range(_FAR):
        node = graph.producers.get(cosine)
        if node is None:
            return None
        if node.op_type == "Mul":
            values = (graph.inline(name) for name in node.input)
            return next((value for value in values if value is not None), None)
        if node.op_type not in {*_PASSED, "Cos"}:
            return None
        cosine = given(node, 0)
    return None
