"""A full package against transformers: its processors, each component by itself, and the whole."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.checkpoint import Checkpoint
from cabochon.errors import ParityError
from cabochon.evidence import identity, versions, write
from cabochon.parity import full_reports, reports
from cabochon.parity.built import Built, built
from cabochon.parity.components import Component, Limits, component_file, limits, present, rounded, strict
from cabochon.parity.evidence import Evidence, Verdict
from cabochon.parity.full_prompts import Asked, everything
from cabochon.parity.full_reference import record_full
from cabochon.parity.full_reports import Tried
from cabochon.parity.levels import STRICT, Compared, Trial, followed, halves
from cabochon.parity.measures import apart
from cabochon.parity.media_reports import Processed, processed, processors
from cabochon.parity.passed import FullRecording, Passed
from cabochon.parity.quality import alike
from cabochon.parity.quality_reports import quantized
from cabochon.parity.ranges import PREFIX, Edge, RangeReport, in_order, measured
from cabochon.parity.reference import Answer
from cabochon.parity.subject import Subject
from cabochon.parity.whole import Whole
from cabochon.parity.widened import widen_full

__all__ = ["Full"]

Tries = list[tuple[Trial, Limits | None]]


@dataclass(frozen=True)
class Full:
    """One check. `metadata`: that of the decoder; `place`: a folder for the time of the check."""

    package: Path
    checkpoint: Checkpoint
    metadata: Mapping[str, str]
    new_tokens: int
    threads: int | None
    place: Path
    progress: Callable[[str], None]

    def check(self) -> Evidence:
        """Raises ParityError where nothing could be compared; see `checking.check`."""
        recording = self._recorded()
        originals = self._originals() if self.how.quantized else {}
        tried: list[Tried] = []
        ids: dict[str, list[int]] = {}
        for folder, tries in self._tries(recording):
            matches = [self._components(folder, recording, trial) for trial, _ in tries]
            whole = Whole(folder, threads=self.threads)
            for (trial, allowed), found in zip(tries, matches, strict=True):
                compared = list(self._whole(whole, trial, recording.passed[trial.arithmetic], originals))
                tried.append(Tried(trial, allowed, found, compared))
            ids = ids or {prompt.name: whole.ids(prompt) for prompt in recording.prompts}
        prepared = processed(self.package, [one.asked for one in recording.passed["f32"]], ids)
        return Evidence(self.package, tuple(self._verdicts(recording, tried, prepared)))

    @cached_property
    def how(self) -> Built:
        """How it computes."""
        return built(self.metadata, *(component_file(self.package, name) for name in present(self.package)))

    @property
    def _twin(self) -> Path:
        return self.place / "twin"

    def _recorded(self) -> FullRecording:
        self._require_encoders(self.checkpoint.config)
        more: dict[str, Any] = {"weights": self.how.weights} if self.how.quantized else {}
        return record_full(
            self.checkpoint.root, self.checkpoint.config, self._asked, precision=self.how.floats,
            arithmetics=self.how.arithmetics, folder=self.place / "reference", new_tokens=self.new_tokens,
            progress=self.progress, **more,
        )  # fmt: skip

    def _originals(self) -> Mapping[str, Answer]:
        """What the checkpoint itself says, by row."""
        return record_full(
            self.checkpoint.root, self.checkpoint.config, self._asked, precision="f32", arithmetics=("f32",),
            folder=self.place / "original", new_tokens=0,
            progress=lambda line: self.progress(f"original, {line}"),
        ).answers("f32")  # fmt: skip

    @property
    def _asked(self) -> list[Asked]:
        window = self.metadata.get("cabochon.sliding_window")
        return everything(self.package, self.checkpoint.config, int(window) if window else None)

    def _require_encoders(self, config: Mapping[str, Any]) -> None:
        """The checkpoint has the encoders that the package has, and no others."""
        for name, key in {"vision_encoder": "vision_config", "audio_encoder": "audio_config"}.items():
            known, built = bool(config.get(key)), name in present(self.package)
            if known != built:
                article = "an" if name.startswith("a") else "a"
                raise ParityError(
                    f"the package has {article if built else 'no'} {name}; the checkpoint has "
                    f"{article if known else 'no'} {key}",
                    at=str(self.package),
                    remedy="name the checkpoint this package was built from",
                )

    def _tries(self, recording: FullRecording) -> Iterator[tuple[Path, Tries]]:
        """The packages to run, each with its trials: the package itself where a CPU can, its f32 twin for halves."""
        how, all_strict = self.how, strict(self.package, self.how.floats)
        own = how.own
        if own == "f32" and not how.rough:
            yield self.package, [(Trial(how.direct, "f32", STRICT, STRICT), all_strict)]
            return
        if how.rough:
            yield self.package, [(Trial(how.direct, "f32"), None)]
        elif how.runs:
            trial = halves(how.direct, own, recording.answers(own), recording.answers("f32"))
            yield self.package, [(trial, limits(recording.passed[own], recording.passed["f32"], own))]
        limit = rounded(how.floats)
        tries: Tries = [(Trial(how.twin, "f32", limit, limit), all_strict)]
        if not how.runs:
            tries.append((Trial(how.beside, own), None))
        self.progress("f32 twin")
        yield widen_full(self.package, self._twin), tries

    def _components(self, folder: Path, recording: FullRecording, trial: Trial) -> full_reports.Matches:
        """One component is in memory at a time."""
        found: full_reports.Matches = {}
        for name in present(folder):
            self.progress(f"{trial.how}: {name}")
            component = Component.open(folder, name, threads=self.threads)
            found[name] = [m for one in recording.passed[trial.arithmetic] for m in component.matches(one)]
        return found

    def _whole(
        self, whole: Whole, trial: Trial, passed: Sequence[Passed], originals: Mapping[str, Answer]
    ) -> Iterator[Compared]:
        for one in passed:
            self.progress(f"{trial.how}: {one.asked.name}")
            rows = [whole.ids(prompt) for prompt in one.asked.prompts]
            forward = [whole.forward(ids) for ids in rows]
            count = len(one.answers[0].tokens)
            tokens = whole.together(rows, count) if count else [[]] * len(rows)
            for n, (prompt, answer) in enumerate(zip(one.asked.prompts, one.answers, strict=True)):
                noise = trial.noise[prompt.name] if trial.noise else 0.0
                logits, hidden = forward[n]
                original = originals.get(prompt.name)
                yield Compared(
                    prompt,
                    apart(logits, answer.logits),
                    apart(hidden, answer.hidden),
                    followed(whole, rows[n], tokens[n], answer.tokens, answer.margins, noise)
                    if count
                    else None,
                    original and alike(logits, original.logits),
                )

    def _verdicts(
        self, recording: FullRecording, tried: Sequence[Tried], prepared: Sequence[Processed]
    ) -> Iterator[Verdict]:
        facts = {
            "package": identity(self.package, self.metadata),
            "source": {"id": self.checkpoint.id, "revision": self.checkpoint.revision},
            "reference": dict(recording.identity),
            "versions": versions("torch", "transformers", "pillow", "soxr"),
        }
        results = [(one.whole, one.compared) for one in tried]
        yield self._verdict("processors", "processors.json", processors(prepared, facts))
        for name in present(self.package):
            made = full_reports.component(name, tried, facts)
            yield self._verdict(f"L4 {name}", f"l4_{name}.json", made)
        for level, name, report in (
            ("L4 logits", "l4_parity.json", reports.logits),
            ("L4 hidden states", "l4_hidden_state.json", reports.hidden_states),
            ("L5 generation", "l5_generation.json", reports.generation),
        ):
            yield self._verdict(level, name, report(results, facts))
        if self.how.quantized:
            yield from quantized(self.package, recording.differences, reports.qualities(results), facts)
        if self.how.floats == "f16":
            self.progress("f16 range")
            yield self._range(recording, facts)

    def _verdict(self, level: str, name: str, made: tuple[dict[str, Any], str]) -> Verdict:
        document, line = made
        return Verdict(level, document["passed"], line, write(self.package, name, document))

    def _range(self, recording: FullRecording, facts: Mapping[str, Any]) -> Verdict:
        """Every component on what the reference passed it."""
        edges = [
            replace(edge, name=f"{name}: {edge.name}")
            for name in present(self.package)
            for edge in self._edges(name, recording.passed["f32"])
        ]
        report = RangeReport(in_order(edges))
        told = {key: facts[key] for key in ("package", "versions")}
        document = report.document(recording.prompts, told)
        return Verdict(
            "f16 range", report.passed, report.summary, write(self.package, "f16_range.json", document)
        )

    def _edges(self, name: str, passed: Sequence[Passed]) -> list[Edge]:
        def fed(subject: Subject) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
            component = Component(name, subject)
            for one in passed:
                if one.said(name):
                    made = component.run(component.feeds(one))
                    yield one.asked.name, {port: x for port, x in made.items() if port.startswith(PREFIX)}

        return measured(self.package / name, self._twin / name, fed, self.threads)
