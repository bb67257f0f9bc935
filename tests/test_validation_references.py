"""References: what a workflow names, makes, reads and emits, and what its cells, groups and servers are told."""

import copy
from pathlib import Path
from typing import Any

import pytest

from broken import LOOP, Break, check, edit_document, groups, steps, workflow
from packages import Packages

Document = dict[str, Any]


def decoder(document: Document) -> Document:
    return workflow(document)["components"]["decoder"]


def invoke(document: Document, component: str = "decoder") -> Document:
    return next(step for step in steps(document, "invoke") if step["component"] == component)


def loop(document: Document) -> Document:
    return next(steps(document, "loop"))


def cell(document: Document, name: str = "kv.0.key") -> Document:
    return workflow(document)["state"][name]


def aliases(document: Document) -> Document:
    return groups(document)["sliding_attention"]["ports"]["decoder"]


def doc(name: str, change: Any, codes: set[str]) -> Break:
    return Break(name, edit_document(change), codes, options={"quick": True, "select": ["REF"]})


def inner(name: str, change: Any, codes: set[str]) -> Break:
    return Break(name, edit_document(change, LOOP), codes, options={"quick": True, "select": ["REF"]})


def branch(document: Document, **changes: Any) -> None:
    """A branch in front of the emit, on a value that there is."""
    emit = next(steps(document, "emit"))
    inputs = workflow(document)["inputs"]
    inputs["request.way"] = copy.deepcopy(inputs["request.active"]) | {
        "source": {"kind": "application", "name": "way"}
    }
    inputs["request.way"]["contract"] = {"dtype": "bool", "rank": 0, "shape": []}
    case = {"kind": "invoke", "component": "decoder", "inputs": dict(invoke(document)["inputs"])}
    taken = {
        "true": {**case, "outputs": renamed(document, "yes.")},
        "false": {**case, "outputs": renamed(document, "no.")},
    }
    step = {"kind": "branch", "predicate": "request.way", "cases": taken}
    step["outputs"] = {
        "chosen.logits": {"cases": {"true": "yes.decoder.logits", "false": "no.decoder.logits"}}
    }
    step |= changes
    workflow(document)["steps"].insert(-1, step)
    emit["value"] = "chosen.logits"
    said = workflow(document)["manifest"]["capabilities"]
    said += [name for name in ("linear_effects", "nested_control_flow") if name not in said]
    said.remove("linear_effects")


def renamed(document: Document, prefix: str) -> Document:
    return {port: prefix + value for port, value in invoke(document)["outputs"].items()}


def image(document: Document) -> None:
    workflow(document)["outputs"]["logits"]["role"] = "image"


def session(document: Document) -> None:
    cell(document)["session"] = {"policy": "exclusive"}


def adapter(document: Document) -> None:
    workflow(document)["components"]["sound"] = {
        "implementation": {"kind": "adapter", "abi": "x", "version": "1"},
        "ports": {},
    }


def override(input_: str, **constraint: float) -> Any:
    said: Document = {"input": input_} | ({"constraint": constraint} if constraint else {})
    return lambda d: d.update(generation={"overrides": {"temperature": said}})


def without_rows(document: Document) -> None:
    for where in (cell(document), workflow(document)["inputs"]["request.kv.0.key"]):
        where["contract"].pop("batch_layout", None)


BREAKS = (
    doc("a rank that is none of the shape's", lambda d: cell(d)["contract"].update(rank=3), {"REF001"}),
    doc(
        "rows beyond the last axis", lambda d: cell(d)["contract"]["batch_layout"].update(axis=4), {"REF001"}
    ),
    doc("rows on a fixed axis", lambda d: cell(d)["contract"]["batch_layout"].update(axis=3), {"REF001"}),
    doc(
        "a value that nothing makes",
        lambda d: invoke(d)["inputs"].update(input_ids="request.ids"),
        {"REF002"},
    ),
    doc("an emit in front", lambda d: workflow(d)["steps"].reverse(), {"REF002"}),
    doc(
        "a cell that begins with nothing", lambda d: cell(d).update(initializer="request.nothing"), {"REF002"}
    ),
    inner("a next that nothing makes", lambda d: loop(d)["carried"][0].update(next="nothing"), {"REF002"}),
    inner(
        "a value of the inside read in front",
        lambda d: loop(d).update(max_iterations="loop.iteration"),
        {"REF002"},
    ),
    doc("a value made twice", lambda d: workflow(d)["steps"].append(copy.deepcopy(invoke(d))), {"REF003"}),
    doc("an unknown component", lambda d: invoke(d).update(component="encoder"), {"REF004"}),
    doc(
        "a group of an unknown component",
        lambda d: groups(d)["full_attention"]["ports"].update(encoder={}),
        {"REF004"},
    ),
    doc(
        "an input that there is not",
        lambda d: invoke(d)["inputs"].update(token_ids="request.input_ids"),
        {"REF005"},
    ),
    doc(
        "an output that there is not",
        lambda d: invoke(d)["outputs"].update(scores="decoder.scores"),
        {"REF005"},
    ),
    doc("an input left out", lambda d: invoke(d)["inputs"].pop("attention_mask"), {"REF006"}),
    doc("another type", lambda d: cell_and_input(d, dtype="float16"), {"REF007"}),
    doc("another head size", lambda d: port(d)["shape"].__setitem__(3, 999), {"REF007"}),
    doc("an output of another width", lambda d: output(d)["shape"].__setitem__(2, 7), {"REF007"}),
    inner(
        "a cell of another type",
        lambda d: cell(d, "active")["contract"].update(dtype="int64"),
        {"REF007", "REF016", "REF025"},
    ),
    doc("an unknown output", lambda d: next(steps(d, "emit")).update(output="scores"), {"REF008", "REF009"}),
    doc(
        "a profile of an unknown output",
        lambda d: d.update(profiles={"p": {"kind": "generation", "version": "1", "outputs": {"x": "y"}}}),
        {"REF008"},
    ),
    doc(
        "an output that is never emitted",
        lambda d: workflow(d)["outputs"].update(more=copy.deepcopy(workflow(d)["outputs"]["logits"])),
        {"REF009"},
    ),
    doc("no emit", lambda d: workflow(d)["steps"].pop(), {"REF009", "REF015"}),
    inner(
        "an unknown cell",
        lambda d: loop(d)["carried"][0].update(cell="nothing"),
        {"REF002", "REF010", "REF011"},
    ),
    doc(
        "lengths in an unknown cell",
        lambda d: groups(d)["full_attention"].update(logical_lengths="nothing"),
        {"REF010"},
    ),
    doc(
        "an orphan cell",
        lambda d: workflow(d)["state"].update({"kv.99.key": copy.deepcopy(cell(d))}),
        {"REF011"},
    ),
    doc("an unknown group", lambda d: cell(d).update(service_group="local"), {"REF012"}),
    doc("a cell in another's group", lambda d: cell(d).update(service_group="full_attention"), {"REF012"}),
    doc(
        "a cascade to nowhere",
        lambda d: groups(d)["full_attention"].update(capabilities={"cascade": ["x"]}),
        {"REF012"},
    ),
    doc(
        "a role of no port",
        lambda d: decoder(d)["ports"]["roles"].update(position_ids="position_ids"),
        {"REF013"},
    ),
    doc(
        "two ports of one role",
        lambda d: decoder(d)["ports"]["roles"].update({"present.0.key": "logits"}),
        {"REF013"},
    ),
    doc(
        "a capability too many",
        lambda d: workflow(d)["manifest"]["capabilities"].append("input_presence"),
        {"REF015"},
    ),
    doc(
        "a capability too few",
        lambda d: workflow(d)["manifest"]["capabilities"].remove("typed_emit"),
        {"REF015"},
    ),
    doc(
        "a condition that is no bool",
        lambda d: next(steps(d, "emit")).update(when="request.accepted_len"),
        {"REF016"},
    ),
    inner("a limit of many elements", lambda d: loop(d).update(max_iterations=first_rows(d)), {"REF016"}),
    doc(
        "a branch without a case for its output",
        lambda d: branch(d, outputs={"chosen.logits": {"cases": {"true": "yes.decoder.logits"}}}),
        {"REF017"},
    ),
    doc("a branch without cases", lambda d: branch(d, cases={}, outputs={}), {"REF002", "REF017"}),
    doc("a good branch", branch, set()),
    doc(
        "an empty sequence",
        lambda d: workflow(d)["steps"].append({"kind": "sequence", "steps": []}),
        {"REF018"},
    ),
    doc("no steps", lambda d: workflow(d)["steps"].clear(), {"REF009", "REF015", "REF018"}),
    doc("a request without a role", lambda d: first_input(d).update(role={"kind": "opaque"}), {"REF019"}),
    doc("optional without a default", lambda d: first_input(d).update(required=False), {"REF019"}),
    doc(
        "presence of what is always there",
        lambda d: first_input(d).update(present_as="there"),
        {"REF015", "REF019"},
    ),
    doc("a literal without a value", lambda d: first_input(d).update(source={"kind": "literal"}), {"REF019"}),
    doc("an image without a range", image, {"REF020"}),
    doc(
        "tokens with a range",
        lambda d: workflow(d)["outputs"]["logits"].update(value_range="zero_to_one"),
        {"REF020"},
    ),
    doc(
        "a component with a dot",
        lambda d: workflow(d)["components"].update({"a.b": copy.deepcopy(decoder(d))}),
        {"REF021"},
    ),
    doc("an adapter that is not pinned", adapter, {"REF021"}),
    doc("an override of no contract", lambda d: decoder(d).update(application_overridable=True), {"REF021"}),
    doc(
        "a contract over no port",
        lambda d: decoder(d).update(contract={"id": "x", "version": "1", "bindings": {"a": "b"}}),
        {"REF021"},
    ),
    doc("an undeclared effect", lambda d: decoder(d).update(effects=["world"]), {"REF015", "REF022"}),
    doc(
        "a cell on another axis than its group",
        lambda d: cell(d).update(recurrence={"kind": "bounded", "axis": 1, "max": "request.accepted_len"}),
        {"REF015", "REF023"},
    ),
    doc(
        "a cell that the workflow manages in a group",
        lambda d: (cell(d).update(management="workflow"), cell(d).pop("release_boundary")),
        {"REF023"},
    ),
    doc("a cell that is never released", lambda d: cell(d).pop("release_boundary"), {"REF023"}),
    doc("a session's boundary without one", lambda d: cell(d).update(release_boundary="session"), {"REF023"}),
    doc("a lease without a session", session, {"REF015", "REF023"}),
    doc("a cell without rows", without_rows, {"REF023"}),
    doc("appended without an axis", lambda d: groups(d)["full_attention"].pop("sequence_axis"), {"REF024"}),
    doc(
        "replaced with an axis",
        lambda d: groups(d)["full_attention"].update(update={"kind": "replace"}),
        {"REF024"},
    ),
    doc(
        "an axis that there is not", lambda d: groups(d)["full_attention"].update(sequence_axis=4), {"REF024"}
    ),
    doc(
        "roll-back by nothing",
        lambda d: groups(d)["full_attention"].update(capabilities={"rollback_positions": 0}),
        {"REF024"},
    ),
    doc("an alias that writes nowhere", lambda d: aliases(d)["kv.0.key"].pop("output"), {"REF024"}),
    doc(
        "an alias that only reads, and writes",
        lambda d: aliases(d)["kv.0.key"].update(access="read_only"),
        {"REF024"},
    ),
    doc(
        "an alias of an undeclared port", lambda d: aliases(d)["kv.0.key"].update(input="past.0"), {"REF024"}
    ),
    doc("two aliases without layers", lambda d: [a.pop("layer") for a in aliases(d).values()], {"REF024"}),
    doc("no accepted_len", lambda d: workflow(d)["serving"].pop("accepted_len"), {"REF025"}),
    doc(
        "active that is no bool",
        lambda d: workflow(d)["serving"].update(active="request.accepted_len"),
        {"REF025"},
    ),
    doc("done that there is not", lambda d: workflow(d)["serving"].update(done="nothing"), {"REF025"}),
    doc("a cache that is handed out", lambda d: hand_out(d), {"REF026"}),
    doc("an override through nothing", override("nothing"), {"REF027"}),
    doc("an override through what is no role", override("request.active"), {"REF027"}),
    doc(
        "an override within an empty range",
        override("request.input_ids", minimum=2.0, maximum=1.0),
        {"REF027"},
    ),
)


def first_input(document: Document) -> Document:
    return workflow(document)["inputs"]["request.input_ids"]


def port(document: Document) -> Document:
    return decoder(document)["ports"]["inputs"]["past_key_values.0.key"]


def output(document: Document) -> Document:
    return workflow(document)["outputs"]["logits"]["contract"]


def cell_and_input(document: Document, **change: Any) -> None:
    for where in (cell(document), workflow(document)["inputs"]["request.kv.0.key"]):
        where["contract"].update(change)


def first_rows(document: Document) -> str:
    """An integer input with a value a row."""
    inputs = workflow(document)["inputs"].items()
    return next(
        n for n, i in inputs if i["contract"]["dtype"] == "int64" and i["contract"]["shape"] == ["batch"]
    )


def hand_out(document: Document) -> None:
    """An output with the name of a cell that the runtime manages."""
    made = copy.deepcopy(workflow(document)["outputs"]["logits"])
    made["contract"] = copy.deepcopy(cell(document)["contract"])
    workflow(document)["outputs"]["kv.0.key"] = made
    emit = {"kind": "emit", "value": "request.kv.0.key", "output": "kv.0.key", "mode": "replace"}
    workflow(document)["steps"].append(emit)


@pytest.mark.parametrize("broken", BREAKS, ids=str)
def test_a_broken_package_is_found_out(broken: Break, packages: Packages, tmp_path: Path) -> None:
    check(broken, packages, tmp_path)
