"""Packages of EPContext nodes around OpenVINO's IR: what the node says is what lies beside it, and nothing else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import AttributeProto, NodeProto, TensorProto, helper

from broken import Break, How, check, copied, edit_graph, remove, resum
from cabochon.validation import validate
from irs import Recorded
from test_validation_ir import QUICK, said

WRAPPED = ("wrapped", "openvino-epcontext", "Q4_K_M")


@pytest.fixture(scope="session")
def irs(packages: Any) -> Recorded:
    return Recorded(packages.root)


def node(change: Callable[[NodeProto], object]) -> How:
    """Change the node."""
    return edit_graph(lambda proto: change(proto.graph.node[0]))


def attribute(name: str, value: object) -> How:
    """Another value of an attribute; None takes it away."""

    def change(found: NodeProto) -> None:
        kept = [a for a in found.attribute if a.name != name]
        del found.attribute[:]
        found.attribute.extend([*kept, *([] if value is None else [helper.make_attribute(name, value)])])

    return node(change)


def context(name: str | bytes) -> How:
    return attribute("ep_cache_context", name)


def prop(key: str, value: str | None) -> How:
    """Another value of a property of the graph."""

    def change(proto: onnx.ModelProto) -> None:
        known = {entry.key: entry.value for entry in proto.metadata_props} | {f"cabochon.{key}": value}
        del proto.metadata_props[:]
        for name, text in known.items():
            if text is not None:
                proto.metadata_props.add(key=name, value=text)

    return edit_graph(change)


def twice(proto: onnx.ModelProto) -> None:
    second = NodeProto()
    second.CopyFrom(proto.graph.node[0])
    second.name = "again"
    for i, name in enumerate(second.output):
        second.output[i] = f"{name}.again"
    proto.graph.node.append(second)


def beside(proto: onnx.ModelProto) -> None:
    """A node that another provider would run, with a weight of its own."""
    proto.graph.initializer.append(helper.make_tensor("one", TensorProto.INT64, [], [1]))
    proto.graph.node.insert(0, helper.make_node("Add", ["logits_to_keep", "one"], ["more"], name="add"))


def retyped(proto: onnx.ModelProto) -> None:
    next(p for p in proto.graph.output if p.name == "logits").type.tensor_type.elem_type = TensorProto.FLOAT16


def resized(proto: onnx.ModelProto) -> None:
    shape = next(p for p in proto.graph.input if p.name == "past_key_values.1.key").type.tensor_type.shape
    shape.dim[3].dim_value = 16


def swapped(found: NodeProto) -> None:
    found.input[0], found.input[1] = found.input[1], found.input[0]


def renamed(proto: onnx.ModelProto) -> None:
    proto.graph.input[0].name = proto.graph.node[0].input[0] = "ids"


def linked_out(package: Path) -> None:
    outside = package.parent / "outside.xml"
    (package / "model.xml").rename(outside)
    (package / "model.xml").symlink_to(outside)


def quick(name: str, how: How, found: set[str]) -> Break:
    return Break(name, how, found, WRAPPED, options=QUICK)


BREAKS = (
    quick("a blob in the node", attribute("embed_mode", 1), {"OVN017"}),
    quick("no mode, which means a blob in the node", attribute("embed_mode", None), {"OVN017"}),
    quick("a blob in the place of a name", context(b"\x7fELF\x00" * 40), {"FIL003", "OVN017"}),
    quick("no context", context(b""), {"OVN017"}),
    quick("a context outside", context("../model.xml"), {"FIL003", "OVN017"}),
    quick("a context anywhere", context("/etc/model.xml"), {"FIL003", "OVN017"}),
    quick("a context with a backslash", context("..\\model.xml"), {"FIL003", "OVN017"}),
    quick("a context on a drive", context("C:model.xml"), {"FIL003"}),
    quick("a context that is not there", context("other.xml"), {"FIL001"}),
    quick("a context that is no IR", context("config.json"), {"OVN017", "OVN018"}),
    quick("the IR is gone", remove("model.xml"), {"FIL001"}),
    quick("the weights of the IR are gone", remove("model.bin"), {"FIL001"}),
    quick("an IR that a link leads out to", linked_out, {"FIL004"}),
    quick("another context than the main one", attribute("main_context", 0), {"OVN017"}),
    quick("a largest size", attribute("max_size", 7), {"OVN017"}),
    quick("another provider", attribute("source", "QNNExecutionProvider"), {"OVN017"}),
    quick("an attribute that nobody knows", attribute("device", "NPU"), {"OVN017"}),
    quick("another domain", node(lambda n: setattr(n, "domain", "com.intel")), {"OVN016"}),
    quick("two nodes", edit_graph(twice), {"OVN016"}),
    quick("a node of another provider", edit_graph(beside), {"OVN016"}),
    quick("a port of another type", edit_graph(retyped), {"OVN018"}),
    quick("caches of one head size", edit_graph(resized), {"OVN018"}),
    quick("ports in another order", node(swapped), {"OVN018"}),
    quick("another name of a port", edit_graph(renamed), {"OVN018"}),
    quick("another release", attribute("ep_sdk_version", "2025.4.1"), {"OVN019"}),
    quick("no release", attribute("ep_sdk_version", None), {"OVN019"}),
    quick("another window than the IR", prop("sliding_window", "9"), {"OVN019"}),
    quick("a property less", prop("mask", None), {"OVN019"}),
    quick("the target of the IR", prop("target", "openvino-ir"), {"OVN019"}),
    quick(
        "an IR of another precision",
        said("precision", "Q8", file="model.xml"),
        {"OVN014", "OVN019"},
    ),
)


@pytest.mark.parametrize("broken", BREAKS, ids=str)
def test_a_broken_package_is_found_out(broken: Break, irs: Any, tmp_path: Path) -> None:
    check(broken, irs, tmp_path)


def test_a_graph_that_is_compiled_in_part_is_still_one_that_wraps(irs: Recorded, tmp_path: Path) -> None:
    """Hiding the node in a body does not make the package one of ONNX."""
    package = copied(irs("wrapped"), tmp_path / "package")
    proto = onnx.load(package / "model.onnx")
    inner = helper.make_graph(list(proto.graph.node), "body", [], list(proto.graph.output))
    outer = helper.make_node("If", ["logits_to_keep"], list(proto.graph.node[0].output), name="if")
    outer.attribute.append(AttributeProto(name="then_branch", type=AttributeProto.GRAPH, g=inner))
    proto.graph.node[0].CopyFrom(outer)
    (package / "model.onnx").write_bytes(proto.SerializeToString())
    resum(package)
    verdict = validate(package, quick=True)
    assert "OVN016" in {finding.code for finding in verdict.errors}, verdict.findings
