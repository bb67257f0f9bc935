"""Rules on state: cells, groups and aliases against the caches of the graph and the owners of the config."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

import pair_package
from broken import Break, check, edit_document, edit_graph, edit_json, groups, steps, workflow
from packages import Packages

QUICK = {"quick": True}
OURS = {"quick": True, "select": ("PRT", "STA")}
SLIDING, FULL = "sliding_attention", "full_attention"
Document = dict[str, Any]


def aliases(document: Document, group: str = SLIDING) -> dict[str, Any]:
    return groups(document)[group]["ports"]["decoder"]


def alias(cell: str, group: str = SLIDING, **changes: Any) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        aliases(document, group)[cell] |= changes

    return change


def group(name: str = SLIDING, **changes: Any) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        groups(document)[name] |= changes

    return change


def forget_owner(document: Document) -> None:
    """Layer 3 in nothing but the ports of the graph."""
    for part in ("key", "value"):
        del aliases(document)[f"kv.3.{part}"], workflow(document)["state"][f"kv.3.{part}"]


def invent_owner(document: Document) -> None:
    """Layer 6 borrows its cache."""
    for part in ("key", "value"):
        cell = f"kv.6.{part}"
        aliases(document)[cell] = {
            "input": f"past_key_values.6.{part}",
            "output": f"present.6.{part}",
            "role": part,
            "layer": 6,
        }
        workflow(document)["state"][cell] = workflow(document)["state"][f"kv.5.{part}"]


def move(layer: int, source: str, to: str) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        for part in ("key", "value"):
            cell = f"kv.{layer}.{part}"
            aliases(document, to)[cell] = aliases(document, source).pop(cell)
            workflow(document)["state"][cell]["service_group"] = to

    return change


def drop_values(document: Document) -> None:
    del aliases(document)["kv.3.value"]
    workflow(document)["state"].pop("kv.3.value")


def exchange(document: Document) -> None:
    cells = aliases(document)
    for key in ("input", "output"):
        cells["kv.3.key"][key], cells["kv.3.value"][key] = cells["kv.3.value"][key], cells["kv.3.key"][key]


def other_value(document: Document) -> None:
    inputs = next(steps(document, "invoke"))["inputs"]
    one, other = "past_key_values.2.key", "past_key_values.3.key"
    inputs[one], inputs[other] = inputs[other], inputs[one]


def head_size(document: Document) -> None:
    workflow(document)["state"]["kv.4.key"]["contract"]["shape"][3] = 16
    workflow(document)["inputs"]["request.kv.4.key"]["contract"]["shape"][3] = 16
    workflow(document)["components"]["decoder"]["ports"]["inputs"]["past_key_values.4.key"]["shape"][3] = 16


def retype(port: str) -> Any:
    def change(proto: onnx.ModelProto) -> None:
        for value in (*proto.graph.output, *proto.graph.value_info):
            if value.name == port:
                value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16

    return edit_graph(change)


def drop_output(port: str) -> Any:
    def change(proto: onnx.ModelProto) -> None:
        kept = [value for value in proto.graph.output if value.name != port]
        del proto.graph.output[:]
        proto.graph.output.extend(kept)

    return edit_graph(change)


def length_of_room(proto: onnx.ModelProto) -> None:
    """The kernel is told the columns of the buffer: past + new, whatever the mask says."""
    minimum = next(n for n in proto.graph.node if n.op_type == "Min" and n.input[0].startswith("Add"))
    minimum.input[1] = minimum.input[0]


CUDA = ("tiny", "cuda", "f16")
BREAKS = (
    Break("an owner left out", edit_document(forget_owner), {"STA001"}, options=OURS),
    Break("an owner invented", edit_document(invent_owner), {"STA002", "REF024"}, options=QUICK),
    Break("another layer", edit_document(alias("kv.4.key", FULL, layer=0)), {"STA003"}, options=QUICK),
    Break(
        "fewer owners in the config",
        edit_json("config.json", lambda c: c.update(num_kv_shared_layers=5)),
        {"STA004"},
        options=OURS,
    ),
    Break(
        "a full layer among the sliding ones",
        edit_document(move(4, FULL, SLIDING)),
        {"STA005", "ATT011"},
        options=QUICK,
    ),
    Break("keys and values exchanged", edit_document(exchange), {"STA006", "STA017"}, options=QUICK),
    Break(
        "values behind keys",
        edit_document(alias("kv.3.key", output="present.3.value")),
        {"STA001", "STA006", "STA011"},
        options=QUICK,
    ),
    Break(
        "a present for a past",
        edit_document(alias("kv.3.key", input="present.3.key")),
        {"STA001", "STA002", "STA006"},
        options=OURS,
    ),
    Break("keys without values", edit_document(drop_values), {"STA001", "STA007"}, options=OURS),
    Break("a present of another type", retype("present.3.key"), {"PRT004", "STA008"}, options=OURS),
    Break(
        "a present that is missing",
        drop_output("present.3.key"),
        {"PRT001", "STA002", "STA008"},
        options=OURS,
    ),
    Break("another axis", edit_document(group(sequence_axis=1)), {"STA009", "STA010"}, options=QUICK),
    Break("an unknown layout", edit_document(group(layout="qwerty")), {"STA010"}, options=QUICK),
    Break(
        "two cells behind one port",
        edit_document(alias("kv.3.key", input="past_key_values.2.key")),
        {"STA001", "STA003", "STA006", "STA007", "STA011", "STA017"},
        options=OURS,
    ),
    Break(
        "a full cache that may be evicted",
        edit_document(group(FULL, reuse={"prefix_reusable": True, "evictable_prefix": True})),
        {"STA012"},
        options=QUICK,
    ),
    Break(
        "a shared buffer of Attention", edit_document(group(aliasing="permitted")), {"STA013"}, options=QUICK
    ),
    Break(
        "a shared buffer whose room is taken for its length",
        edit_graph(length_of_room),
        {"STA013"},
        CUDA,
        options=OURS,
    ),
    Break("a cell of another head size", edit_document(head_size), {"PRT006", "STA016"}, options=QUICK),
    Break("the cache of another layer handed over", edit_document(other_value), {"STA017"}, options=QUICK),
)


@pytest.mark.parametrize("broken", BREAKS, ids=str)
def test_a_broken_package_is_found_out(broken: Break, packages: Packages, tmp_path: Path) -> None:
    check(broken, packages, tmp_path)


def borrowed(document: Document, group: str = SLIDING) -> dict[str, Any]:
    return groups(document)[group]["ports"]["assistant"]


def anchor(document: Document) -> None:
    """The assistant reads the first sliding layer instead of the last."""
    for part in ("key", "value"):
        borrowed(document)[f"kv.0.{part}"] = borrowed(document).pop(f"kv.1.{part}")
        invoke = next(step for step in steps(document, "invoke") if step["component"] == "assistant")
        invoke["inputs"][f"shared_kv.{SLIDING}.{part}"] = f"request.kv.0.{part}"


PAIRS = (
    Break(
        "an assistant that writes",
        edit_document(lambda d: borrowed(d)["kv.1.key"].update(output="logits")),
        {"STA014", "REF024"},
    ),
    Break("the cache of the first owner", edit_document(anchor), {"STA015"}),
    Break(
        "a cell that nobody advances",
        edit_document(lambda d: groups(d)[SLIDING]["ports"]["target"].pop("kv.1.key")),
        {"STA001", "STA007", "STA014", "SPC008"},
    ),
)


@pytest.mark.parametrize("broken", PAIRS, ids=str)
def test_a_broken_pair_is_found_out(broken: Break, tmp_path: Path) -> None:
    pair_package.check(broken, tmp_path)


def test_the_pair_is_a_good_one(tmp_path: Path) -> None:
    assert not pair_package.judged(pair_package.write(tmp_path)).findings
