"""The evidence files of L4 and L5, made of what was compared. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cabochon.parity.levels import Compared, Generated, Trial, settled
from cabochon.parity.measures import Difference, Threshold
from cabochon.parity.prompts import Prompt
from cabochon.parity.quality import Quality
from cabochon.parity.reference import DTYPES
from cabochon.parity.replaced import INT8
from cabochon.parity.routing import RULE

__all__ = ["generation", "hidden_states", "logits", "qualities"]

Results = Sequence[tuple[Trial, Sequence[Compared]]]
TIE = (
    ". 'tie' means: the reference's tokens were fed to the end, and wherever the package would choose another, the "
    "reference's own top-2 margin is below `noise`, by which its rounding moves a logit of this prompt: the dtype does "
    "not decide there"
)

EXPERTS = (
    "rounding may choose other experts, and the f32 twin is held to every token: at least half of the reference's "
    "tokens are chosen too, each after all before it were fed"
)


def _rule(trial: Trial) -> str:
    if trial.noise is None:
        return "every prompt generates the reference's tokens, token for token"
    half = "" if trial.arithmetic.endswith(INT8) else " and at least half are 'equal'"
    if trial.experts:
        return EXPERTS if half else f"{EXPERTS.split(':')[0]}; its tokens are reported"
    return f"no prompt is 'different'{half}{TIE}"


def logits(results: Results, facts: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """l4_parity.json and its one line: cosine, relative difference and top-1 agreement per prompt."""

    def row(found: Difference) -> dict[str, Any]:
        agreement = {"top1_agreement": found.agreement, "widest_margin_lost": found.lost_margin()}
        return {**found.described(), **agreement}

    what = "logits of one forward pass, every position of every prompt"
    return _forward("L4", what, results, facts, "logits", row)


def hidden_states(results: Results, facts: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """l4_hidden_state.json and its one line: the tap after the final norm against the reference's."""
    what = "output hidden_states.{L-1} against the reference's hidden_states[-1] (after the final norm)"
    return _forward("L4", what, results, facts, "hidden", Difference.described)


def generation(results: Results, facts: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """l5_generation.json and its one line: greedy tokens per prompt."""
    results = [(trial, found) for trial, found in results if trial.logits]
    trials = [_generation_trial(trial, [c for c in found if c.generated]) for trial, found in results]
    every = [c.generated for _, found in results for c in found if c.generated]
    equal, ties = sum(g.equal for g in every), sum(g.verdict == "tie" for g in every)
    line = f"{equal} of {len(every)} generations equal, {ties} ties, {len(every) - equal - ties} different"
    return _document("L5", "greedy generation, token for token", trials, facts), line


def qualities(results: Results) -> list[tuple[str, list[tuple[Prompt, Quality]]]]:
    """What every trial keeps of the original, where it was compared with that."""
    rows = [(trial, [(c.prompt, c.quality) for c in found if c.quality]) for trial, found in results]
    return [(trial.how.split(";")[0], row) for trial, row in rows if row]


def _forward(
    level: str,
    what: str,
    results: Results,
    facts: Mapping[str, Any],
    part: str,
    row: Callable[[Difference], Any],
) -> tuple[dict[str, Any], str]:
    trials = [_forward_trial(trial, getattr(trial, part), found, part, row) for trial, found in results]
    judged = [(trial, found) for trial, found in results if trial.logits]
    rounding = [(trial, found) for trial, found in judged if trial.arithmetic.endswith(INT8)]
    exact = [(trial, found) for trial, found in judged if not trial.arithmetic.endswith(INT8)]
    every: list[Difference] = [getattr(c, part) for _, found in exact or judged for c in found]
    relative, cosine = max(d.relative for d in every), min(min(d.cosines) for d in every)
    line = f"max relative difference {relative:.2e}, min cosine {cosine:.8f}"
    if part == "logits":
        positions = [same for d in every for same in d.agrees]
        line += f", top-1 agreement {sum(positions)} of {len(positions)} positions"
    for _, found in rounding if exact else ():
        line += f"; {_largest(found, part):.2e} where both round to int8"
    for trial, found in results:
        if not trial.logits:
            line += f"; {_largest(found, part):.2e} from the reference in {trial.arithmetic} arithmetic"
    return _document(level, what, trials, facts), line


def _largest(found: Iterable[Compared], part: str) -> float:
    return max(getattr(c, part).relative for c in found)


def _forward_trial(
    trial: Trial,
    limit: Threshold | None,
    found: Iterable[Compared],
    part: str,
    row: Callable[[Difference], Any],
) -> dict[str, Any]:
    pairs: list[tuple[Prompt, Difference]] = [(c.prompt, getattr(c, part)) for c in found]
    if limit is None:
        return {**_head(trial), "prompts": [{**p.described(), **row(d)} for p, d in pairs]}
    rows = [{**p.described(), **row(d), "passed": trial.admits(limit, p.name, d)} for p, d in pairs]
    passed = bool(rows) and all(r["passed"] for r in rows) and trial.mostly(limit, (d for _, d in pairs))
    return {**_head(trial), "threshold": limit.described(), "passed": passed, "prompts": rows}


def _generation_trial(trial: Trial, found: Sequence[Compared]) -> dict[str, Any]:
    rows = [{**c.prompt.described(), **_generation_row(c.generated)} for c in found if c.generated]
    made = [c.generated for c in found if c.generated]
    exact = bool(made) and all(one.equal for one in made)
    passed = exact if trial.noise is None else settled(trial.arithmetic, made, trial.experts)
    return {**_head(trial), "rule": _rule(trial), "passed": passed, "prompts": rows}


def _generation_row(g: Generated) -> dict[str, Any]:
    row = {
        "verdict": g.verdict,
        "new_tokens": len(g.expected),
        "equal_before_first_difference": g.matched,
        "token_ids": list(g.tokens),
    }
    if g.equal:
        return row
    return {
        **row,
        "reference_token_ids": list(g.expected),
        "noise": g.noise,
        "disagreements_along_the_reference": [asdict(d) for d in g.disagreements],
    }


def _head(trial: Trial) -> dict[str, Any]:
    experts = {} if trial.undecided is None else {"undecided": RULE}
    return {"how": trial.how, "reference_arithmetic_dtype": DTYPES[trial.arithmetic], **experts}


def _document(
    level: str, what: str, trials: list[dict[str, Any]], facts: Mapping[str, Any]
) -> dict[str, Any]:
    judged = [trial for trial in trials if "passed" in trial]
    reported = [trial for trial in trials if "passed" not in trial]
    passed = bool(judged) and all(trial["passed"] for trial in judged)
    document = {"level": level, "what": what, "passed": passed, **facts, "trials": judged}
    return {**document, "reported_only": reported} if reported else document
