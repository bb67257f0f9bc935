"""L4 (one forward pass) and L5 (greedy generation): a decoder against recorded answers of the reference."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np

from cabochon.parity.measures import Difference, Threshold, difference, top_two_margin, widest
from cabochon.parity.prompts import Prompt
from cabochon.parity.quality import Quality, quality
from cabochon.parity.reference import Answer
from cabochon.parity.replaced import INT8
from cabochon.parity.routing import firm, undecided
from cabochon.parity.subject import Subject

__all__ = [
    "STRICT",
    "Compared",
    "Generated",
    "Trial",
    "firmly",
    "followed",
    "generated",
    "halves",
    "run",
    "twice",
]

STRICT = Threshold(
    relative=1e-4,
    cosine=1 - 1e-6,
    chosen="f32 against f32: every component within 1e-4 of the largest reference value",
)
NONE: Mapping[str, Answer] = MappingProxyType({})
CEILING, CEILING_8 = 0.1, 1.0
"""The widest limits that are taken from noise; the second where kernels round what they multiply to int8: an untrained
model of ten layers is moved by 0.3 of its largest logit, a trained one by 0.01."""


@dataclass(frozen=True)
class Trial:
    """One way to run a package, the arithmetic of the reference it is compared with, and the limits.

    Without limits its figures are reported and decide nothing. noise: by prompt, how far the reference's own
    rounding moves a logit. None in f32: tokens must be equal. undecided: of a model with experts, by prompt, the
    positions [S] that may be beyond the limits; None where all are held to them. experts: rounding may choose others,
    and then other tokens.
    """

    how: str
    arithmetic: str
    logits: Threshold | None = None
    hidden: Threshold | None = None
    noise: Mapping[str, float] | None = None
    undecided: Mapping[str, np.ndarray] | None = None
    experts: bool = False

    def admits(self, limit: Threshold, name: str, found: Difference) -> bool:
        """True where a prompt is within a limit, at every position that is held to it."""
        free = self.undecided.get(name) if self.undecided else None
        if free is None or len(free) != len(found.cosines):
            return limit.admits(found)
        return bool((limit.within(found) | free).all())

    def mostly(self, limit: Threshold, found: Iterable[Difference]) -> bool:
        """True where at least half of all positions are within a limit, or all are held to it anyway."""
        within = [limit.within(each) for each in found]
        return self.undecided is None or 2 * sum(int(x.sum()) for x in within) >= sum(map(len, within))


@dataclass(frozen=True)
class Disagreement:
    """A step where package and reference choose different tokens after the same ones; margins of logits."""

    step: int
    token: int
    reference_token: int
    margin: float
    reference_margin: float


@dataclass(frozen=True)
class Generated:
    """L5 of one prompt. noise: how far the reference's rounding moves a logit of this prompt, 0 in f32.

    tokens: the package's own greedy tokens. disagreements: found by feeding the *reference's* tokens to the
    end, so that every step is examined even after a first difference.
    """

    tokens: tuple[int, ...]
    expected: tuple[int, ...]
    disagreements: tuple[Disagreement, ...]
    noise: float

    @property
    def equal(self) -> bool:
        """Token for token."""
        return self.tokens == self.expected

    @property
    def verdict(self) -> str:
        """equal; tie: every disagreement lies within the noise, for the reference too; different."""
        if self.equal:
            return "equal"
        within = all(d.reference_margin < self.noise for d in self.disagreements)
        return "tie" if self.disagreements and within else "different"

    @property
    def agreement(self) -> float:
        """The share of the reference's tokens that the package chooses too when all before them were fed."""
        return 1 - len(self.disagreements) / max(len(self.expected), 1)

    @property
    def matched(self) -> int:
        """How many tokens are equal before the first difference."""
        same = [a == b for a, b in zip(self.tokens, self.expected, strict=True)]
        return same.index(False) if False in same else len(same)


@dataclass(frozen=True)
class Compared:
    """All levels of one prompt."""

    prompt: Prompt
    logits: Difference
    hidden: Difference
    generated: Generated | None
    quality: Quality | None = None


def halves(how: str, arithmetic: str, own: Mapping[str, Answer], exact: Mapping[str, Answer]) -> Trial:
    """A trial in an arithmetic that rounds, its limits measured on the reference itself.

    The reference in half precision, or with what it multiplies rounded to int8 (`own`), differs from its f32
    arithmetic on the same weights (`exact`) by its rounding noise. A right package rounds as much, in other places; by
    the triangle inequality the two lie within twice that noise.
    """
    logits = {name: difference(own[name].logits, exact[name].logits) for name in own}
    noise = {name: found.relative * float(np.abs(exact[name].logits).max()) for name, found in logits.items()}
    free = _undecided(own, exact)
    counts = {name: firmly(own[name], exact[name]) for name in own}
    kept = [(own[name], exact[name], n) for name, n in counts.items() if n]
    return Trial(
        how,
        arithmetic,
        twice((difference(a.logits[:n], b.logits[:n]) for a, b, n in kept), arithmetic),
        twice((difference(a.hidden[:n], b.hidden[:n]) for a, b, n in kept), arithmetic),
        noise,
        free,
        experts=any(a.routes for a in own.values()),
    )


def firmly(own: Answer, exact: Answer) -> int:
    """How many positions tell what rounding moves, and not which experts it chooses: the first ones, or all."""
    if own.routes and exact.routes:
        return firm(own.routes, exact.routes)
    return len(exact.logits)


def _undecided(own: Mapping[str, Answer], exact: Mapping[str, Answer]) -> dict[str, np.ndarray] | None:
    ours, theirs = ({name: a.routes for name, a in said.items() if a.routes} for said in (own, exact))
    return undecided(ours, theirs) if ours else None


def twice(noise: Iterable[Difference], arithmetic: str, over: str = "prompts") -> Threshold:
    """Limits of twice what the reference's own rounding in an arithmetic moves it by; never narrower than f32's."""
    noise = list(noise)
    relative, angle = widest(noise) if noise else (np.inf, np.pi)
    ceiling = CEILING_8 if arithmetic.endswith(INT8) else CEILING
    return Threshold(
        relative=max(min(2 * relative, ceiling), STRICT.relative),
        cosine=min(float(np.cos(min(2 * angle, np.pi))), STRICT.cosine),
        chosen="twice the distance of the reference from its own f32 arithmetic on the same weights, "
        f"over all {over} ({relative:.3g} relative, {angle:.3g} rad), at most {ceiling}, "
        f"at least {STRICT.relative}",
    )


def settled(arithmetic: str, found: Sequence[Generated], experts: bool = False) -> bool:
    """Whether generations in an arithmetic that rounds are those of the reference: none differs where it decides.

    Half of them are equal as well, but where inputs of kernels are rounded to int8: that is one more number for every
    32, and what it decides differently in 32 tokens of an untrained model is no fault. With experts, of which rounding
    may choose others: half of the tokens are chosen, each after the reference's before it.
    """
    rounds = arithmetic.endswith(INT8)
    if experts:
        return bool(found) and (rounds or float(np.mean([one.agreement for one in found])) >= 0.5)
    verdicts = [one.verdict for one in found]
    equal = rounds or 2 * verdicts.count("equal") >= len(verdicts)
    return bool(found) and "different" not in verdicts and equal


def run(
    trial: Trial,
    subject: Subject,
    prompts: Sequence[Prompt],
    answers: Mapping[str, Answer],
    progress: Callable[[str], None] = lambda _: None,
    originals: Mapping[str, Answer] = NONE,
) -> list[Compared]:
    """Runs every prompt through the subject and compares it with the recorded answers, and with the original's."""
    return [
        _compared(trial, subject, prompt, answers[prompt.name], originals.get(prompt.name), progress)
        for prompt in prompts
    ]


def _compared(
    trial: Trial,
    subject: Subject,
    prompt: Prompt,
    answer: Answer,
    original: Answer | None,
    progress: Callable[[str], None],
) -> Compared:
    progress(f"{trial.how}: {prompt.name}")
    logits, hidden = subject.forward(prompt.ids)
    noise = trial.noise[prompt.name] if trial.noise else 0.0
    return Compared(
        prompt,
        difference(logits, answer.logits),
        difference(hidden, answer.hidden),
        generated(subject, prompt.ids, answer.tokens, answer.margins, noise) if answer.tokens else None,
        original and quality(logits, original.logits),
    )


class Greedy(Protocol):
    """What generates: a decoder driven by its ports, or a whole package."""

    def greedy(self, ids: Sequence[int], n: int) -> list[int]:
        """The `n` likeliest tokens, one after the other."""
        ...

    def along(self, ids: Sequence[int], tokens: Sequence[int]) -> Iterator[np.ndarray]:
        """The logits [V] from which each of `tokens` would be chosen, when all before it were fed."""
        ...


def generated(
    subject: Greedy, ids: Sequence[int], expected: Sequence[int], margins: Iterable[float], noise: float
) -> Generated:
    """The subject's greedy tokens, the reference's, and where they disagree along the reference's way."""
    return followed(subject, ids, subject.greedy(ids, len(expected)), expected, margins, noise)


def followed(
    subject: Greedy,
    ids: Sequence[int],
    tokens: Sequence[int],
    expected: Sequence[int],
    margins: Iterable[float],
    noise: float,
) -> Generated:
    """Tokens that a subject chose, beside the reference's, and where they disagree along the reference's way."""
    found: list[Disagreement] = []
    if tuple(tokens) != tuple(expected):
        rows = subject.along(ids, expected)
        for step, (row, token, margin) in enumerate(zip(rows, expected, margins, strict=True)):
            if (ours := int(row.argmax())) != token:
                found.append(Disagreement(step, ours, token, top_two_margin(row.astype(np.float64)), margin))
    return Generated(tuple(tokens), tuple(expected), tuple(found), noise)
