"""What the reference did in assisted generation, round by round, as it was recorded. Pure.

A round begins with `length` tokens, whose newest has no key yet. The drafter proposes, the target verifies.

Legend: k steps of a round, V vocabulary, M the target's hidden size, C centroids (0 for a dense head).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cabochon.parity.reference import Answer
from cabochon.runtime.acceptance import matching

__all__ = ["Assisted", "Recorded", "Round", "Run", "Said", "Steps", "rounds_of"]

Shared = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Keys and values [1, heads, columns, size] of each kind of layer."""


@dataclass(frozen=True)
class Round:
    """`length` tokens stood there, `drafts` were proposed to follow, the first `accepted` of them were kept."""

    length: int
    drafts: tuple[int, ...]
    accepted: int


def rounds_of(
    proposals: Sequence[tuple[int, Sequence[int]]], prompt: Sequence[int], tokens: Sequence[int]
) -> tuple[Round, ...]:
    """Rounds from what was proposed, (length, drafts) each, and from the tokens that came of it.

    Greedy tokens are the target's whoever proposes, so a draft was kept if it and all before it are these tokens.
    Rounds that proposed nothing, at the end of the budget, are left out.
    """
    text = [*prompt, *tokens]
    return tuple(
        Round(length, tuple(drafts), matching(drafts, text[length:]))
        for length, drafts in proposals
        if drafts
    )


@dataclass(frozen=True)
class Run:
    """One generation with a drafter. calls: steps of the target, the prompt's included."""

    tokens: tuple[int, ...]
    rounds: tuple[Round, ...]
    calls: int

    def counters(self) -> dict[str, Any]:
        """What an evidence file states of it."""
        proposed, accepted = sum(len(r.drafts) for r in self.rounds), sum(r.accepted for r in self.rounds)
        return {
            "rounds": len(self.rounds),
            "proposed": proposed,
            "accepted": accepted,
            "rejected": proposed - accepted,
            "accepted_per_round": [r.accepted for r in self.rounds],
            "mean_accepted": accepted / len(self.rounds) if self.rounds else 0.0,
            "target_calls": self.calls,
        }


@dataclass(frozen=True)
class Said:
    """What a drafter answers in the steps of a round: logits [k, V], states [k, M], centroid scores [k, C]."""

    logits: np.ndarray
    states: np.ndarray
    scores: np.ndarray

    def first(self, n: int) -> "Said":
        """The first `n` steps."""
        return Said(self.logits[:n], self.states[:n], self.scores[:n])


@dataclass(frozen=True)
class Steps:
    """The steps of one round: what the reference's drafter was given, and what it said.

    inputs [k, 2M]; shared: keys of every token but the newest and, behind them, of the `rejected` drafts of the round
    before. The reference was shown the former only. own: what it said in the arithmetic of the recording; exact: what
    its weights say to the same inputs in f32.
    """

    round: Round
    before: Round | None
    rejected: int
    inputs: np.ndarray
    shared: Shared
    own: Said
    exact: Said

    @property
    def keys(self) -> int:
        """Keys that count, and the position of the query."""
        return self.round.length - 1

    @property
    def situation(self) -> str:
        """What the target did last: prefill, or a verification that kept all, some or none of the drafts."""
        if self.before is None:
            return "after prefill"
        kept, of = self.before.accepted, len(self.before.drafts)
        return "after full acceptance" if kept == of else f"after {'partial' if kept else 'no'} acceptance"


@dataclass(frozen=True)
class Assisted:
    """One prompt. answer: a forward pass and plain greedy generation of the target.

    as_is: transformers' assisted generation. valid: the same where the drafter is shown the keys of all tokens that
    stand, and no others. steps: those of `valid`.
    """

    answer: Answer
    as_is: Run
    valid: Run
    steps: tuple[Steps, ...]


@dataclass(frozen=True)
class Recorded:
    """Answers by arithmetic ("f32", "f16", "bf16") and prompt name; `identity` says who gave them.

    taken: how many centroids the drafter takes, None for a dense head. width: tokens proposed a round.
    differences: by weight that was replaced, how far it is from the checkpoint's; those of the target as "target: ...".
    """

    identity: Mapping[str, Any]
    taken: int | None
    width: int
    answers: Mapping[str, Mapping[str, Assisted]]
    differences: Mapping[str, float] = field(default_factory=dict[str, float])
