"""Rounds of assisted generation, from what was proposed and what came of it."""

import json
from pathlib import Path

import numpy as np
import pytest

from cabochon.parity.rounds import Round, Run, Said, Steps, rounds_of

REFERENCE = json.loads((Path(__file__).parent / "data" / "tiny" / "ref" / "outputs.json").read_bytes())


@pytest.mark.parametrize("name", [name for name in REFERENCE if name.startswith("assistant")])
def test_rounds_are_those_that_transformers_counted(name: str) -> None:
    """Its traces say how many drafts of a round it kept when the next round begins."""
    case, trace = name.split("/", 1)[1], REFERENCE[name]["trace"]
    told = REFERENCE[case]
    proposals = [(round["len"], round["draft"]) for round in trace]
    rounds = rounds_of(proposals, [0] * trace[0]["len"], told["tokens"])
    assert [(r.length, list(r.drafts)) for r in rounds] == [p for p in proposals if p[1]]
    followed = zip(rounds, (r["last_matches"] for r in trace[2:]), strict=False)
    assert all(round.accepted == kept for round, kept in followed)


def test_what_lies_behind_the_end_was_not_kept() -> None:
    rounds = rounds_of([(3, []), (4, [7, 8, 9]), (7, [])], [1, 2, 3], [6, 7, 8])
    assert rounds == (Round(4, (7, 8, 9), 2),)


def test_counters() -> None:
    run = Run((6, 7, 8), (Round(4, (7, 8, 9), 2), Round(6, (1,), 0)), 3)
    assert run.counters() == {
        "rounds": 2, "proposed": 4, "accepted": 2, "rejected": 2, "accepted_per_round": [2, 0],
        "mean_accepted": 1.0, "target_calls": 3,
    }  # fmt: skip
    assert Run((), (), 1).counters()["mean_accepted"] == 0.0


@pytest.mark.parametrize(
    ("before", "situation"),
    [
        (None, "after prefill"),
        (Round(4, (7, 8), 2), "after full acceptance"),
        (Round(4, (7, 8), 1), "after partial acceptance"),
        (Round(4, (7, 8), 0), "after no acceptance"),
    ],
)
def test_situations(before: Round | None, situation: str) -> None:
    nothing = np.empty((0, 0))
    said = Said(nothing, nothing, nothing)
    steps = Steps(Round(9, (1,), 0), before, 0, nothing, {}, said, said)
    assert (steps.situation, steps.keys) == (situation, 8)
