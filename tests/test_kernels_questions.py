"""Graphs of one operator: what runtimes without a list are asked, and what the answers make of a table."""

from pathlib import Path
from typing import Any

import onnx
import pytest

from cabochon.kernels import PROVIDERS
from cabochon.kernels.questions import Question, questions, rows
from packages import Packages
from record_kernels import NODE_MODULES, browser, openvino

MICROSOFT = "com.microsoft"
USED = ("webgpu", "f32")  # of packages: what SwiftShader can load
WHAT = ("tiny", "tiny-drafter", "tiny-full")


def test_graphs_are_those_of_the_operator_with_the_types() -> None:
    for question in questions([("", "MatMul"), (MICROSOFT, "MatMulNBits"), ("", "Cast")]):
        model = onnx.load_from_string(question.graph)
        (node,) = model.graph.node
        assert (node.domain, node.op_type) == question.operator
        kinds = {
            onnx.TensorProto.DataType.Name(i.type.tensor_type.elem_type).lower() for i in model.graph.input
        }
        assert kinds <= {*question.types.values()}


def test_every_version_that_a_set_from_13_on_has_is_asked_about() -> None:
    found = {(q.operator[1], q.since) for q in questions([("", "Cos"), ("", "Softmax"), ("", "Cast")])}
    assert {("Cos", 7), ("Cos", 22), ("Softmax", 13), ("Cast", 24)} <= found
    assert ("Softmax", 11) not in found and ("Cast", 9) not in found


def test_answers_become_rows() -> None:
    asked: list[tuple[dict[str, str], bool]] = [
        ({"T": "float", "I": "int32"}, True),
        ({"T": "float16", "I": "int32"}, True),
        ({"T": "float", "I": "int64"}, True),
        ({"T": "double", "I": "int32"}, False),
        ({"T": "bool", "I": "uint8"}, True),
    ]
    answers = [(Question(("", "A"), 7, types, b""), yes) for types, yes in asked]
    assert rows(answers) == {
        "": {
            "A": [
                (7, 7, {"I": "int32 int64", "T": "float float16"}),
                (7, 7, {"I": "uint8", "T": "bool"}),
            ]
        }
    }


def test_openvino_takes_what_its_table_says() -> None:
    pytest.importorskip("openvino", reason="openvino is not installed: pip install cabochon[openvino]")
    names = [("", "Attention"), ("", "TensorScatter"), (MICROSOFT, "MatMulBnb4"), (MICROSOFT, "FusedMatMul")]
    asked = [question for question in questions(names) if question.since <= 24]
    taken: dict[Any, bool] = {}
    for question, said in zip(asked, openvino([q.graph for q in asked]), strict=True):
        key = (question.operator, question.since)
        taken[key] = taken.get(key, False) or not said
    table = PROVIDERS["OpenVINO"]
    assert taken == {(operator, since): table.has(operator, since, {}) for operator, since in taken}
    assert set(taken.values()) == {True, False}


@pytest.mark.browser
def test_a_browser_takes_what_its_table_says(packages: Packages) -> None:
    """Every operator of our packages for browsers, in all types."""
    assert NODE_MODULES.is_dir()
    files = [file for what in WHAT for file in Path(packages(what, *USED)).rglob("model.onnx")]
    nodes = [node for file in files for node in onnx.load(file, load_external_data=False).graph.node]
    used = {(node.domain, node.op_type) for node in nodes}
    table = PROVIDERS["WebGpuExecutionProvider"]
    asked = [question for question in questions(used) if question.since <= table.opset]
    with browser() as ask:
        answers = ask([question.graph for question in asked])
    found = rows((question, not said) for question, said in zip(asked, answers, strict=True))
    listed = {(domain, name): found[domain].get(name, []) for domain in found for name in found[domain]}
    for operator in used - {("", "Loop"), ("", "Constant")}:
        kernels = {(k.first, tuple(sorted(k.types.items()))) for k in table.kernels.get(operator, ())}
        mine = listed.get(operator, [])
        seen = {(r[0], tuple((n, frozenset(w.split())) for n, w in sorted(r[2].items()))) for r in mine}
        assert seen == kernels, operator
