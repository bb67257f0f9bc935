"""Steps of drafters against recorded ones: what is within the limits, and what is open between two centroids."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cabochon.parity.drafting import Drafts, Limits, chain, gap, halved, match, replay, scored, strict
from cabochon.parity.levels import CEILING, STRICT
from cabochon.parity.reference import Answer
from cabochon.parity.rounds import Assisted, Round, Run, Said, Steps
from packages import TINY
from pairs import Pairs

RECORDED = np.load(TINY / "ref" / "drafter_steps.npz")
KINDS = ("full_attention", "sliding_attention")
TAKEN = 4
V, M, C = 12, 3, 6
NOTHING = np.empty((1, 0), np.float32)
LIMITS = Limits(STRICT, STRICT, 1e-5)


def recorded_round() -> Steps:
    """The six steps that transformers' assistant made right after a prefill."""
    part = {name: np.stack([RECORDED[f"{i}.{name}"][0, 0] for i in range(6)])
            for name in ("inputs_embeds", "logits", "projected_state")}  # fmt: skip
    shared = {kind: (RECORDED[f"0.kv_{kind}_key"], RECORDED[f"0.kv_{kind}_value"]) for kind in KINDS}
    keys = int(RECORDED["0.position_ids"].item())
    said = Said(part["logits"], part["projected_state"], np.zeros((6, 8), np.float32))
    drafts = tuple(int(row.argmax()) for row in part["logits"])
    return Steps(Round(keys + 1, drafts, 1), None, 0, part["inputs_embeds"], shared, said, said)


@pytest.fixture(scope="module")
def drafts(pairs: Pairs) -> Drafts:
    return Drafts.open(pairs() / "model.onnx", threads=1)


def test_a_recorded_round_is_replayed(drafts: Drafts) -> None:
    steps = recorded_round()
    found = match(replay(drafts, steps), steps.own, TAKEN)
    assert found.jaccard == (1.0,) * 6
    assert found.logits.agreement == 1
    assert max(found.logits.relative, found.state.relative) < 1e-5
    assert found.within(LIMITS)


@pytest.mark.parametrize("rejected", [1, 6])
def test_rejected_keys_are_masked_out(drafts: Drafts, rejected: int) -> None:
    steps = recorded_round()
    dirty = {kind: tuple(np.pad(x, ((0, 0), (0, 0), (0, rejected), (0, 0)), constant_values=9.0) for x in pair)
             for kind, pair in steps.shared.items()}  # fmt: skip
    found = replay(drafts, replace(steps, shared=dirty, rejected=rejected))
    assert match(found, steps.own, TAKEN).within(LIMITS)


BREAKS: dict[str, Callable[[Steps], Steps]] = {
    "halves swapped": lambda s: replace(s, inputs=np.roll(s.inputs, s.inputs.shape[1] // 2, 1)),
    "one key fewer": lambda s: replace(s, round=replace(s.round, length=s.round.length - 1), rejected=1),
}


@pytest.mark.parametrize("what", BREAKS)
def test_other_feeds_are_not_within_the_limits(drafts: Drafts, what: str) -> None:
    steps = recorded_round()
    assert not match(replay(drafts, BREAKS[what](steps)), steps.own, TAKEN).within(LIMITS)


def test_a_round_on_its_own_is_the_recorded_one(drafts: Drafts) -> None:
    """Rows of tokens are those recorded; states are the drafter's own."""
    steps = recorded_round()
    half, mask = steps.inputs.shape[1] // 2, np.ones(steps.keys, bool)
    rows = iter(steps.inputs)
    own = chain(
        lambda _, h: drafts.step(np.concatenate([next(rows)[:half], h]), steps.shared, mask),
        0, steps.inputs[0, half:], steps.own, TAKEN,
    )  # fmt: skip
    assert (own.equal, own.count, own.margin) == (6, 6, None)
    assert own.match.within(LIMITS)


# A drafter made up: V tokens, C centroids of two tokens each


def row(best: int, active: tuple[int, ...], low: float = 1.0) -> np.ndarray:
    """Logits of an ordered head: `active` tokens are scored, `best` best."""
    logits = np.full(V, low - 1, np.float32)
    logits[list(active)] = [low + i / 8 for i in range(len(active))]
    logits[best] = 4.0
    return logits


def said(*rows: np.ndarray, scores: np.ndarray | None = None) -> Said:
    states = np.tile(np.float32([1, 2, 3]), (len(rows), 1))
    spread = np.tile(np.arange(C, dtype=np.float32), (len(rows), 1)) if scores is None else scores
    return Said(np.stack(rows), states, spread)


def test_scored_tokens_and_gaps() -> None:
    assert scored(row(3, (1, 3, 5))).nonzero()[0].tolist() == [1, 3, 5]
    assert gap(np.float32([1, 5, 2.5, 4]), 2) == 1.5
    assert gap(np.float32([1, 2]), 2) == float("inf")


def test_other_tokens_are_scored_only_where_centroids_tie() -> None:
    ours, theirs = said(row(3, (1, 3, 5, 7))), said(row(3, (1, 3, 5, 9)))
    found = match(ours, theirs, 2)
    assert found.jaccard == (3 / 5,)
    assert found.logits.relative == 0, "tokens that both score have the same scores"
    assert not found.within(LIMITS)
    tie = np.float32([[0, 1, 2, 3, 3.5, 3.5]])
    assert match(ours, said(row(3, (1, 3, 5, 9)), scores=tie), 1).within(LIMITS)
    wrong = said(row(5, (1, 3, 5, 7)))
    assert not match(wrong, said(row(3, (1, 3, 5, 9)), scores=tie), 1).within(LIMITS)


def test_the_rest_counts_where_the_same_tokens_are_scored() -> None:
    ours = row(3, (1, 3, 5))
    ours[ours == ours.min()] = -5.0
    assert not match(said(ours), said(row(3, (1, 3, 5))), 2).within(LIMITS)


def test_a_dense_head_scores_all() -> None:
    logits = np.linspace(-1, 1, V, dtype=np.float32)
    found = match(said(logits), said(logits), None)
    assert (found.jaccard, found.gaps) == (None, ())
    assert found.within(LIMITS)


def test_a_chain_ends_at_the_first_other_draft() -> None:
    told = said(row(3, (1, 3)), row(5, (1, 5)), row(1, (1, 5)))
    ours = iter([row(3, (1, 3)), row(1, (1, 5)), row(1, (1, 5))])
    asked: list[int] = []

    def step(token: int, hidden: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        asked.append(token)
        return next(ours), told.states[0]

    found = chain(step, 8, told.states[0], told, 2)
    assert asked == [8, 3], "what was drafted comes next; nothing is compared behind another draft"
    assert (found.equal, found.count) == (1, 3)
    assert found.margin == pytest.approx((4.0 - 1.0) / 4.0)
    assert not found.match.within(LIMITS)


def assisted(own: Said, exact: Said) -> Assisted:
    steps = Steps(Round(4, (3,), 1), None, 0, NOTHING, {}, own, exact)
    run = Run((), (), 1)
    return Assisted(Answer(NOTHING, NOTHING, (), ()), run, run, (steps,))


def test_limits_are_measured_on_the_reference() -> None:
    own, exact = said(row(3, (1, 3))), said(row(3, (1, 3)) + np.float32(0.01))
    limits = halved([assisted(own, exact)], 2)
    assert limits.logits.relative == pytest.approx(2 * 0.01 / 4.01, rel=1e-3)
    assert limits.routing == 0, "its centroid scores did not move"
    assert "the same weights, over all steps" in limits.logits.chosen
    moved = said(row(3, (1, 3)), scores=exact.scores + np.float32(0.25))
    assert halved([assisted(own, moved)], 2).routing == 1.0
    assert halved([assisted(own, said(2 * row(3, (1, 3))))], 2).logits.relative == CEILING
    assert strict([assisted(own, own)]) == Limits(STRICT, STRICT, 1e-5 * (C - 1))


def test_a_graph_that_is_none(tmp_path: Path) -> None:
    from cabochon.errors import ParityError

    (tmp_path / "model.onnx").write_bytes(b"x")
    with pytest.raises(ParityError, match="onnxruntime refuses the graph"):
        Drafts.open(tmp_path / "model.onnx")
