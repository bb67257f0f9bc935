"""What masks are made of, in numpy: the same as onnx's own evaluator makes of it."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from cabochon.validation import masks

I64, F16 = np.int64, np.float16
ROWS = np.array([[3, 1, 2], [5, 5, 4]])
TRUE = np.array([True, False, True])
CASES = [
    *((name, [ROWS, np.array([1, 2, 3])], {}) for name in ("Add", "Sub", "Max", "Min")),
    *((name, [ROWS, I64(3)], {}) for name in ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")),
    *((name, [TRUE, ~TRUE[:, None]], {}) for name in ("And", "Or")),
    *(("Cast", [TRUE], {"to": to}) for to in (TensorProto.INT64, TensorProto.FLOAT16, TensorProto.BFLOAT16)),
    ("Concat", [ROWS, ROWS[:, :1], ROWS], {"axis": 1}),
    ("CumSum", [ROWS, I64(1)], {}),
    ("Expand", [ROWS[:, None], np.array([2, 4, 1])], {}),
    ("GatherND", [ROWS, np.array([[[2], [0]], [[1], [-1]]])], {"batch_dims": 1}),
    ("GatherND", [ROWS, np.array([[1, 2], [0, 0]])], {}),
    ("Neg", [ROWS], {}),
    ("Range", [I64(2), I64(11), I64(3)], {}),
    *(("ReduceSum", [ROWS, np.array([-1])], {"keepdims": keep}) for keep in (0, 1)),
    *(("Shape", [ROWS], span) for span in ({}, {"start": 1}, {"start": -2, "end": -1})),
    *(
        ("Slice", [ROWS, np.array([start]), np.array([end]), np.array([axis])], {})
        for start, end, axis in ((-2, np.iinfo(I64).max, 1), (0, 1, -2), (-9, 9, -1), (2, 1, 1))
    ),
    ("Slice", [ROWS, *(np.array([number]) for number in (-1, np.iinfo(I64).min, 1, -1))], {}),
    ("Squeeze", [ROWS[None, :, :1], np.array([0, -1])], {}),
    ("TopK", [ROWS, np.array([2])], {}),
    ("Unsqueeze", [ROWS, np.array([0, -1])], {}),
    ("Where", [TRUE, ROWS.astype(F16), F16(-1)], {}),
]


@pytest.mark.parametrize(("operator", "inputs", "attributes"), CASES)
def test_it_is_what_onnx_makes_of_it(operator, inputs, attributes) -> None:
    arrays = [np.asarray(value) for value in inputs]
    names = [f"in{i}" for i in range(len(arrays))]
    made = ["out", "indices"][: 2 if operator == "TopK" else 1]
    node = helper.make_node(operator, names, made, **attributes)
    ports = [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in (*names, *made)]
    graph = helper.make_graph([node], "one", ports[: len(names)], ports[len(names) :])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    expected = ReferenceEvaluator(model).run(None, dict(zip(names, arrays, strict=True)))
    found = masks.run(node, arrays)
    assert [value.dtype for value in found] == [value.dtype for value in expected]
    assert all(map(np.array_equal, found, expected))


def test_every_operator_is_compared() -> None:
    assert {operator for operator, _, _ in CASES} == set(masks._OPERATORS)


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"),
    [
        ("Add", [ROWS, ROWS.astype(np.int32)], {}),
        ("CumSum", [ROWS, I64(1)], {"exclusive": 1}),
        ("Slice", [ROWS, np.array([0]), np.array([9])], {}),
        ("Where", [TRUE, ROWS, F16(-1)], {}),
        ("Gather", [ROWS, np.array([0])], {}),
    ],
)
def test_what_is_unusual_is_left_to_onnx(operator, inputs, attributes) -> None:
    node = helper.make_node(operator, [f"in{i}" for i in range(len(inputs))], ["out"], **attributes)
    with pytest.raises((TypeError, KeyError)):
        masks.run(node, [np.asarray(value) for value in inputs])
