"""The evidence files of a drafter with a made-up reference: what passes, and what each claim hangs on."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cabochon.parity import drafter_reports
from cabochon.parity.assisted_report import assisted
from cabochon.parity.drafted import Answered, Round, Row, Trial
from cabochon.parity.drafting import Chained, Limits, match
from cabochon.parity.levels import STRICT, Disagreement, Generated
from cabochon.parity.prompts import Prompt
from cabochon.parity.reference import Answer
from cabochon.parity.rounds import Assisted, Run, Said, Steps
from cabochon.parity.rounds import Round as Recorded
from cabochon.runtime.tally import Speculation

NOTHING = np.empty((0, 0), np.float32)
LIMITS = Limits(STRICT, STRICT, 1e-5)
STRICTLY = Trial("here", "f32", LIMITS, True, {})
HALVES = Trial("here in halves", "f16", LIMITS, False, {"p": 0.1})
TOKENS = (5, 6, 7)
ROUNDS = (Recorded(4, (6, 7), 2), Recorded(7, (1, 2), 0), Recorded(8, (3, 4), 1))
FACTS = {"versions": {"x": "1"}}


def said(off: float = 0.0) -> Said:
    logits = np.array([[3, 1, 2], [1, 4, 2]], np.float32) * (1 + np.float32(off))
    return Said(logits, np.array([[1, 2], [3, 4]], np.float32) * (1 + np.float32(off)), NOTHING)


def round(number: int, off: float = 0.0, chained: float = 0.0) -> Round:
    own = said()
    before = ROUNDS[number - 1] if number else None
    steps = Steps(ROUNDS[number], before, number, NOTHING, {}, own, own)
    free = Chained(2, 2, match(said(chained), own, None), None)
    return Round(steps, match(said(off).first(1), own.first(1), None), match(said(off), own, None), free)


def row(off: float = 0.0, chained: float = 0.0, **answered: Any) -> Row:
    run = Run(TOKENS, ROUNDS, 4)
    answer = Answer(NOTHING, NOTHING, TOKENS, (1.0, 1.0, 1.0))
    reference = Assisted(answer, Run(TOKENS, ROUNDS[:2], 3), run, ())
    figures = Speculation("drafter", 6, 3, 3, [], [1, 1, 1], 3, 0.7, 0, 0.1, 0.2)
    plain = Generated(TOKENS, TOKENS, (), 0.0)
    made = replace(Answered(plain, run, figures, reference), **answered)
    rounds = tuple(round(n, off, chained) for n in range(len(ROUNDS)))
    return Row(Prompt("p", (1, 2, 3)), rounds, made, reference)


def documents(*rows: Row, trial: Trial = STRICTLY) -> dict[str, dict[str, Any]]:
    results = [(trial, rows)]
    return {
        "steps": drafter_reports.steps(results, FACTS, 4)[0],
        "bridge": drafter_reports.bridge(results, FACTS)[0],
        "assisted": assisted(results, FACTS)[0],
    }


def passed(*rows: Row, trial: Trial = STRICTLY) -> list[str]:
    return [name for name, document in documents(*rows, trial=trial).items() if document["passed"]]


def test_what_is_right_passes() -> None:
    made = documents(row())
    for document in made.values():
        json.dumps(document, allow_nan=False)
        assert document["passed"] is True
        assert document["versions"] == {"x": "1"}
    steps = made["steps"]["trials"][0]
    assert steps["steps_by_situation"] == {
        "after prefill": 1, "after full acceptance": 1, "after no acceptance": 1, "keys beyond the window": 2,
    }  # fmt: skip
    assert [s["position"] for s in steps["prompts"][0]["steps"]] == [3, 6, 7]
    assert steps["threshold"]["logits"]["max_relative_difference"] == 1e-4
    assert "active_set" not in steps["threshold"], "a dense head has none"
    bridge = made["bridge"]["trials"][0]["prompts"][0]
    assert (bridge["teacher_forced"]["argmax_equal"], bridge["teacher_forced"]["steps"]) == (6, 6)
    assert (bridge["free_running"]["drafts_equal"], bridge["free_running"]["rounds_equal"]) == (6, 3)
    assert made["bridge"]["what_keys_change"]["rounds_after_a_rejection"] == 2
    detail = made["assisted"]["trials"][0]
    assert detail["totals"]["package"]["accepted_per_round"] == [2, 0, 1]
    assert detail["totals"]["transformers"]["accepted_per_round"] == [2, 0]
    assert detail["prompts"][0]["token_ids"] == list(TOKENS)


OTHER = Run((5, 6, 8), ROUNDS, 4)
FEWER = Run(TOKENS, ROUNDS[:1], 4)
WRONG: dict[str, tuple[Callable[[], Row], list[str]]] = {
    "a step differs": (lambda: row(off=2e-4), ["assisted"]),
    "a state differs once it is recycled": (lambda: row(chained=2e-4), ["steps", "assisted"]),
    "the drafter changes a token": (lambda: row(run=OTHER), ["steps", "bridge"]),
    "rounds are others": (lambda: row(run=FEWER), ["steps", "bridge"]),
    "tokens are not the reference's": (
        lambda: row(plain=Generated((5, 6, 8), TOKENS, (Disagreement(2, 8, 7, 1.0, 1.0),), 0.0), run=OTHER),
        ["steps", "bridge"],
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_each_claim_hangs_on_what_was_compared(what: str) -> None:
    make, expected = WRONG[what]
    assert passed(make()) == expected
    assert passed(row(), make()) == expected, "one prompt is enough"


def test_nothing_compared_is_no_proof() -> None:
    assert passed(replace(row(), rounds=())) == ["assisted"]


def test_a_round_that_was_made_sure_of_may_end_early() -> None:
    figures = replace(row().answered.figures, read_again=3)  # pyright: ignore[reportOptionalMemberAccess]
    assert "assisted" in passed(row(run=FEWER, figures=figures))
    assert "assisted" not in passed(row(run=OTHER, figures=figures))


def test_in_halves_what_adds_up_is_reported_and_not_judged() -> None:
    tie = Generated((5, 6, 8), TOKENS, (Disagreement(2, 8, 7, 0.01, 0.01),), 0.1)
    assert passed(row(chained=0.3, run=FEWER), trial=HALVES) == ["steps", "bridge", "assisted"]
    assert "assisted" in passed(row(), row(plain=tie, run=OTHER), trial=HALVES)
    assert "assisted" not in passed(row(plain=tie, run=OTHER), trial=HALVES), (
        "half of all prompts must be equal"
    )
    assert "assisted" not in passed(row(), row(plain=replace(tie, noise=0.001), run=OTHER), trial=HALVES)
    assert "assisted" not in passed(row(run=OTHER), trial=HALVES), (
        "no rounding excuses a drafter that is seen"
    )


def test_a_trial_without_limits_is_reported_beside() -> None:
    beside = replace(STRICTLY, how="beside", limits=None)
    document, line = drafter_reports.steps([(STRICTLY, [row()]), (beside, [row(off=0.5)])], FACTS, None)
    assert document["passed"] is True
    assert [trial["how"] for trial in document["reported_only"]] == ["beside"]
    assert "passed" not in document["reported_only"][0]["prompts"][0]
    assert "3 steps: argmax 3 of 3" in line
