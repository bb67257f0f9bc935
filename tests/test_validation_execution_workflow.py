"""The interpreter of workflows: every kind of step, and what it says of steps that cannot be carried out."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from cabochon.errors import PackageError
from cabochon.metadata.document import Workflow
from cabochon.validation.execution.workflow import Execution

ROW = {"dtype": "int64", "shape": ["batch"]}


class Fake:
    """A component that computes in Python."""

    def __init__(self, compute: Callable[..., Any]) -> None:
        self.compute = compute

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {"out": np.asarray(self.compute(**feeds))}


PARTS = {
    "add": Fake(lambda a, b: a + b),
    "below": Fake(lambda a, b: a < b),
    "column": Fake(lambda a: a[:, None]),
}


def run(steps: list[dict[str, Any]], inputs: dict[str, Any], state: dict[str, str] | None = None) -> Any:
    """What the steps emit. `state`: cells and their initializers."""
    cell = {"contract": ROW, "scope": "invocation", "recurrence": {"kind": "invariant"}}
    workflow = Workflow.model_validate(
        {
            "manifest": {},
            "components": {name: {"implementation": {"kind": "binding"}} for name in PARTS},
            "state": {name: {**cell, "initializer": first} for name, first in (state or {}).items()},
            "steps": steps,
        }
    )
    return Execution(workflow, PARTS, {k: np.asarray(v) for k, v in inputs.items()}, "doc").run()


def call(component: str, out: str, **inputs: str) -> dict[str, Any]:
    return {"kind": "invoke", "component": component, "inputs": inputs, "outputs": {"out": out}}


def emit(value: str, mode: str = "replace", **more: Any) -> dict[str, Any]:
    return {"kind": "emit", "value": value, "output": "y", "mode": mode, **more}


def loop(steps: list[dict[str, Any]], *carried: tuple[str, str], **more: Any) -> dict[str, Any]:
    cells = [{"cell": cell, "next": following} for cell, following in carried]
    said = {"kind": "loop", "steps": steps, "continue_when": "on", "max_iterations": "most", "carried": cells}
    return said | more


def test_one_step_after_another_and_sequences_inside():
    inner = {"kind": "sequence", "steps": [call("add", "s", a="x", b="x"), call("add", "t", a="s", b="x")]}
    assert run([inner, emit("t")], {"x": [1, 2]})["y"].tolist() == [3, 6]


def test_a_loop_carries_cells_all_at_once_until_its_condition_fails():
    turn = [
        call("add", "next", a="first", b="second"),
        call("below", "more", a="next", b="limit"),
        call("column", "slot", a="first"),
        emit("slot", "append"),
    ]
    emitted = run(
        [loop(turn, ("first", "second"), ("second", "next"), ("on", "more"))],
        {"one": [1], "yes": [True], "limit": [13], "most": 99},
        {"first": "one", "second": "one", "on": "yes"},
    )
    # 13 is not below 13: the turn that makes it is the last
    assert np.concatenate(emitted["y"][0]).tolist() == [1, 1, 2, 3, 5]


def test_a_loop_is_tested_before_each_turn_and_ends_with_its_last_values():
    turn = [call("add", "next", a="sum", b="turn")]
    steps = [
        loop(turn, ("sum", "next"), iteration={"value": "turn", "contract": {"dtype": "int64", "shape": [1]}})
    ]
    given = {"zero": [0], "on": [True], "most": [4]}
    assert run([*steps, emit("sum")], given, {"sum": "zero"})["y"].tolist() == [0 + 0 + 1 + 2 + 3]
    assert run([*steps, emit("sum")], given | {"on": [False]}, {"sum": "zero"})["y"].tolist() == [0]


def test_setup_comes_before_the_cells_and_an_initial_value_takes_the_place_of_the_initializer():
    steps = loop([], setup=[call("add", "two", a="one", b="one")])
    steps["carried"] = [{"cell": "c", "initial": "two", "next": "c"}]
    assert run([steps, emit("c")], {"one": [1], "on": True, "most": 1}, {"c": "one"})["y"].tolist() == [2]


def test_rows_get_what_when_and_valid_length_leave_them():
    steps = [emit("x", "append", when="who", valid_length="many"), emit("x", "append", when="who")]
    given = {"x": [[1, 2], [3, 4], [5, 6]], "who": [True, False, True], "many": [1, 2, 0]}
    rows = run(steps, given)["y"]
    assert [np.concatenate(parts).tolist() if parts else [] for parts in rows] == [[1, 1, 2], [], [5, 6]]


def test_events_come_one_by_one_and_only_when_said():
    steps = [emit("x", "event"), emit("z", "event", when="no"), emit("z", "event")]
    assert [int(v) for v in run(steps, {"x": 1, "z": 2, "no": [False]})["y"]] == [1, 2]


@pytest.mark.parametrize(("value", "expected"), [(True, 2), (False, 0), (0, 0), (7, 0)])
def test_a_branch_takes_the_case_that_the_predicate_spells(value, expected):
    branch = {
        "kind": "branch",
        "predicate": "p",
        "cases": {"true": call("add", "doubled", a="x", b="x")},
        "default": call("add", "same", a="x", b="zero"),
        "outputs": {"chosen": {"cases": {"true": "doubled"}, "default": "zero"}},
    }
    assert int(run([branch, emit("chosen")], {"p": value, "x": 1, "zero": 0})["y"]) == expected


FAULTS = {
    "a value that nothing made": ([emit("nothing")], "doc.steps[0].value", "'nothing' has no value yet"),
    "a component without a graph": (
        [call("else", "y", a="x")],
        "doc.steps[0]",
        "component 'else' has no graph",
    ),
    "an output that is not made": (
        [{"kind": "invoke", "component": "column", "inputs": {"a": "x"}, "outputs": {"other": "y"}}],
        "doc.steps[0]",
        "no output 'other' was made",
    ),
    "no case for the predicate": (
        [{"kind": "branch", "predicate": "on", "cases": {"false": emit("x")}}],
        "doc.steps[0]",
        "no case 'true' and no default",
    ),
    "a loop without an end": ([loop([])], "doc.steps[0]", "more than 64 turns"),
    "a limit of two values": (
        [loop([], max_iterations="x")],
        "doc.steps[0].max_iterations",
        "'x' has 2 values; expected one number",
    ),
    "a cell that begins with nothing": (
        [loop([], ("c", "x"))],
        "doc.steps[0].carried.c",
        "has no value yet",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_step_that_cannot_be_carried_out_is_named(name):
    steps, at, message = FAULTS[name]
    with pytest.raises(PackageError, match=message.replace("'", ".")) as caught:
        run(steps, {"x": [1, 2], "on": True, "most": 100})
    assert caught.value.at == at
