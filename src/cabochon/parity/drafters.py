"""`check` of drafters: alone or in a pair, against transformers' assisted generation."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cabochon import files
from cabochon.checkpoint import Checkpoint, open_checkpoint
from cabochon.errors import ParityError
from cabochon.evidence import identity, versions, write
from cabochon.metadata.pair import width
from cabochon.parity import drafter_reports
from cabochon.parity.assisted import record_assisted
from cabochon.parity.assisting import Speculating, alone
from cabochon.parity.drafted import Answered, Round, Row, Trial
from cabochon.parity.drafting import Chained, Drafts, Match, halved, match, replay, strict
from cabochon.parity.evidence import Evidence, Verdict
from cabochon.parity.levels import Generated, generated, halves
from cabochon.parity.prompts import Prompt, prompts
from cabochon.parity.rounds import Assisted, Recorded, Steps
from cabochon.parity.subject import Subject
from cabochon.parity.widened import is_drafter, read_graph, widen, widen_pair

__all__ = ["PROMPTS", "check_drafter"]

PROMPTS = ("english", "code", "drawn ids", "beyond the window")
TARGET = "target"
ROLES = {False: "drafter", True: "pair"}
DIRECT = "the {what} itself on onnxruntime CPU"
TWIN = (
    "f32 twin of the {what} on onnxruntime CPU: its own graphs and bytes, every {precision} value widened to f32 "
    "(exact); reference in f32 arithmetic on the weights it loaded in {precision}"
)
BESIDE = (
    "f32 twin of the {what}; reference in bf16 arithmetic: mostly the reference's own rounding, not judged"
)


def check_drafter(
    package: Path,
    source: str | Path,
    assistant: str | Path,
    *,
    new_tokens: int,
    threads: int | None = None,
    scratch: str | Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Evidence:
    """Compares a drafter, or a pair, with the checkpoints of target and assistant; writes evidence/*.json into it.

    L4: one step on states of the real target, at the beginning of every round. L5: all steps of all rounds, fed what
    the reference was fed and on their own; of a pair also whole answers, with their rounds.
    """
    target, small = open_checkpoint(source), open_checkpoint(assistant)
    metadata = _matching(package, target, small)
    with tempfile.TemporaryDirectory(prefix="cabochon-parity-", dir=scratch) as place:
        precision = metadata["cabochon.precision"]
        asked = _prompts(package, metadata, target)
        recorded = record_assisted(
            target, small, asked,
            precision=precision, arithmetics=tuple(dict.fromkeys((precision, "f32"))),
            width=width(_generation(small)), folder=Path(place) / "reference", new_tokens=new_tokens,
            progress=progress,
        )  # fmt: skip
        check = _Check(package, asked, recorded, new_tokens, threads, progress)
        results = list(check.results(precision, Path(place) / "twin"))
    facts = {
        "package": _identity(package, metadata),
        "source": {"target": _named(target), "assistant": _named(small)},
        "reference": {**recorded.identity, "num_assistant_tokens": recorded.width},
        "versions": versions("torch", "transformers"),
    }
    return Evidence(package, tuple(_written(package, results, facts, metadata)))


def _written(
    package: Path,
    results: Sequence[tuple[Trial, Sequence[Row]]],
    facts: Mapping[str, Any],
    metadata: Mapping[str, str],
) -> Iterator[Verdict]:
    said = metadata.get("cabochon.sliding_window")
    window = int(said) if said else None
    found = [
        ("L4 drafter step", "l4_parity.json", drafter_reports.steps(results, facts, window)),
        ("L5 drafter bridge", "l5_drafter_rootcause.json", drafter_reports.bridge(results, facts)),
    ]
    if all(row.answered for trial, rows in results if trial.limits for row in rows):
        detail = drafter_reports.assisted(results, facts)
        found.append(("L5 assisted generation", "l5_assisted_detail.json", detail))
    for level, name, (document, line) in found:
        yield Verdict(level, document["passed"], line, write(package, name, document))


@dataclass(frozen=True)
class _Check:
    """A package, what it is asked, and what was recorded."""

    package: Path
    asked: Sequence[Prompt]
    recorded: Recorded
    new_tokens: int
    threads: int | None
    progress: Callable[[str], None]

    @property
    def pair(self) -> bool:
        return (self.package / TARGET / "model.onnx").is_file()

    def results(self, precision: str, twin: Path) -> Iterator[tuple[Trial, list[Row]]]:
        """The package itself where a CPU can run it, its f32 twin for halves; each trial with its rows."""
        answers = self.recorded.answers
        exact = Trial(self._how(DIRECT, precision), "f32", strict(answers["f32"].values()), True, {})
        if precision == "f32":
            yield exact, self._rows(exact, self.package)
            return
        if precision == "f16":
            own, f32 = ({name: a.answer for name, a in answers[p].items()} for p in ("f16", "f32"))
            limits = halved(answers["f16"].values(), self.recorded.taken)
            noise = halves("", "f16", own, f32).noise or {}
            yield (
                (trial := Trial(self._how(DIRECT, precision), "f16", limits, False, noise)),
                self._rows(trial, self.package),
            )
        if self.pair:
            widen_pair(self.package, twin)
        else:
            widen(self.package, twin)
        trial = Trial(self._how(TWIN, precision), "f32", exact.limits, True, {})
        yield trial, self._rows(trial, twin)
        if precision == "bf16":
            trial = Trial(self._how(BESIDE, precision), "bf16", None, False, {})
            yield trial, self._rows(trial, twin)

    def _how(self, text: str, precision: str) -> str:
        return text.format(what=ROLES[self.pair], precision=precision)

    def _rows(self, trial: Trial, place: Path) -> list[Row]:
        """The drafter by itself, the target by itself, then both together: no graph is in memory twice."""
        answers, taken = self.recorded.answers[trial.arithmetic], self.recorded.taken
        forced, chained = self._drafter(trial, place)
        answered: dict[str, Answered] = {}
        if self.pair and trial.limits:
            plain = self._plain(trial, place)
            both = Speculating(place, threads=self.threads)
            for prompt in self.asked:
                self.progress(f"{trial.how}, assisted: {prompt.name}")
                one = answers[prompt.name]
                chained[prompt.name] = both.chained(prompt, one, taken)
                run, figures = both.answer(prompt.ids, self.recorded.width, self.new_tokens)
                answered[prompt.name] = Answered(plain[prompt.name], run, figures, one)
        return [
            Row(p, tuple(_rounds(one, forced[p.name], chained.get(p.name))), answered.get(p.name), one)
            for p in self.asked
            for one in [answers[p.name]]
        ]

    def _drafter(
        self, trial: Trial, place: Path
    ) -> tuple[dict[str, list[tuple[Match, Match]]], dict[str, list[Chained]]]:
        """First steps and all steps of every round; of a drafter alone also the rounds on their own."""
        drafts, taken = Drafts.open(place / "model.onnx", threads=self.threads), self.recorded.taken
        forced: dict[str, list[tuple[Match, Match]]] = {}
        chained: dict[str, list[Chained]] = {}
        for prompt in self.asked:
            self.progress(f"{trial.how}: {prompt.name}")
            one = self.recorded.answers[trial.arithmetic][prompt.name]
            forced[prompt.name] = [_forced(drafts, steps, taken) for steps in one.steps]
            if trial.limits and not self.pair:
                chained[prompt.name] = list(alone(drafts, one, taken))
        return forced, chained

    def _plain(self, trial: Trial, place: Path) -> dict[str, Generated]:
        subject = Subject.open(place / TARGET / "model.onnx", threads=self.threads)
        found: dict[str, Generated] = {}
        for prompt in self.asked:
            self.progress(f"{trial.how}, greedy: {prompt.name}")
            said = self.recorded.answers[trial.arithmetic][prompt.name].answer
            noise = trial.noise.get(prompt.name, 0.0)
            found[prompt.name] = generated(subject, prompt.ids, said.tokens, said.margins, noise)
        return found


def _forced(drafts: Drafts, steps: Steps, taken: int | None) -> tuple[Match, Match]:
    said = replay(drafts, steps)
    return match(said.first(1), steps.own.first(1), taken), match(said, steps.own, taken)


def _rounds(
    one: Assisted, forced: Sequence[tuple[Match, Match]], chained: Sequence[Chained] | None
) -> Iterator[Round]:
    for i, (steps, (first, every)) in enumerate(zip(one.steps, forced, strict=True)):
        yield Round(steps, first, every, chained[i] if chained else None)


def _matching(package: Path, target: Checkpoint, assistant: Checkpoint) -> dict[str, str]:
    """The metadata of a drafter that has the sizes of these checkpoints; ParityError for any other."""
    model, at = read_graph(package), str(package / "model.onnx")
    metadata = {item.key: item.value for item in model.metadata_props}
    if not is_drafter(package):
        raise ParityError(
            "is no drafter; expected one where an assistant is named", at=at, remedy="leave out the assistant"
        )
    text, own = (c.config.get("text_config", c.config) for c in (target, assistant))
    backbone = assistant.config.get("backbone_hidden_size")
    if backbone is None:
        raise ParityError(
            f"{assistant.source} is no assistant: it has no backbone_hidden_size", at="config.json"
        )
    if backbone != text["hidden_size"]:
        raise ParityError(
            f"the assistant's backbone_hidden_size is {backbone}, the target's hidden_size {text['hidden_size']}",
            at="config.json",
            remedy="name the target that the assistant drafts for",
        )
    found = {port.name: port.type.tensor_type.shape.dim[-1].dim_value for port in model.graph.output}
    for name, size in {"logits": own["vocab_size"], "projected_state": backbone}.items():
        if found.get(name) != size:
            raise ParityError(
                f"output {name} has size {found.get(name, 'none: it is absent')}; the assistant's is {size}",
                at=at,
                remedy="name the checkpoint this package was built from",
            )
    return metadata


def _prompts(package: Path, metadata: Mapping[str, str], target: Checkpoint) -> list[Prompt]:
    text = target.config.get("text_config", target.config)
    window = metadata.get("cabochon.sliding_window")
    place = package if (package / "tokenizer.json").is_file() else target.root
    found = prompts(
        place,
        vocabulary=text["vocab_size"],
        window=int(window) if window else None,
        first_id=text.get("bos_token_id"),
    )
    return [prompt for prompt in found if prompt.name in PROMPTS]


def _generation(assistant: Checkpoint) -> Mapping[str, Any]:
    from cabochon.checkpoint.strict_json import parse_object

    path = assistant.files.get("generation_config.json")
    return parse_object(path.read_bytes()) if path else {}


def _named(checkpoint: Checkpoint) -> dict[str, str | None]:
    return {"id": checkpoint.id, "revision": checkpoint.revision}


def _identity(package: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """Of a pair also the graphs and weights of its target and the look-up of tokens."""
    own = identity(package, metadata)
    more = [*package.glob("token_embedding.onnx*"), *(package / TARGET).glob("model.onnx*")]
    others = {path.relative_to(package).as_posix(): files.sha256(path) for path in sorted(more)}
    return {**own, "sha256": {**own["sha256"], **others}}
