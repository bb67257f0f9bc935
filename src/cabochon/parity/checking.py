"""`check`: a package against transformers or published answers; evidence is written into the package."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from cabochon.checkpoint import Checkpoint, open_checkpoint
from cabochon.errors import ParityError
from cabochon.evidence import identity, versions, write
from cabochon.parity import reports
from cabochon.parity.built import Built, built
from cabochon.parity.dequantized import Dequantized
from cabochon.parity.evidence import Evidence, Verdict
from cabochon.parity.levels import STRICT, Compared, Trial, halves, run
from cabochon.parity.prompts import Prompt, prompts
from cabochon.parity.quality_reports import quantized
from cabochon.parity.ranges import measure
from cabochon.parity.reference import Answer, Recording, record
from cabochon.parity.subject import Subject
from cabochon.parity.widened import is_drafter, is_full, read_graph, read_properties, widen
from cabochon.runtime.folder import graph_file
from cabochon.runtime.properties import IR
from cabochon.validation.net import read_net

__all__ = ["check"]

NEW_TOKENS = 32
FROM = "compare it with the package it was converted from: cabochon compare IR PACKAGE"


def check(
    package: str | Path,
    source: str | Path | None = None,
    *,
    assistant: str | Path | None = None,
    known: bool = False,
    new_tokens: int = NEW_TOKENS,
    threads: int | None = None,
    scratch: str | Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Evidence:
    """Compares a package with the checkpoint it was built from and writes evidence/*.json into it.

    L4: logits and the hidden tap of one forward pass per prompt. L5: `new_tokens` (at least 32) greedy
    tokens. Of a full package L4 is each component by itself, fed what the reference's was, and the whole from text and
    media to logits; what its processors make of media is compared too. f32 and f16 packages run as they are; bf16
    packages (no onnxruntime runs them on a CPU) and f16 packages run as f32 twins as well. `known` compares with
    published answers instead, without torch.
    A drafter, alone or in a pair, is compared with two checkpoints: `source` is its target's, `assistant` its own.
    L4 is one step on the target's real states, L5 the rounds of assisted generation.
    `scratch` is where recorded answers and twins are put for the time of the check (the system's temporary
    folder by default).

    Raises ParityError where nothing could be compared; a comparison that fails is a verdict, not an error.
    """
    package = Path(package)
    full = is_full(package)
    drafter = not full and is_drafter(package)
    if (full or drafter) and not (package / ("decoder" if full else ".") / "model.onnx").is_file():
        raise ParityError(
            "is OpenVINO's IR of a whole model or a drafter; such packages of text are compared with a checkpoint",
            at=str(package),
            remedy=FROM,
        )
    if drafter and (assistant is None or source is None or known):
        raise ParityError(
            "a drafter is compared with two checkpoints, and with no published answers",
            at=str(package),
            remedy="cabochon parity PACKAGE TARGET_SOURCE --assistant ASSISTANT_SOURCE",
        )
    if known:
        from cabochon.parity.known import check_known

        return check_known(package, threads=threads, scratch=scratch)
    if source is None:
        raise ParityError("no checkpoint to compare with", remedy="name the SOURCE, or pass --known")
    if new_tokens < NEW_TOKENS:
        raise ParityError(f"{new_tokens} new tokens prove little; at least {NEW_TOKENS} are compared")
    if assistant is not None:
        from cabochon.parity.drafters import check_drafter

        return check_drafter(
            package, source, assistant,
            new_tokens=new_tokens, threads=threads, scratch=scratch, progress=progress,
        )  # fmt: skip
    checkpoint = open_checkpoint(source)
    metadata = _matching(package / "decoder" if full else package, checkpoint.config)
    with tempfile.TemporaryDirectory(prefix="cabochon-parity-", dir=scratch) as place:
        if full:
            from cabochon.parity.full import Full

            return Full(package, checkpoint, metadata, new_tokens, threads, Path(place), progress).check()
        return _check(package, checkpoint, metadata, new_tokens, threads, Path(place), progress)


def _check(
    package: Path,
    checkpoint: Checkpoint,
    metadata: Mapping[str, str],
    new_tokens: int,
    threads: int | None,
    place: Path,
    progress: Callable[[str], None],
) -> Evidence:
    how = _built(package, metadata)
    asked = _prompts(package, metadata, checkpoint.config)
    originals: Mapping[str, Answer] = {}
    more: dict[str, Any] = {}
    if how.quantized:
        original = record(
            checkpoint.root, checkpoint.config, asked, precision="f32", arithmetics=("f32",),
            folder=place / "original", new_tokens=0, progress=lambda line: progress(f"original, {line}"),
        )  # fmt: skip
        originals, more = original.answers["f32"], {"weights": how.weights}
    recording = record(
        checkpoint.root, checkpoint.config, asked, precision=how.floats, arithmetics=how.arithmetics,
        folder=place / "reference", new_tokens=new_tokens, progress=progress, **more,
    )  # fmt: skip
    results = [
        result
        for graph, trials in _trials(package, how, recording, place)
        for result in _run(graph, trials, asked, recording, originals, threads, progress)
    ]
    facts = {
        "package": identity(package, metadata),
        "source": {"id": checkpoint.id, "revision": checkpoint.revision},
        "reference": dict(recording.identity),
        "versions": versions("torch", "transformers", *(["openvino"] if how.runtime else [])),
    }
    verdicts = list(_written(package, results, facts))
    if how.quantized:
        verdicts += quantized(package, recording.differences, reports.qualities(results), facts)
    if how.floats == "f16" and how.runtime is None:
        progress("f16 range")
        verdicts.append(_range(package, place / "twin", asked, threads, facts))
    return Evidence(package, tuple(verdicts))


def _run(
    graph: Path,
    trials: Iterable[Trial],
    asked: list[Prompt],
    recording: Recording,
    originals: Mapping[str, Answer],
    threads: int | None,
    progress: Callable[[str], None],
) -> list[tuple[Trial, list[Compared]]]:
    """The session is let go of before the next graph is loaded."""
    subject = Subject.open(graph, threads=threads)
    return [(t, run(t, subject, asked, recording.answers[t.arithmetic], progress, originals)) for t in trials]


def _range(
    package: Path, twin: Path, asked: list[Prompt], threads: int | None, facts: Mapping[str, Any]
) -> Verdict:
    report = measure(package, twin, asked, threads)
    told = {key: facts[key] for key in ("package", "versions")}
    return Verdict(
        "f16 range",
        report.passed,
        report.summary,
        write(package, "f16_range.json", report.document(asked, told)),
    )


def _matching(package: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """The metadata of a package whose outputs have the sizes of this checkpoint; ParityError for any other."""
    metadata, found = read_properties(package), _last_axes(package)
    text = config.get("text_config", config)
    expected = {
        "logits": text["vocab_size"],
        f"hidden_states.{text['num_hidden_layers'] - 1}": text["hidden_size"],
    }
    for name, size in expected.items():
        if found.get(name) != size:
            raise ParityError(
                f"output {name} has size {found.get(name, 'none: it is absent')}; the checkpoint's is {size}",
                at=str(package / "model.onnx"),
                remedy="name the checkpoint this package was built from",
            )
    return metadata


def _last_axes(package: Path) -> dict[str, Any]:
    """The sizes of the last axes of a decoder's outputs."""
    file = graph_file(package)
    if file is not None and file.suffix == IR:
        return {port.name: port.shape[-1] for port in read_net(package, file.name).ports.outputs.values()}
    outputs = read_graph(package).graph.output
    return {port.name: port.type.tensor_type.shape.dim[-1].dim_value for port in outputs}


def _built(package: Path, metadata: Mapping[str, str]) -> Built:
    file = graph_file(package)
    if file is None or file.suffix != IR:
        return built(metadata, package / "model.onnx")
    floats = metadata.get("cabochon.precision", "")
    if floats not in ("f32", "f16"):
        raise ParityError(
            f"is OpenVINO's IR in {floats}; such packages are compared with a checkpoint in f32 and f16",
            at=str(package),
            remedy=FROM,
        )
    return Built(floats, Dequantized(), runtime="OpenVINO")


def _prompts(package: Path, metadata: Mapping[str, str], config: Mapping[str, Any]) -> list[Prompt]:
    text = config.get("text_config", config)
    window = metadata.get("cabochon.sliding_window")
    return prompts(
        package,
        vocabulary=text["vocab_size"],
        window=int(window) if window else None,
        first_id=text.get("bos_token_id"),
    )


def _trials(
    package: Path, how: Built, recording: Recording, place: Path
) -> Iterator[tuple[Path, list[Trial]]]:
    """The graphs to run, each with its trials: the package itself where a CPU can, its f32 twin where that rounds."""
    graph = graph_file(package) or package / "model.onnx"
    if how.runtime and how.own != "f32":
        yield graph, [halves(how.direct, how.own, recording.answers[how.own], recording.answers["f32"])]
        return
    if how.own == "f32" and not how.rough:
        yield graph, [Trial(how.direct, "f32", STRICT, STRICT)]
        return
    if how.rough:
        yield package / "model.onnx", [Trial(how.direct, "f32")]
    elif how.runs:
        trial = halves(how.direct, how.own, recording.answers[how.own], recording.answers["f32"])
        yield package / "model.onnx", [trial]
    trials = [Trial(how.twin, "f32", STRICT, STRICT)]
    if not how.runs:
        trials.append(Trial(how.beside, how.own))
    yield widen(package, place / "twin"), trials


def _written(package: Path, results: reports.Results, facts: Mapping[str, Any]) -> Iterator[Verdict]:
    for level, name, report in (
        ("L4 logits", "l4_parity.json", reports.logits),
        ("L4 hidden states", "l4_hidden_state.json", reports.hidden_states),
        ("L5 generation", "l5_generation.json", reports.generation),
    ):
        document, line = report(results, facts)
        yield Verdict(level, document["passed"], line, write(package, name, document))
