"""A package of onnx-standard has nothing but ai.onnx, in bodies and functions too."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from broken import Break, check, edit_graph
from packages import Packages

STANDARD = ("tiny", "onnx-standard", "f32")
ONLY = {"quick": True, "select": ("RUN019",)}


def fused(proto: onnx.ModelProto) -> None:
    node = next(n for n in proto.graph.node if n.op_type == "Gelu")
    node.domain = "com.microsoft"


def imported(proto: onnx.ModelProto) -> None:
    proto.opset_import.add(domain="com.microsoft", version=1)


def in_a_body(proto: onnx.ModelProto) -> None:
    """An If whose branches have an operator of another domain."""
    made = [
        helper.make_graph(
            [helper.make_node("Mine", [], ["on"], name="deep", domain="my.own")],
            branch,
            [],
            [helper.make_tensor_value_info("on", TensorProto.BOOL, [])],
        )
        for branch in ("then", "else")
    ]
    node = helper.make_node("If", ["logits_to_keep"], ["never"], then_branch=made[0], else_branch=made[1])
    proto.graph.node.append(node)


def in_a_function(proto: onnx.ModelProto) -> None:
    """A function that nobody calls."""
    nodes = [helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft")]
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    proto.functions.append(helper.make_function("my.own", "Mine", ["x"], ["y"], nodes, opsets))


BREAKS = tuple(
    Break(name, edit_graph(how, file), {"RUN019"}, STANDARD, options=ONLY)
    for name, how, file in (
        ("an operator of a runtime", fused, "model.onnx"),
        ("an operator set that nothing needs", imported, "model.onnx"),
        ("an operator in a body", in_a_body, "model.onnx"),
        ("a function", in_a_function, "model.onnx"),
        ("a policy of a runtime", imported, "policies/token_sampler.onnx"),
    )
)
# Other targets may have what is theirs.
GOOD = (Break("an operator set of the runtime it is for", edit_graph(imported), set(), options=ONLY),)


@pytest.mark.parametrize("broken", [*BREAKS, *GOOD], ids=str)
def test_what_is_for_any_runtime(broken: Break, packages: Packages, tmp_path: Path) -> None:
    check(broken, packages, tmp_path)
