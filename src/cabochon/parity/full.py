"""A full package against transformers: its processors, each component by itself, and the whole."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.checkpoint import Checkpoint
from cabochon.errors import ParityError
from cabochon.evidence import identity, versions, write
from cabochon.parity import full_reports, reports
from cabochon.parity.components import Component, Limits, limits, present, rounded, strict
from cabochon.parity.evidence import Evidence, Verdict
from cabochon.parity.full_prompts import everything
from cabochon.parity.full_reference import record_full
from cabochon.parity.full_reports import Tried
from cabochon.parity.levels import STRICT, Compared, Trial, followed, halves
from cabochon.parity.measures import apart
from cabochon.parity.media_reports import Processed, processed, processors
from cabochon.parity.passed import FullRecording, Passed
from cabochon.parity.ranges import PREFIX, Edge, RangeReport, in_order, measured
from cabochon.parity.subject import Subject
from cabochon.parity.whole import Whole
from cabochon.parity.widened import widen_full

__all__ = ["Full"]

DIRECT = "the package itself on onnxruntime CPU"
TWIN = (
    "f32 twin on onnxruntime CPU: the package's own graphs and bytes, every {precision} value widened to f32 "
    "(exact); reference in f32 arithmetic on the weights it loaded in {precision}"
)
BESIDE = (
    "f32 twin on onnxruntime CPU; reference in bf16 arithmetic: mostly the reference's own rounding, reported "
    "and not judged"
)
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
        tried: list[Tried] = []
        ids: dict[str, list[int]] = {}
        for folder, tries in self._tries(recording):
            matches = [self._components(folder, recording, trial) for trial, _ in tries]
            whole = Whole(folder, threads=self.threads)
            for (trial, allowed), found in zip(tries, matches, strict=True):
                compared = list(self._whole(whole, trial, recording.passed[trial.arithmetic]))
                tried.append(Tried(trial, allowed, found, compared))
            ids = ids or {prompt.name: whole.ids(prompt) for prompt in recording.prompts}
        prepared = processed(self.package, [one.asked for one in recording.passed["f32"]], ids)
        return Evidence(self.package, tuple(self._verdicts(recording, tried, prepared)))

    @property
    def precision(self) -> str:
        """Of the package."""
        return self.metadata["cabochon.precision"]

    @property
    def _twin(self) -> Path:
        return self.place / "twin"

    def _recorded(self) -> FullRecording:
        window = self.metadata.get("cabochon.sliding_window")
        config = self.checkpoint.config
        self._require_encoders(config)
        return record_full(
            self.checkpoint.root, config, everything(self.package, config, int(window) if window else None),
            precision=self.precision, arithmetics=tuple(dict.fromkeys((self.precision, "f32"))),
            folder=self.place / "reference", new_tokens=self.new_tokens, progress=self.progress,
        )  # fmt: skip

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
        precision, all_strict = self.precision, strict(self.package, self.precision)
        if precision == "f32":
            yield self.package, [(Trial(DIRECT, "f32", STRICT, STRICT), all_strict)]
            return
        if precision == "f16":
            trial = halves(DIRECT, "f16", recording.answers("f16"), recording.answers("f32"))
            yield self.package, [(trial, limits(recording.passed["f16"], recording.passed["f32"]))]
        limit = rounded(precision)
        tries: Tries = [(Trial(TWIN.format(precision=precision), "f32", limit, limit), all_strict)]
        if precision == "bf16":
            tries.append((Trial(BESIDE, "bf16"), None))
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

    def _whole(self, whole: Whole, trial: Trial, passed: Sequence[Passed]) -> Iterator[Compared]:
        for one in passed:
            self.progress(f"{trial.how}: {one.asked.name}")
            rows = [whole.ids(prompt) for prompt in one.asked.prompts]
            forward = [whole.forward(ids) for ids in rows]
            count = len(one.answers[0].tokens)
            tokens = whole.together(rows, count) if count else [[]] * len(rows)
            for n, (prompt, answer) in enumerate(zip(one.asked.prompts, one.answers, strict=True)):
                noise = trial.noise[prompt.name] if trial.noise else 0.0
                logits, hidden = forward[n]
                yield Compared(
                    prompt,
                    apart(logits, answer.logits),
                    apart(hidden, answer.hidden),
                    followed(whole, rows[n], tokens[n], answer.tokens, answer.margins, noise)
                    if count
                    else None,
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
        if self.precision == "f16":
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
