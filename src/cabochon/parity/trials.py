"""A drafter's package tried in every way it can be run, each beside the arithmetic it is compared with."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cabochon.parity.assisting import Speculating, alone
from cabochon.parity.built import Built
from cabochon.parity.drafted import Answered, Round, Row, Trial
from cabochon.parity.drafting import Chained, Drafts, Match, halved, match, replay, strict
from cabochon.parity.levels import Generated, generated, halves
from cabochon.parity.prompts import Prompt
from cabochon.parity.quality import Quality, quality
from cabochon.parity.rounds import Assisted, Recorded, Steps
from cabochon.parity.subject import Subject
from cabochon.parity.whole import Whole
from cabochon.parity.widened import is_full, widen, widen_pair

__all__ = ["ROLES", "TARGET", "Check"]

TARGET = "target"
ROLES = {False: "drafter", True: "pair"}


@dataclass(frozen=True)
class Check:
    """A package, what it is asked, and what the reference was heard to say; the original checkpoints too, where the
    package is quantized."""

    package: Path
    asked: Sequence[Prompt]
    recorded: Recorded
    new_tokens: int
    threads: int | None
    progress: Callable[[str], None]
    originals: Mapping[str, Assisted] = field(default_factory=dict[str, Assisted])

    @property
    def pair(self) -> bool:
        """True where the drafter has its target with it."""
        return (self.package / TARGET).is_dir()

    def results(self, how: Built, twin: Path) -> list[tuple[Trial, list[Row]]]:
        """Every trial with its rows, one after the other."""
        return [(trial, self._rows(trial, place)) for trial, place in self._trials(how, twin)]

    def _trials(self, how: Built, twin: Path) -> Iterator[tuple[Trial, Path]]:
        """The package itself where a CPU can run it, its f32 twin where that rounds; where each lies."""
        answers, own = self.recorded.answers, how.own
        limits = strict(answers["f32"].values())
        if own == "f32" and not how.rough:
            yield Trial(how.direct, "f32", limits, True, {}), self.package
            return
        if how.rough:
            yield Trial(how.direct, "f32", None, False, {}), self.package
        elif how.runs:
            rough, exact = ({name: a.answer for name, a in answers[p].items()} for p in (own, "f32"))
            half = halved(answers[own].values(), self.recorded.taken, own)
            told = halves("", own, rough, exact)
            yield Trial(how.direct, own, half, False, told.noise or {}, told.experts), self.package
        (widen_pair if self.pair else widen)(self.package, twin)
        yield Trial(how.twin, "f32", limits, True, {}), twin
        if not how.runs:
            yield Trial(how.beside, own, None, False, {}), twin

    def _rows(self, trial: Trial, place: Path) -> list[Row]:
        """The drafter by itself, the target by itself, then both together: no target is in memory twice."""
        answers, taken = self.recorded.answers[trial.arithmetic], self.recorded.taken
        forced, chained, kept = self._drafter(trial, place)
        answered: dict[str, Answered] = {}
        if self.pair and trial.limits:
            plain = self._plain(trial, place)
            both = Speculating(place, threads=self.threads)
            for prompt in self.asked:
                self.progress(f"{trial.how}, assisted: {prompt.name}")
                one = answers[prompt.name]
                chained[prompt.name] = both.chained(prompt, one, taken)
                run, figures = both.answer(both.ids(prompt), self.recorded.width, self.new_tokens)
                answered[prompt.name] = Answered(plain[prompt.name], run, figures, one)
        return [
            Row(
                p,
                tuple(_rounds(one, forced[p.name], chained.get(p.name))),
                answered.get(p.name),
                one,
                kept.get(p.name),
            )
            for p in self.asked
            for one in [answers[p.name]]
        ]

    def _drafter(
        self, trial: Trial, place: Path
    ) -> tuple[dict[str, list[tuple[Match, Match]]], dict[str, list[Chained]], dict[str, Quality]]:
        """First steps and all steps of every round; of a drafter alone also the rounds on their own; what is kept."""
        drafts, taken = Drafts.open(place / "model.onnx", threads=self.threads), self.recorded.taken
        forced: dict[str, list[tuple[Match, Match]]] = {}
        chained: dict[str, list[Chained]] = {}
        kept: dict[str, Quality] = {}
        for prompt in self.asked:
            self.progress(f"{trial.how}: {prompt.name}")
            if prompt.name in self.originals and self.originals[prompt.name].steps:
                kept[prompt.name] = _quality(drafts, self.originals[prompt.name])
            one = self.recorded.answers[trial.arithmetic][prompt.name]
            forced[prompt.name] = [_forced(drafts, steps, taken) for steps in one.steps]
            if trial.limits and not self.pair:
                chained[prompt.name] = list(alone(drafts, one, taken))
        return forced, chained, kept

    def _target(self, place: Path) -> Subject | Whole:
        if is_full(place):
            return Whole(place, threads=self.threads)
        return Subject.open(place / "model.onnx", threads=self.threads)

    def _plain(self, trial: Trial, place: Path) -> dict[str, Generated]:
        subject = self._target(place / TARGET)
        found: dict[str, Generated] = {}
        for prompt in self.asked:
            self.progress(f"{trial.how}, greedy: {prompt.name}")
            said = self.recorded.answers[trial.arithmetic][prompt.name].answer
            noise = trial.noise.get(prompt.name, 0.0)
            found[prompt.name] = generated(subject, subject.ids(prompt), said.tokens, said.margins, noise)
        return found


def _quality(drafts: Drafts, original: Assisted) -> Quality:
    """All steps of the original at once: on its states, against its logits."""
    ours = np.concatenate([replay(drafts, steps).logits for steps in original.steps])
    return quality(ours, np.concatenate([steps.own.logits for steps in original.steps]))


def _forced(drafts: Drafts, steps: Steps, taken: int | None) -> tuple[Match, Match]:
    said = replay(drafts, steps)
    return match(said.first(1), steps.own.first(1), taken), match(said, steps.own, taken)


def _rounds(
    one: Assisted, forced: Sequence[tuple[Match, Match]], chained: Sequence[Chained] | None
) -> Iterator[Round]:
    for i, (steps, (first, every)) in enumerate(zip(one.steps, forced, strict=True)):
        yield Round(steps, first, every, chained[i] if chained else None)
