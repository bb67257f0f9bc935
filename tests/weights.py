"""Weights and graphs small enough to be checked byte by byte."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_ir as ir

from cabochon.checkpoint import Tensor
from cabochon.graph import Stored

DTYPES = {"float32": ("F32", ir.DataType.FLOAT), "float16": ("F16", ir.DataType.FLOAT16)}


def weight(
    name: str,
    array: np.ndarray,
    *,
    block: int = 1000,
    span: tuple[Path, int] | None = None,
    source: Tensor | None = None,
    fault: Exception | None = None,
) -> Stored:
    """A weight of the values of `array`, in blocks of `block` elements; or whose reading ends in `fault`."""
    header, dtype = DTYPES[array.dtype.name]
    source = source or Tensor(name, header, array.shape, Path("absent.safetensors"), 0, array.nbytes)

    def blocks() -> Iterator[np.ndarray]:
        if fault is not None:
            raise fault
        flat = array.reshape(-1)
        return (flat[start : start + block] for start in range(0, flat.size, block))

    return Stored(name, dtype, array.shape, blocks, (source,), span)


def model(*weights: Stored) -> ir.Model:
    """x + each of the weights in turn."""
    inputs = [ir.Value(name="x", type=ir.TensorType(weights[0].dtype), shape=ir.Shape(["n"]))]
    value, nodes, initializers = inputs[0], [], []
    for i, stored in enumerate(weights):
        given = ir.Value(
            name=stored.name, type=ir.TensorType(stored.dtype), shape=stored.shape, const_value=stored
        )
        node = ir.Node("", "Add", [value, given], outputs=[ir.Value(name=f"y{i}")], name=f"add{i}")
        node.outputs[0].type, node.outputs[0].shape = ir.TensorType(stored.dtype), ir.Shape(["n"])
        nodes.append(node)
        initializers.append(given)
        value = node.outputs[0]
    graph = ir.Graph(
        inputs, [value], nodes=nodes, initializers=initializers, opset_imports={"": 21}, name="sum"
    )
    return ir.Model(graph, ir_version=10)


def range_of(file: Path, offset: int, array: np.ndarray) -> np.ndarray:
    """What stands in `file` from byte `offset` on, of the shape and type of `array`."""
    return np.frombuffer(file.read_bytes(), array.dtype, array.size, offset).reshape(array.shape)
