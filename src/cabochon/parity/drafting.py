"""One step of a drafter, and several chained, against recorded steps of the reference.

Legend: k steps of a round, V vocabulary, M the target's hidden size, C centroids.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.parity.levels import STRICT, twice
from cabochon.parity.measures import Difference, Threshold, difference, top_two_margin
from cabochon.parity.rounds import Assisted, Said, Steps
from cabochon.parity.subject import NUMPY, Subject

__all__ = ["Chained", "Drafts", "Limits", "Match", "chain", "halved", "match", "replay", "strict"]

Step = Callable[[int, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""(newest token, hidden state [M]) -> logits [V], the next state [M]."""

UNDECIDED = 1e-5
"""In f32: how much closer than the largest score the last centroid taken and the first one left may lie, for it to be
open which of them is taken. Errors of f32 are ten times smaller."""


@dataclass(frozen=True)
class Limits:
    """What a drafter may differ by. routing: centroids whose scores lie closer than this are not decided between."""

    logits: Threshold
    state: Threshold
    routing: float


@dataclass(frozen=True)
class Match:
    """k steps against the reference's. logits: over the tokens that both score, and over all where these are the same.

    jaccard: tokens scored by both, of those scored by either; None for a dense head, which scores all. gaps: how far
    the reference's last centroid taken lies above the first one left.
    """

    logits: Difference
    state: Difference
    jaccard: tuple[float, ...] | None
    gaps: tuple[float, ...]

    def within(self, limits: Limits) -> bool:
        """True where both differences are admitted, and other tokens are scored only where centroids tie."""
        routed = all(
            same == 1 or gap <= limits.routing
            for same, gap in zip(self.jaccard or (), self.gaps, strict=False)
        )
        return routed and limits.logits.admits(self.logits) and limits.state.admits(self.state)


def match(found: Said, expected: Said, taken: int | None) -> Match:
    """Compares answers to the same steps; the scores of `found` are not read. `taken`: centroids, None if dense."""
    if taken is None:
        return Match(
            difference(found.logits, expected.logits), difference(found.states, expected.states), None, ()
        )
    pairs = [_shared(a, b) for a, b in zip(found.logits, expected.logits, strict=True)]
    logits = difference(np.stack([p[0] for p in pairs]), np.stack([p[1] for p in pairs]))
    return Match(
        logits,
        difference(found.states, expected.states),
        tuple(p[2] for p in pairs),
        tuple(gap(scores, taken) for scores in expected.scores),
    )


def _shared(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Both logits [V], without what only one of them scores, and the Jaccard index of the tokens they score."""
    ours, theirs = scored(a), scored(b)
    if np.array_equal(ours, theirs):
        return np.asarray(a), np.asarray(b), 1.0
    both = ours & theirs
    low = b[theirs].min() - 1
    same = float(both.sum() / (ours | theirs).sum())
    return np.where(both, a, low), np.where(both, b, low), same


def scored(logits: np.ndarray) -> np.ndarray:
    """The tokens [V] that an ordered head scored: all others have one value, the least."""
    return np.asarray(logits > logits.min())


def gap(scores: np.ndarray, taken: int) -> float:
    """How far the last of the `taken` best scores [C] lies above the next one; infinite where there is none."""
    if taken >= len(scores):
        return float("inf")
    best = np.sort(np.asarray(scores, np.float64))[::-1]
    return float(best[taken - 1] - best[taken])


def strict(recorded: Iterable[Assisted]) -> Limits:
    """The limits of f32 against f32."""
    return Limits(STRICT, STRICT, UNDECIDED * _largest(s.own.scores for one in recorded for s in one.steps))


def halved(recorded: Iterable[Assisted], taken: int | None, arithmetic: str = "f16") -> Limits:
    """The limits in an arithmetic that rounds, measured on the reference: see `levels.halves`."""
    steps = [s for one in recorded for s in one.steps]
    noise = [match(s.own, s.exact, taken) for s in steps]
    moved = _largest(np.asarray(s.own.scores, np.float64) - s.exact.scores for s in steps)
    return Limits(
        twice((m.logits for m in noise), arithmetic, "steps"),
        twice((m.state for m in noise), arithmetic, "steps"),
        4 * moved,
    )


def _largest(arrays: Iterable[np.ndarray]) -> float:
    return max((float(np.abs(a).max(initial=0.0)) for a in arrays), default=0.0)


@dataclass(frozen=True)
class Drafts:
    """A drafter's graph on onnxruntime's CPU provider, fed through its ports alone."""

    subject: Subject

    @classmethod
    def open(cls, graph: Path, *, threads: int | None = None) -> "Drafts":
        """Loads a drafter's model.onnx. Raises ParityError when onnxruntime refuses it."""
        return cls(Subject.open(graph, threads=threads))

    def step(
        self, inputs: np.ndarray, shared: Mapping[str, Sequence[np.ndarray]], mask: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Logits [V] and projected state [M] of one query: inputs [2M], keys of one row, and which of them count."""
        dtype = NUMPY[self.subject.ports["inputs_embeds"][0]]
        feeds: dict[str, Any] = {
            "inputs_embeds": np.asarray(inputs, dtype)[None, None],
            "attention_mask": mask[None].astype(np.int64),
        }
        for kind, pair in shared.items():
            for part, values in zip(("key", "value"), pair, strict=True):
                feeds[f"shared_kv.{kind}.{part}"] = np.asarray(values, dtype)
        logits, state = self.subject.session.run(["logits", "projected_state"], feeds)
        return logits[0, 0].astype(np.float32), state[0, 0].astype(np.float32)


def replay(drafts: Drafts, steps: Steps) -> Said:
    """Teacher-forced: every step of a round is fed what the reference was fed, and the rejected keys masked out."""
    mask = np.arange(steps.keys + steps.rejected) < steps.keys
    made = [drafts.step(x, steps.shared, mask) for x in steps.inputs]
    logits, states = (np.stack(part) for part in zip(*made, strict=True))
    return Said(logits, states, np.empty((len(made), 0), np.float32))


@dataclass(frozen=True)
class Chained:
    """A round on its own: each step continues from the draft and the state of the one before.

    equal: drafts that are the reference's, from the first on, of `count`. match: the steps up to the first other draft,
    that one included, since until then both were asked the same. margin: how far the reference's draft lies above the
    next best token there, by the largest |logit|; None where all are equal.
    """

    equal: int
    count: int
    match: Match
    margin: float | None


def chain(step: Step, token: int, hidden: np.ndarray, expected: Said, taken: int | None) -> Chained:
    """Lets a drafter continue from the newest token and the target's hidden state [M], as long as the drafts agree."""
    logits, states = list[np.ndarray](), list[np.ndarray]()
    theirs = [int(row.argmax()) for row in expected.logits]
    for draft in theirs:
        made, hidden = step(token, hidden)
        logits.append(made)
        states.append(np.asarray(hidden, np.float32))
        token = int(made.argmax())
        if token != draft:
            break
    n = len(logits)
    agreed = n if token == theirs[n - 1] else n - 1
    said = Said(np.stack(logits), np.stack(states), np.empty((n, 0), np.float32))
    return Chained(
        agreed, len(theirs), match(said, expected.first(n), taken), _margin(expected.logits, agreed)
    )


def _margin(logits: np.ndarray, at: int) -> float | None:
    if at == len(logits):
        return None
    row = np.asarray(logits[at], np.float64)
    return top_two_margin(row) / float(np.abs(row).max())
