"""l4_parity.json and l5_drafter_rootcause.json of a drafter, made of what was compared. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cabochon.parity.drafted import Round, Row, Trial
from cabochon.parity.drafting import Chained, Match
from cabochon.parity.measures import Difference
from cabochon.parity.prompts import Prompt
from cabochon.parity.quality import Quality
from cabochon.parity.reference import DTYPES
from cabochon.parity.reports import _document
from cabochon.parity.rounds import Run

__all__ = ["SHOWN", "Made", "Results", "bridge", "judged_rows", "qualities", "steps", "summed"]

Results = Sequence[tuple[Trial, Sequence[Row]]]
Made = tuple[dict[str, Any], str]
SHOWN = (
    "keys of all tokens that stand and no others; transformers as it is shows its drafter keys of rejected drafts, "
    "and at times fewer of the window"
)
ROUTING = "the reference's last centroid taken and the first one left have closer scores than this"
CHAINED = {
    True: "every step up to the first other draft is within the limits",
    False: "reported, not judged: in half precision rounding adds up from step to step",
}


def steps(results: Results, facts: Mapping[str, Any], window: int | None) -> Made:
    """l4_parity.json and its one line: the first step of every round, on states of the real target."""
    what = "one step of the drafter at the beginning of every round, on hidden states and keys of the real target"
    trials = [_steps_trial(trial, rows, window) for trial, rows in results]
    judged = [m.first for trial, rows in results if trial.limits for row in rows for m in row.rounds]
    line = f"{len(judged)} steps: {_line(judged)}"
    return {**_document("L4", what, trials, facts), "keys_shown": SHOWN}, line


def bridge(results: Results, facts: Mapping[str, Any]) -> Made:
    """l5_drafter_rootcause.json and its one line: all steps of all rounds, fed by the reference and on their own."""
    what = "all steps of all rounds: teacher-forced with the reference's inputs, and free-running on the drafter's own"
    trials = [_bridge_trial(trial, rows) for trial, rows in results]
    judged = [row for trial, rows in results if trial.limits for row in rows]
    forced = [m.forced for row in judged for m in row.rounds]
    own = [m.chained for row in judged for m in row.rounds if m.chained]
    line = (
        f"teacher-forced {_line(forced)}; free-running {sum(c.equal for c in own)} of {sum(c.count for c in own)} "
        "drafts are the reference's"
    )
    document = {**_document("L5", what, trials, facts), "keys_shown": SHOWN}
    return {**document, "what_keys_change": _what_keys_change(results)}, line


def qualities(results: Results) -> list[tuple[str, list[tuple[Prompt, Quality]]]]:
    """What every trial keeps of the original, where it was compared with that."""
    rows = [(trial, [(row.prompt, row.quality) for row in found if row.quality]) for trial, found in results]
    return [(trial.how.split(";")[0], row) for trial, row in rows if row]


def summed(runs: Iterable[Run]) -> dict[str, Any]:
    """The counters of several runs together."""
    runs = list(runs)
    return Run((), tuple(r for run in runs for r in run.rounds), sum(run.calls for run in runs)).counters()


def _line(matches: Sequence[Match]) -> str:
    if not matches:
        return "nothing was compared"
    agrees = [same for m in matches for same in m.logits.agrees]
    sets = [j for m in matches for j in m.jaccard or ()]
    active = (
        f"active sets {sum(j == 1 for j in sets)} of {len(sets)} equal (Jaccard from {min(sets):.3g}), "
        if sets
        else ""
    )
    return (
        f"{active}argmax {sum(agrees)} of {len(agrees)}, projected_state cosine from "
        f"{min(min(m.state.cosines) for m in matches):.8f}, max relative difference logits "
        f"{max(m.logits.relative for m in matches):.2e}, state {max(m.state.relative for m in matches):.2e}"
    )


def _head(trial: Trial, rows: Sequence[Row]) -> dict[str, Any]:
    head: dict[str, Any] = {"how": trial.how, "reference_arithmetic_dtype": DTYPES[trial.arithmetic]}
    if trial.limits is None:
        return head
    limits: dict[str, Any] = {
        "logits": trial.limits.logits.described(),
        "projected_state": trial.limits.state.described(),
    }
    if any(m.first.jaccard for row in rows for m in row.rounds):
        limits["active_set"] = {
            "jaccard": 1,
            "unless": ROUTING,
            "centroid_scores_closer_than": trial.limits.routing,
        }
    return {**head, "threshold": limits}


def judged_rows(trial: Trial, rows: list[dict[str, Any]], passed: bool = True, **more: Any) -> dict[str, Any]:
    """The verdict of a trial and its rows; a trial without limits has none."""
    if trial.limits is None:
        return {**more, "prompts": [{k: v for k, v in row.items() if k != "passed"} for row in rows]}
    return {**more, "passed": bool(rows) and passed and all(row["passed"] for row in rows), "prompts": rows}


def _steps_trial(trial: Trial, rows: Sequence[Row], window: int | None) -> dict[str, Any]:
    made = [
        {
            **row.prompt.described(),
            "passed": bool(row.rounds) and all(_within(trial, m.first) for m in row.rounds),
            "steps": [_step(m) for m in row.rounds],
        }
        for row in rows
    ]
    every = [m.steps for row in rows for m in row.rounds]
    longer = 0 if window is None else sum(s.keys > window + 1 for s in every)
    covered = {**Counter(s.situation for s in every), "keys beyond the window": longer}
    return {**_head(trial, rows), **judged_rows(trial, made, bool(every), steps_by_situation=covered)}


def _within(trial: Trial, found: Match) -> bool:
    return trial.limits is not None and found.within(trial.limits)


def _step(m: Round) -> dict[str, Any]:
    found: dict[str, Any] = {
        "situation": m.steps.situation,
        "keys": m.steps.keys,
        "position": m.steps.keys,
        "rejected_keys_masked_out": m.steps.rejected,
        "argmax_equal": m.first.logits.agrees[0],
        **_figures(m.first),
    }
    return found


def _figures(m: Match) -> dict[str, Any]:
    active = {} if m.jaccard is None else {"active_set_jaccard": min(m.jaccard), "centroid_gap": min(m.gaps)}
    return {**active, "logits": _part(m.logits), "projected_state": _part(m.state)}


def _part(found: Difference) -> dict[str, float]:
    return {"max_relative_difference": found.relative, "min_cosine": min(found.cosines)}


def _bridge_trial(trial: Trial, rows: Sequence[Row]) -> dict[str, Any]:
    made = [
        {**row.prompt.described(), "passed": _bridged(trial, row), **_forced(row), **_free(row)}
        for row in rows
    ]
    rule: dict[str, Any] = {"free_running_rule": CHAINED[trial.exact]} if trial.limits else {}
    return {**_head(trial, rows), **judged_rows(trial, made, **rule)}


def _bridged(trial: Trial, row: Row) -> bool:
    forced = all(_within(trial, m.forced) for m in row.rounds)
    own = all(_within(trial, m.chained.match) for m in row.rounds if m.chained)
    return bool(row.rounds) and forced and (own or not trial.exact)


def _forced(row: Row) -> dict[str, Any]:
    found = [m.forced for m in row.rounds]
    agrees = [same for m in found for same in m.logits.agrees]
    return {
        "teacher_forced": {
            "rounds": len(found), "steps": len(agrees), "argmax_equal": sum(agrees),
            **_worst(found),
            "widest_margin_lost": max((m.logits.lost_margin() for m in found), default=0.0),
        }
    }  # fmt: skip


def _free(row: Row) -> dict[str, Any]:
    found = [m.chained for m in row.rounds if m.chained]
    if not found:
        return {}
    return {
        "free_running": {
            "rounds": len(found),
            "rounds_equal": sum(c.equal == c.count for c in found),
            "drafts": sum(c.count for c in found),
            "drafts_equal": sum(c.equal for c in found),
            "first_other_drafts": [_other(i, c) for i, c in enumerate(found) if c.margin is not None],
            **_worst([c.match for c in found]),
        }
    }


def _other(round: int, c: Chained) -> dict[str, Any]:
    return {"round": round, "step": c.equal, "reference_relative_margin": c.margin}


def _worst(found: Sequence[Match]) -> dict[str, Any]:
    """The worst figures of several rounds."""
    if not found:
        return {}
    sets = [j for m in found for j in m.jaccard or ()]
    active = (
        {"min_active_set_jaccard": min(sets), "active_sets_equal": sum(j == 1 for j in sets)} if sets else {}
    )
    parts = {"logits": [m.logits for m in found], "projected_state": [m.state for m in found]}
    return active | {
        name: {
            "max_relative_difference": max(d.relative for d in part),
            "min_cosine": min(min(d.cosines) for d in part),
        }
        for name, part in parts.items()
    }


def _what_keys_change(results: Results) -> dict[str, Any]:
    """transformers' own acceptance with the keys it shows, and with valid keys: not the package's doing."""
    rows = [row for trial, rows in results if trial.limits for row in rows]
    return {
        "transformers": summed(row.reference.as_is for row in rows),
        "transformers_with_valid_keys": summed(row.reference.valid for row in rows),
        "rounds_after_a_rejection": sum(m.steps.rejected > 0 for row in rows for m in row.rounds),
    }
