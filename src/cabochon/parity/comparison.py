"""`compare`: two packages side by side, without a reference."""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.errors import ParityError
from cabochon.parity.measures import difference
from cabochon.parity.prompts import Prompt, prompts
from cabochon.parity.subject import Subject
from cabochon.parity.widened import read_graph, widen

__all__ = ["Comparison", "Pair", "compare"]

NEW_TOKENS = 32


@dataclass(frozen=True)
class Pair:
    """One prompt in both packages: logits (relative to b's largest) and the greedy tokens they begin with."""

    prompt: str
    relative: float
    min_cosine: float
    agreement: float
    equal_tokens: int
    new_tokens: int


@dataclass(frozen=True)
class Comparison:
    """Pairs (a, b): bytes by file; ports and metadata where they differ; figures by prompt."""

    sizes: Mapping[str, tuple[int | None, int | None]]
    ports: Mapping[str, tuple[Any, Any]]
    metadata: Mapping[str, tuple[str | None, str | None]]
    pairs: tuple[Pair, ...]

    def as_json(self) -> dict[str, Any]:
        """The comparison as plain data, for `--json`."""
        return asdict(self)


def compare(
    a: str | Path, b: str | Path, *, threads: int | None = None, scratch: str | Path | None = None
) -> Comparison:
    """Compares two text packages with one vocabulary on prompts tokenized by `b`'s tokenizer.

    bf16 packages run as f32 twins. Raises ParityError where the vocabularies differ or a graph cannot be run.
    """
    a, b = Path(a), Path(b)
    with tempfile.TemporaryDirectory(prefix="cabochon-compare-", dir=scratch) as place:
        first, second = (_subject(p, Path(place) / name, threads) for p, name in ((a, "a"), (b, "b")))
        if first.vocabulary != second.vocabulary:
            raise ParityError(
                f"vocabularies of {first.vocabulary} and {second.vocabulary} entries; they must be equal",
                at=f"{a}, {b}",
            )
        asked = [p for p in _prompts(b, second) if p.generates]
        pairs = tuple(_pair(prompt, first, second) for prompt in asked)
    described = _described(a), _described(b)
    return Comparison(
        sizes=_both(_sizes(a), _sizes(b)),
        ports=_differing(described[0][0], described[1][0]),
        metadata=_differing(described[0][1], described[1][1]),
        pairs=pairs,
    )


def _pair(prompt: Prompt, a: Subject, b: Subject) -> Pair:
    found = difference(a.forward(prompt.ids)[0], b.forward(prompt.ids)[0])
    ours, theirs = (subject.greedy(prompt.ids, NEW_TOKENS) for subject in (a, b))
    same = np.array(ours) == np.array(theirs)
    equal = int(same.argmin()) if not same.all() else NEW_TOKENS
    return Pair(prompt.name, found.relative, min(found.cosines), found.agreement, equal, NEW_TOKENS)


def _subject(package: Path, place: Path, threads: int | None) -> Subject:
    halves = {item.key: item.value for item in read_graph(package).metadata_props}.get(
        "cabochon.precision"
    ) == "bf16"
    return Subject.open(widen(package, place) if halves else package / "model.onnx", threads=threads)


def _prompts(package: Path, subject: Subject) -> list[Prompt]:
    import json

    config = json.loads((package / "config.json").read_text(encoding="utf-8"))
    window = subject.metadata.get("cabochon.sliding_window")
    return prompts(
        package,
        vocabulary=subject.vocabulary,
        window=int(window) if window else None,
        first_id=config.get("text_config", config).get("bos_token_id"),
    )


def _described(package: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Ports (type name and shape) and metadata properties of a graph, as written."""
    from onnx import TensorProto

    model = read_graph(package)
    ports = {}
    for port in [*model.graph.input, *model.graph.output]:
        tensor = port.type.tensor_type
        shape = [d.dim_param or d.dim_value for d in tensor.shape.dim]
        ports[port.name] = (TensorProto.DataType.Name(tensor.elem_type).lower(), shape)
    return ports, {item.key: item.value for item in model.metadata_props}


def _sizes(package: Path) -> dict[str, int]:
    return {str(p.relative_to(package)): p.stat().st_size for p in sorted(package.rglob("*")) if p.is_file()}


def _both(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (a.get(name), b.get(name)) for name in sorted({*a, *b})}


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: pair for name, pair in _both(a, b).items() if pair[0] != pair[1]}
