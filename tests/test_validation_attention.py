"""Rules on attention: each one of the graph against its layer and the group that it serves."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from broken import Break, check, edit_document, edit_graph, edit_json
from cabochon.validation.attention_nodes import attention_nodes
from cabochon.validation.graph import read_graph
from cabochon.validation.sight import Feed, computed, sights
from packages import Packages
from test_validation_state import FULL, SLIDING, move

OURS = {"quick": True, "select": ("PRT", "STA", "ATT")}
QUICK = {"quick": True}
CUDA, WEBGPU = ("tiny", "cuda", "f16"), ("tiny", "webgpu", "f32")
Proto = onnx.ModelProto
FUSED = ("Attention", "GroupQueryAttention")


def attention(proto: Proto, layer: int) -> onnx.NodeProto:
    return next(n for n in proto.graph.node if n.op_type in FUSED and n.name.startswith(f"layers.{layer}."))


def attribute(layer: int, **values: object) -> Callable[[Path], object]:
    """Set attributes of the attention of a layer; None takes one away."""

    def change(proto: Proto) -> None:
        found = attention(proto, layer)
        kept = [a for a in found.attribute if a.name not in values]
        del found.attribute[:]
        new = [helper.make_attribute(name, value) for name, value in values.items() if value is not None]
        found.attribute.extend([*kept, *new])

    return edit_graph(change)


def constant(value: float, instead: float) -> Callable[[Path], object]:
    """Another value for every constant that has this one."""

    def change(proto: Proto) -> None:
        for tensor in proto.graph.initializer:
            if not tensor.external_data and not tensor.dims and numpy_helper.to_array(tensor) == value:
                dtype = numpy_helper.to_array(tensor).dtype
                tensor.CopyFrom(numpy_helper.from_array(np.array(instead, dtype), tensor.name))

    return edit_graph(change)


def feed(layer: int, position: int, value: str) -> Callable[[Path], object]:
    """Another input for the attention of a layer."""

    def change(proto: Proto) -> None:
        attention(proto, layer).input[position] = value

    return edit_graph(change)


def mask_of(layer: int, other: int) -> Callable[[Path], object]:
    def change(proto: Proto) -> None:
        attention(proto, layer).input[3] = attention(proto, other).input[3]

    return edit_graph(change)


def adding(proto: Proto) -> None:
    """A borrower with the new keys and values of its owner."""
    attention(proto, 6).input[1:3] = attention(proto, 5).input[1:3]


def unmasked(proto: Proto) -> None:
    """Compare positions the other way round."""
    for found in proto.graph.node:
        if found.op_type == "LessOrEqual":
            found.input[0], found.input[1] = found.input[1], found.input[0]


def from_outside(proto: Proto) -> None:
    """The window of the sliding layers comes from a weight."""
    found = next(n for n in proto.graph.node if n.op_type == "Greater")
    proto.graph.node.insert(
        0, helper.make_node("Gather", ["model.norm.weight", "input_ids"], ["w"], name="outside")
    )
    proto.graph.node.insert(1, helper.make_node("Cast", ["w"], ["w64"], to=7, name="outside.cast"))
    found.input[1] = "w64"


def drop_attention(proto: Proto) -> None:
    attention(proto, 7).op_type = "MyAttention"


def turned_with(proto: Proto) -> None:
    """The rotation of the full layers in the sliding ones."""
    rotations = {n.name: n for n in proto.graph.node if n.op_type == "RotaryEmbedding"}
    rotations["layers.0.RotaryEmbedding"].input[1:] = rotations["layers.4.RotaryEmbedding"].input[1:]


def scaled(proto: Proto) -> None:
    """The scores of a written-out attention are halved before the softmax."""
    half = numpy_helper.from_array(np.array(0.5, np.float32), "half")
    proto.graph.initializer.append(half)
    read = {n.input[0] for n in proto.graph.node if n.op_type == "Softmax" and n.name.startswith("layers.6.")}
    i, found = next((i, n) for i, n in enumerate(proto.graph.node) if n.output[0] in read)
    proto.graph.node.insert(i, helper.make_node("Mul", [found.input[1], "half"], ["halved"], name="halve"))
    proto.graph.node[i + 1].input[1] = "halved"


BREAKS = (
    Break("a layer without attention", edit_graph(drop_attention), {"ATT001"}, options=OURS),
    Break("a borrower of another owner", feed(6, 1, "present.0.key"), {"ATT002"}, options=OURS),
    Break("a borrower that adds to the cache", edit_graph(adding), {"ATT002"}, CUDA, options=OURS),
    Break("a borrower of what came in", feed(6, 3, "past_key_values.5.key"), {"STA013"}, CUDA, options=OURS),
    Break("the mask of a full layer", mask_of(0, 4), {"ATT003", "ATT011"}, options=OURS),
    Break("another window", constant(8, 7), {"ATT003"}, options=OURS),
    Break("another window of the kernel", attribute(0, local_window_size=7), {"ATT003"}, CUDA, options=OURS),
    Break("no window", attribute(0, local_window_size=-1), {"ATT003", "ATT011"}, CUDA, options=OURS),
    Break("another window where scores are written out", constant(8, 7), {"ATT003"}, WEBGPU, options=OURS),
    Break("the operator's own scale", attribute(0, scale=None), {"ATT004"}, options=OURS),
    Break(
        "a scale of 0, which is the operator's own", attribute(0, scale=0.0), {"ATT004"}, CUDA, options=OURS
    ),
    Break("scores halved", edit_graph(scaled), {"ATT004"}, WEBGPU, options=OURS),
    Break("scores capped", attribute(0, softcap=30.0), {"ATT005"}, options=OURS),
    Break("other heads", attribute(0, num_heads=8), {"ATT006"}, CUDA, options=OURS),
    Break("other heads of keys", attribute(0, kv_num_heads=2), {"ATT006"}, CUDA, options=OURS),
    Break(
        "other heads in the config",
        edit_json("config.json", lambda c: c.update(num_attention_heads=2)),
        {"ATT006"},
        options=OURS,
    ),
    Break(
        "another head size in the config",
        edit_json("config.json", lambda c: c.update(head_dim=8)),
        {"ATT007", "ATT008"},
        options=OURS,
    ),
    Break("the rotation of the other kind", edit_graph(turned_with), {"ATT008"}, options=OURS),
    Break("rotated twice", attribute(0, do_rotary=1), {"ATT008"}, CUDA, options=OURS),
    Break("causality left to a flag", attribute(6, is_causal=1), {"ATT009"}, options=OURS),
    Break("a mask that depends on weights", edit_graph(from_outside), {"ATT010"}, options=OURS),
    Break(
        "a full layer in the sliding group",
        edit_document(move(4, FULL, SLIDING)),
        {"STA005", "ATT011"},
        options=QUICK,
    ),
    Break(
        "positions compared the other way round",
        edit_graph(unmasked),
        {"ATT003", "ATT011", "ATT012"},
        options=OURS,
    ),
)


@pytest.mark.parametrize("broken", BREAKS, ids=str)
def test_a_broken_package_is_found_out(broken: Break, packages: Packages, tmp_path: Path) -> None:
    check(broken, packages, tmp_path)


@pytest.mark.parametrize("target", ["default", "onnx-standard", "cuda", "webgpu"])
def test_every_dialect_is_read(target: str, packages: Packages) -> None:
    found = attention_nodes(read_graph(packages("tiny", target, "f32"), "model.onnx"))
    assert [node.layer for node in found] == list(range(10))
    assert [node.cache for node in found] == [0, 1, 2, 3, 4, 5, 5, 5, 5, 4]
    assert [node.appends for node in found] == [True] * 6 + [False] * 4
    assert {(node.heads, node.kv_heads, node.scale, node.softcap) for node in found} == {(4, 1, 1.0, 0.0)}
    assert [node.size for node in found] == [16, 16, 16, 16, 32, 16, 16, 16, 16, 32]


def test_a_mask_is_computed(packages: Packages) -> None:
    graph = read_graph(packages(), "model.onnx")
    sliding, full = (attention_nodes(graph)[i].mask for i in (0, 4))
    found = sights(graph, {sliding: True, full: True}, window=20)
    assert (found[sliding].window, found[full].window) == (8, None)
    assert found[sliding].alone == tuple(range(16, 24)) and found[full].alone == tuple(range(24))
    assert found[full].prefill == tuple(tuple(range(i + 1)) for i in range(5))
    assert found[sliding].causal and found[sliding].latest


def test_what_needs_weights_is_not_computed(packages: Packages) -> None:
    graph = read_graph(packages(), "model.onnx")
    with pytest.raises(LookupError, match="it depends on"):
        computed(graph, "logits", Feed(0, 1, 0))


@pytest.mark.parametrize("op_type, given", [("ConstantOfShape", ["huge"]), ("Expand", ["one", "huge"])])
def test_what_would_fill_the_memory_is_not_computed(op_type: str, given: list[str], tmp_path: Path) -> None:
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.INT64, ["n"]) for n in ("input_ids", "mask")]
    weights = [
        numpy_helper.from_array(np.array([1 << 40]), "huge"),
        numpy_helper.from_array(np.array([1]), "one"),
    ]
    graph = helper.make_graph([helper.make_node(op_type, given, ["mask"])], "g", ends[:1], ends[1:], weights)
    (tmp_path / "g.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(LookupError, match=f"{op_type} makes more than 16,777,216 elements"):
        computed(read_graph(tmp_path, "g.onnx"), "mask", Feed(0, 1, 0))
