"""`check` of drafters: alone or in a pair, against transformers' assisted generation."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cabochon import files
from cabochon.checkpoint import Checkpoint, open_checkpoint
from cabochon.errors import ParityError
from cabochon.evidence import identity, versions, write
from cabochon.metadata.pair import width
from cabochon.parity import drafter_reports
from cabochon.parity.assisted import record_assisted
from cabochon.parity.assisted_report import assisted
from cabochon.parity.built import Built, built
from cabochon.parity.components import present
from cabochon.parity.dequantized import Dequantized, read_dequantized
from cabochon.parity.drafted import Row, Trial
from cabochon.parity.evidence import Evidence, Verdict
from cabochon.parity.full_prompts import everything
from cabochon.parity.full_reference import prepare
from cabochon.parity.passed import Prepared
from cabochon.parity.prompts import Prompt, prompts
from cabochon.parity.quality_reports import STEPS, quantized
from cabochon.parity.trials import ROLES, TARGET, Check
from cabochon.parity.widened import is_drafter, is_full, read_graph

__all__ = ["PROMPTS", "check_drafter"]

PROMPTS = ("english", "code", "drawn ids", "beyond the window")
SHOWN = ("image", "two images", "audio", "image and audio", "video")
"""With media, of a pair whose target takes them; transformers generates one row at a time with a drafter."""


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
        how, weights = _built(package, metadata)
        prepared = _prepared(package, metadata, target)
        asked = [*_prompts(package, metadata, target), *(row for one in prepared for row in one.prompts)]
        fed: Any = (target, small, asked, {one.name: one for one in prepared})
        common: Any = {"width": width(_generation(small)), "new_tokens": new_tokens}
        original: Any = {}
        if how.quantized:
            original = record_assisted(
                *fed, precision="f32", arithmetics=("f32",), folder=Path(place) / "original",
                progress=lambda line: progress(f"original, {line}"), **common,
            ).answers["f32"]  # fmt: skip
        recorded = record_assisted(
            *fed, precision=how.floats, arithmetics=how.arithmetics, folder=Path(place) / "reference",
            progress=progress, weights=weights, **common,
        )  # fmt: skip
        check = Check(package, asked, recorded, new_tokens, threads, progress, original)
        results = check.results(how, Path(place) / "twin")
    facts = {
        "package": _identity(package, metadata),
        "source": {"target": _named(target), "assistant": _named(small)},
        "reference": {**recorded.identity, "num_assistant_tokens": recorded.width},
        "versions": versions("torch", "transformers"),
    }
    verdicts = list(_written(package, results, facts, metadata))
    if how.quantized:
        verdicts += quantized(package, recorded.differences, drafter_reports.qualities(results), facts, STEPS)
    return Evidence(package, tuple(verdicts))


def _built(package: Path, metadata: Mapping[str, str]) -> tuple[Built, tuple[Dequantized, Dequantized]]:
    """How a drafter, or a pair, computes; the weights in blocks of target and drafter. Without a target it is the
    checkpoint's."""
    place = package / TARGET
    graphs = [place / name / "model.onnx" for name in present(place)] or [place / "model.onnx"]
    pair = place.is_dir()
    big = read_dequantized(*graphs) if pair else Dequantized()
    how = built(metadata, package / "model.onnx", what=ROLES[pair])
    both = Dequantized((*big.weights, *how.weights.weights))
    return replace(how, weights=both), (big, how.weights)


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
        detail = assisted(results, facts)
        found.append(("L5 assisted generation", "l5_assisted_detail.json", detail))
    for level, name, (document, line) in found:
        yield Verdict(level, document["passed"], line, write(package, name, document))


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


def _prepared(package: Path, metadata: Mapping[str, str], target: Checkpoint) -> list[Prepared]:
    """Prompts with media, as the reference's processor prepares them; none where the target takes text alone."""
    if not is_full(package / TARGET):
        return []
    said = metadata.get("cabochon.sliding_window")
    found = everything(package / TARGET, target.config, int(said) if said else None)
    return prepare(target.root, target.config, [one for one in found if one.name in SHOWN])


def _generation(assistant: Checkpoint) -> Mapping[str, Any]:
    from cabochon.strict_json import parse_object

    path = assistant.files.get("generation_config.json")
    return parse_object(path.read_bytes()) if path else {}


def _named(checkpoint: Checkpoint) -> dict[str, str | None]:
    return {"id": checkpoint.id, "revision": checkpoint.revision}


def _identity(package: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """Of a pair also the graphs and weights of its target and the look-up of tokens."""
    own = identity(package, metadata)
    place = package / TARGET
    more = [*package.glob("token_embedding.onnx*"), *place.glob("model.onnx*")]
    more += [*place.glob("*/model.onnx"), *place.glob("*/*.data*")]
    others = {path.relative_to(package).as_posix(): files.sha256(path) for path in sorted(more)}
    return {**own, "sha256": {**own["sha256"], **others}}
