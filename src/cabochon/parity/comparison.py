"""`compare`: two packages side by side, without a reference."""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cabochon.errors import ParityError
from cabochon.evidence import activations
from cabochon.parity.full_prompts import everything
from cabochon.parity.measures import apart
from cabochon.parity.prompts import Prompt, prompts
from cabochon.parity.quality import alike
from cabochon.parity.subject import Subject
from cabochon.parity.widened import is_full, read_graph, widen, widen_full

if TYPE_CHECKING:
    from cabochon.parity.whole import Whole

__all__ = ["Comparison", "Pair", "compare"]

NEW_TOKENS = 32


@dataclass(frozen=True)
class Pair:
    """One prompt in both packages: logits (relative to b's largest) and the greedy tokens they begin with.

    divergence: nats a position, of a's distribution of tokens from b's; None where they were asked other tokens.
    """

    prompt: str
    relative: float
    min_cosine: float
    agreement: float
    equal_tokens: int
    new_tokens: int
    divergence: float | None


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
    """Compares two packages with one vocabulary, text or full ones, on prompts tokenized by `b`'s tokenizer.

    Full packages run as a whole, from text and what media both take to tokens. bf16 packages run as f32 twins; all
    others as they are, with what kernels of weights in blocks round. Raises ParityError where the vocabularies differ,
    one package is full and the other is not, or a graph cannot be run.
    """
    a, b = Path(a), Path(b)
    if is_full(a) != is_full(b):
        raise ParityError("one is a full package, the other is not; expected two of a kind", at=f"{a}, {b}")
    with tempfile.TemporaryDirectory(prefix="cabochon-compare-", dir=scratch) as place:
        first, second = (_subject(p, Path(place) / name, threads) for p, name in ((a, "a"), (b, "b")))
        if first.vocabulary != second.vocabulary:
            raise ParityError(
                f"vocabularies of {first.vocabulary} and {second.vocabulary} entries; they must be equal",
                at=f"{a}, {b}",
            )
        asked = [p for p in _asked(a, b, second.vocabulary) if p.generates]
        pairs = tuple(_pair(prompt, first, second) for prompt in asked)
    described = _described(a), _described(b)
    return Comparison(
        sizes=_both(_sizes(a), _sizes(b)),
        ports=_differing(described[0][0], described[1][0]),
        metadata=_differing(described[0][1], described[1][1]),
        pairs=pairs,
    )


def _pair(prompt: Prompt, a: "Subject | Whole", b: "Subject | Whole") -> Pair:
    ids = [subject.ids(prompt) for subject in (a, b)]
    logits = a.forward(ids[0])[0], b.forward(ids[1])[0]
    found, kept = apart(*logits), alike(*logits)
    ours, theirs = (s.greedy(i, NEW_TOKENS) for s, i in zip((a, b), ids, strict=True))
    same = np.array(ours) == np.array(theirs)
    equal = int(same.argmin()) if not same.all() else NEW_TOKENS
    divergence = None if kept is None else kept.described()["mean_kl_divergence"]
    return Pair(
        prompt.name, found.relative, min(found.cosines), found.agreement, equal, NEW_TOKENS, divergence
    )


def _subject(package: Path, place: Path, threads: int | None) -> "Subject | Whole":
    halves = activations(_properties(_graphs(package)[0])) == "bf16"
    if is_full(package):
        from cabochon.parity.whole import Whole

        return Whole(widen_full(package, place) if halves else package, threads=threads)
    return Subject.open(widen(package, place) if halves else package / "model.onnx", threads=threads)


def _asked(a: Path, b: Path, vocabulary: int) -> list[Prompt]:
    """The prompts for `b`; of full packages also those whose media both take."""
    config = json.loads((b / "config.json").read_text(encoding="utf-8"))
    said = _properties(_graphs(b)[0]).get("cabochon.sliding_window")
    window = int(said) if said else None
    if not is_full(b):
        first_id = config.get("text_config", config).get("bos_token_id")
        return prompts(b, vocabulary=vocabulary, window=window, first_id=first_id)
    encoders = ("vision_encoder", "audio_encoder")
    lacking = {name for name in encoders for package in (a, b) if not (package / name).is_dir()}
    configs = {name: name.replace("encoder", "config") for name in lacking}
    known = {**config, **dict.fromkeys(configs.values())}
    return [row for one in everything(b, known, window) for row in one.rows]


def _graphs(package: Path) -> list[Path]:
    """The folders of a package's graphs, the decoder's first."""
    if not is_full(package):
        return [package]
    others = (path.parent for path in sorted(package.glob("*/model.onnx")))
    return [package / "decoder", *(folder for folder in others if folder.name != "decoder")]


def _properties(folder: Path) -> dict[str, str]:
    return {item.key: item.value for item in read_graph(folder).metadata_props}


def _described(package: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Ports (type name and shape) and metadata properties of all graphs, as written; the decoder's without a prefix."""
    ports: dict[str, Any] = {}
    properties: dict[str, str] = {}
    for n, folder in enumerate(_graphs(package)):
        prefix = f"{folder.name}: " if n else ""
        ports |= {f"{prefix}{name}": port for name, port in _ports(folder).items()}
        properties |= {f"{prefix}{key}": value for key, value in _properties(folder).items()}
    return ports, properties


def _ports(folder: Path) -> dict[str, tuple[str, list[Any]]]:
    from onnx import TensorProto

    graph, found = read_graph(folder).graph, {}
    for port in [*graph.input, *graph.output]:
        tensor = port.type.tensor_type
        shape = [d.dim_param or d.dim_value for d in tensor.shape.dim]
        found[port.name] = (TensorProto.DataType.Name(tensor.elem_type).lower(), shape)
    return found


def _sizes(package: Path) -> dict[str, int]:
    return {str(p.relative_to(package)): p.stat().st_size for p in sorted(package.rglob("*")) if p.is_file()}


def _both(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (a.get(name), b.get(name)) for name in sorted({*a, *b})}


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: pair for name, pair in _both(a, b).items() if pair[0] != pair[1]}
