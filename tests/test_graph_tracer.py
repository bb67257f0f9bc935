import numpy as np
import onnx_ir as ir
import pytest

from cabochon.errors import GraphError
from cabochon.graph import Tracer


@pytest.fixture
def g() -> Tracer:
    return Tracer("test", 23)


def test_operators_are_nodes_with_types_and_shapes(g: Tracer) -> None:
    x = g.input("x", "f16", "batch", 4)
    with g.scope("part"):
        y = (x + 1.5) * x - 2.0 / (x / 3.0)
    assert [node.op_type for node in g.graph] == ["Add", "Mul", "Div", "Div", "Sub"]
    assert [node.name for node in g.graph][2:4] == ["part.Div", "part.Div_2"]
    assert y.dtype == ir.DataType.FLOAT16 and str(y.shape) == "[batch,4]"


def test_numbers_take_the_type_of_their_neighbour(g: Tracer) -> None:
    x, n = g.input("x", "f16", 4), g.input("n", "i32", 4)
    assert g.Mul(x, 2.0).producer().inputs[1].dtype == ir.DataType.FLOAT16
    assert (n + 1).producer().inputs[1].dtype == ir.DataType.INT32
    assert g.Gather(x, 1).producer().inputs[1].dtype == ir.DataType.INT64


def test_equal_constants_are_stored_once(g: Tracer) -> None:
    x, y = g.input("x", "f32", 4), g.input("y", "f16", 4)
    _ = x * 2.0 + 2.0, y * 2.0
    assert len(g.graph.initializers) == 2


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda g, x, y: x @ y, r"MatMul\(FLOAT.*3.*4.*FLOAT.*5.*6"),
        (lambda g, x, y: g.MatMull(x, y), "'MatMull' is not in opset 23"),
        (lambda g, x, y: g.Concat(x, y, axis=0), "Concat"),
    ],
)
def test_a_wrong_node_fails_where_it_is_made(g: Tracer, wrong, message: str) -> None:
    x, y = g.input("x", "f32", 3, 4), g.input("y", "f32", 5, 6)
    with pytest.raises(GraphError, match=message):
        wrong(g, x, y)


def test_an_output_needs_a_shape_and_a_name(g: Tracer) -> None:
    g.output("y", g.input("x", "f32", 3) * 2.0, 3)
    model = g.model({"key": "value"})
    assert [v.name for v in model.graph.outputs] == ["y"] and model.metadata_props == {"key": "value"}


def test_a_default_is_an_input_with_a_value(g: Tracer) -> None:
    value = g.default("keep", np.int64(3))
    assert value in g.graph.inputs and g.graph.initializers["keep"].const_value.numpy() == 3


def test_an_operator_without_schema_says_its_types(g: Tracer) -> None:
    x = g.input("x", "f16", "batch", 4)
    y, z = g.microsoft("Something", [x], dict(alpha=1), (x, ["batch", 8]), (x, [1]))
    assert (y.dtype, str(y.shape), str(z.shape)) == (ir.DataType.FLOAT16, "[batch,8]", "[1]")
    assert g.graph.opset_imports["com.microsoft"] == 1
