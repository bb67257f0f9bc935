"""l5_assisted_detail.json: whole answers with a drafter and without it, beside transformers'. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cabochon.parity.drafted import Answered, Row, Trial
from cabochon.parity.drafter_reports import SHOWN, Made, Results, judged_rows, summed
from cabochon.parity.levels import settled
from cabochon.parity.reference import DTYPES
from cabochon.parity.reports import _document
from cabochon.parity.rounds import Run

__all__ = ["assisted"]

LOSSLESS = "the drafter changes no token of the package's own greedy generation"
RULE = {
    True: f"{LOSSLESS}; tokens are the reference's; every round proposes and keeps what transformers' does with valid "
    "keys, unless the runtime ended a round early to make sure of a choice (read_again)",
    False: f"{LOSSLESS}; no prompt is 'different' from the reference and at least half are 'equal' (see l5_generation "
    "of text packages); rounds are reported",
}


def assisted(results: Results, facts: Mapping[str, Any]) -> Made:
    """l5_assisted_detail.json and its one line: whole answers and their rounds, beside transformers'."""
    what = "greedy generation with the drafter against plain greedy generation, and its rounds against transformers'"
    results = [(trial, rows) for trial, rows in results if trial.limits]
    trials = [_assisted_trial(trial, rows) for trial, rows in results]
    every = [row.answered for _, rows in results for row in rows if row.answered]
    first = [row.answered for row in results[0][1] if row.answered]
    ours, as_is, valid = (summed(run(a) for a in first) for run in _RUNS.values())
    line = (
        f"{sum(a.lossless for a in every)} of {len(every)} answers equal plain greedy decoding; accepted "
        f"{_rate(ours)}, transformers {_rate(as_is)}, with valid keys {_rate(valid)}"
    )
    return {**_document("L5", what, trials, facts), "keys_shown": SHOWN}, line


_RUNS: Mapping[str, Callable[[Answered], Run]] = {
    "package": lambda a: a.run,
    "transformers": lambda a: a.reference.as_is,
    "transformers_with_valid_keys": lambda a: a.reference.valid,
}


def _rate(total: Mapping[str, Any]) -> str:
    return f"{total['mean_accepted']:.2f} a round ({total['accepted']} of {total['proposed']})"


def _assisted_trial(trial: Trial, rows: Sequence[Row]) -> dict[str, Any]:
    found = [(row, row.answered) for row in rows if row.answered]
    made = [{**row.prompt.described(), **_answer(trial, answered)} for row, answered in found]
    plain = [answered.plain for _, answered in found]
    lenient = not plain or settled(trial.arithmetic, plain, trial.experts)
    totals = {name: summed(run(a) for _, a in found) for name, run in _RUNS.items()}
    head = {
        "how": trial.how,
        "reference_arithmetic_dtype": DTYPES[trial.arithmetic],
        "rule": RULE[trial.exact],
    }
    return {**head, "totals": totals, **judged_rows(trial, made, lenient)}


def _answer(trial: Trial, a: Answered) -> dict[str, Any]:
    plain = a.plain
    alike = plain.equal and (a.same_rounds or a.read_again)
    row: dict[str, Any] = {
        "passed": a.lossless and (alike or not trial.exact),
        "verdict": plain.verdict,
        "equal_to_own_plain_greedy": a.lossless,
        "equal_to_reference_greedy": a.run.tokens == plain.expected,
        "reference_assisted_equals_its_greedy": a.reference.as_is.tokens == plain.expected,
        "rounds_equal_to_reference_with_valid_keys": a.same_rounds,
        "token_ids": list(a.run.tokens),
        "rounds": {name: run(a).counters() for name, run in _RUNS.items()},
        "tokens_per_target_call": a.figures.tokens_per_target_call,
        "read_again": a.figures.read_again,
    }
    if plain.equal and a.lossless:
        return row
    return {
        **row,
        "own_plain_greedy_token_ids": list(plain.tokens),
        "reference_token_ids": list(plain.expected),
        "noise": plain.noise,
        "disagreements_along_the_reference": [asdict(d) for d in plain.disagreements],
    }
