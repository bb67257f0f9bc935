import re

import numpy as np
import onnx_ir as ir
import pytest

from cabochon.errors import GraphError
from cabochon.graph import Tracer
from cabochon.metadata import ports
from cabochon.metadata.ports import Port


def graph(*inputs: ir.Value) -> ir.Model:
    return ir.Model(ir.Graph(inputs, [], nodes=[], opset_imports={"": 23}), ir_version=11)


def tensor(name: str | None, dtype: ir.DataType, shape: list | None) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=None if shape is None else ir.Shape(shape))


def test_a_traced_graph() -> None:
    g = Tracer("test", 23)
    x, n = g.input("x", "bf16", "batch", 1, "past_sequence", 8), g.default("n", np.int64(3))
    g.input("b", "bool", "batch")
    g.output("y", g.CastLike(x, n), "batch", 1, "past_sequence", 8)
    found = ports.read(ir.from_proto(ir.to_proto(g.model({}))))
    assert list(found.inputs.values()) == [
        Port("x", "bfloat16", ("batch", 1, "past_sequence", 8)),
        Port("n", "int64", (), optional=True),
        Port("b", "bool", ("batch",)),
    ]
    assert found.outputs == {"y": Port("y", "int64", ("batch", 1, "past_sequence", 8))}


@pytest.mark.parametrize(
    "dtype, name",
    [
        ("FLOAT", "float32"),
        ("FLOAT16", "float16"),
        ("UINT8", "uint8"),
        ("INT4", "int4"),
        ("STRING", "string"),
    ],
)
def test_names_of_types(dtype: str, name: str) -> None:
    found = ports.read(graph(tensor("x", ir.DataType[dtype], [None, "n"])))
    assert found.inputs["x"] == Port("x", name, ("", "n"))


@pytest.mark.parametrize(
    "value, message",
    [
        (tensor("", ir.DataType.FLOAT, [1]), "a port has no name; expected one"),
        (tensor("x", ir.DataType.FLOAT, None), "x: its rank is not known; expected a shape"),
        (tensor("x", ir.DataType.UNDEFINED, [1]), "x: its element type is not defined; expected one"),
        (ir.Value(name="x", shape=ir.Shape([1])), "x: its type is None; expected a dense tensor"),
        (
            ir.Value(name="x", type=ir.SequenceType(ir.TensorType(ir.DataType.FLOAT)), shape=ir.Shape([1])),
            "x: its type is Sequence",
        ),
    ],
)
def test_what_is_no_port(value: ir.Value, message: str) -> None:
    with pytest.raises(GraphError, match=re.escape(message)):
        ports.read(graph(value))


@pytest.mark.parametrize("shape", [(), ("batch", "vocab")])
def test_a_last_dimension_that_is_no_number(shape: tuple[int | str, ...]) -> None:
    assert ports.last(Port("x", "int64", (*shape, 7))) == 7
    with pytest.raises(GraphError, match=r"x: its last dimension is .*; expected a number"):
        ports.last(Port("x", "int64", shape))
