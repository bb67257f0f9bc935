"""Rules on ports: what the document says of the graph's inputs and outputs."""

from pathlib import Path
from typing import Any

import onnx
import pytest

from broken import Break, all_of, check, edit_document, edit_graph, steps, workflow
from packages import Packages

QUICK = {"quick": True}
GRAPH = {"quick": True, "select": ("PRT", "REF")}  # an edited graph is no more what the records say


def ports(document: dict[str, Any], side: str) -> dict[str, Any]:
    return workflow(document)["components"]["decoder"]["ports"][side]


def rename_output(old: str, new: str) -> Any:
    def change(proto: onnx.ModelProto) -> None:
        for value in (*proto.graph.output, *proto.graph.value_info):
            value.name = new if value.name == old else value.name
        for node in proto.graph.node:
            for names in (node.input, node.output):
                names[:] = [new if name == old else name for name in names]

    return edit_graph(change)


def infer_ports(document: dict[str, Any]) -> None:
    """Leave the ports to the graph; the roles stay."""
    said = workflow(document)["components"]["decoder"]["ports"]
    said["inputs"], said["outputs"] = {}, {}


def shape(side: str, port: str, axis: int, value: Any) -> Any:
    def change(document: dict[str, Any]) -> None:
        ports(document, side)[port]["shape"][axis] = value

    return change


def swap_batch(document: dict[str, Any]) -> None:
    ports(document, "outputs")["logits"]["shape"][:2] = ["kept", "batch"]
    workflow(document)["outputs"]["logits"]["contract"]["shape"][:2] = ["kept", "batch"]


def layout(document: dict[str, Any]) -> None:
    ports(document, "outputs")["logits"]["batch_layout"]["axis"] = 1
    workflow(document)["outputs"]["logits"]["contract"]["batch_layout"]["axis"] = 1


def rank(document: dict[str, Any]) -> None:
    ports(document, "outputs")["hidden_states.9"] |= {"rank": 2, "shape": ["batch", 64]}


def of_another_length(document: dict[str, Any]) -> None:
    """The application supplies keys of another length than all other sliding caches."""
    workflow(document)["inputs"]["request.kv.0.key"]["contract"]["shape"][2] = "elsewhere"


BREAKS = (
    Break(
        "a port that the graph lacks",
        rename_output("hidden_states.9", "tap"),
        {"PRT001", "PRT002"},
        options=GRAPH,
    ),
    Break(
        "an output left out",
        edit_document(
            lambda d: (
                ports(d, "outputs").pop("hidden_states.9"),
                workflow(d)["components"]["decoder"]["ports"]["roles"].pop("hidden_states.9"),
                next(steps(d, "invoke"))["outputs"].pop("hidden_states.9"),
            )
        ),
        {"PRT002"},
        options=QUICK,
    ),
    Break(
        "a role without a port, ports left to the graph",
        all_of(
            edit_document(infer_ports),
            edit_document(
                lambda d: workflow(d)["components"]["decoder"]["ports"]["roles"].update(ids="token_ids")
            ),
            edit_document(lambda d: workflow(d)["components"]["decoder"]["ports"]["roles"].pop("input_ids")),
        ),
        {"PRT003"},
        options=QUICK,
    ),
    Break(
        "another type",
        edit_document(lambda d: ports(d, "outputs")["hidden_states.9"].update(dtype="float16")),
        {"PRT004"},
        options=QUICK,
    ),
    Break("another rank", edit_document(rank), {"PRT005"}, options=QUICK),
    Break(
        "another size", edit_document(shape("outputs", "hidden_states.9", 2, 65)), {"PRT006"}, options=QUICK
    ),
    Break(
        "a symbol for a size",
        edit_document(shape("outputs", "hidden_states.9", 2, "hidden")),
        {"PRT006"},
        options=QUICK,
    ),
    Break(
        "a number for a symbol",
        edit_document(shape("outputs", "hidden_states.9", 1, 1)),
        {"PRT006"},
        options=QUICK,
    ),
    Break(
        "one symbol for two lengths",
        edit_document(shape("inputs", "past_key_values.0.key", 2, "past_sequence")),
        {"PRT007"},
        options=QUICK,
    ),
    Break(
        "two symbols for one length",
        edit_document(shape("outputs", "hidden_states.9", 1, "rows")),
        {"PRT007"},
        options=QUICK,
    ),
    Break("a value of another length", edit_document(of_another_length), {"PRT009"}, options=QUICK),
    Break("axes swapped", edit_document(swap_batch), {"PRT007"}, options=QUICK),
    Break("rows on another axis", edit_document(layout), {"PRT008"}, options=QUICK),
    Break(
        "rows on an axis that there is not",
        edit_document(lambda d: ports(d, "outputs")["hidden_states.9"]["batch_layout"].update(axis=7)),
        {"PRT008", "REF001"},
        options=QUICK,
    ),
)


@pytest.mark.parametrize("broken", BREAKS, ids=str)
def test_a_broken_package_is_found_out(broken: Break, packages: Packages, tmp_path: Path) -> None:
    check(broken, packages, tmp_path)


def test_where_and_what(packages: Packages, tmp_path: Path) -> None:
    broken = Break(
        "x",
        edit_document(shape("inputs", "past_key_values.4.key", 3, 16)),
        {"PRT006", "REF007"},
        options=QUICK,
    )
    found = [f for f in check(broken, packages, tmp_path).findings if f.code == "PRT006"]
    where = "pipeline.workflow.components.decoder.ports.inputs.past_key_values.4.key.shape[3]"
    assert {f.at for f in found} == {
        f"inference_metadata.yaml: {where}",
    }
    assert found[0].found == "16" and found[0].expected == "32, as in the graph"
