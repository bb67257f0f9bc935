"""`compare`: two packages side by side, without a reference."""

import json
import tempfile
from collections.abc import Mapping, Sequence
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
from cabochon.parity.widened import is_drafter, is_full, read_graph, read_properties, widen, widen_full
from cabochon.runtime.folder import decoder_file, graph_file, open_folder
from cabochon.runtime.pair import TARGET
from cabochon.runtime.properties import IR
from cabochon.validation.net import read_net

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
    """Pairs (a, b): bytes by file; ports and metadata where they differ; what ran each; figures by prompt.

    OpenVINO's IR is compared with nothing rounded on either side (`pairs`), and as both run by themselves, faster:
    `usual`, with what `ran_usually`. Both are empty where neither is such a package.
    """

    sizes: Mapping[str, tuple[int | None, int | None]]
    ports: Mapping[str, tuple[Any, Any]]
    metadata: Mapping[str, tuple[str | None, str | None]]
    ran: tuple[str, str]
    pairs: tuple[Pair, ...]
    ran_usually: tuple[str, ...] = ()
    usual: tuple[Pair, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The comparison as plain data, for `--json`."""
        return asdict(self)


def compare(
    a: str | Path, b: str | Path, *, threads: int | None = None, scratch: str | Path | None = None
) -> Comparison:
    """Compares two packages with one vocabulary, text or full ones, on prompts tokenized by `b`'s tokenizer.

    Of a pair its target is compared. Full packages run as a whole, from text and what media both take to tokens. bf16
    packages run as f32 twins; all others as they are, with what kernels of weights in blocks round. Raises PackageError
    for what is no package, and ParityError where one is a drafter alone, the vocabularies differ, one package is full
    and the other is not, or a graph cannot be run.
    """
    a, b = _predicting(Path(a)), _predicting(Path(b))
    if is_full(a) != is_full(b):
        raise ParityError("one is a full package, the other is not; expected two of a kind", at=f"{a}, {b}")
    with tempfile.TemporaryDirectory(prefix="cabochon-compare-", dir=scratch) as place:
        placed = (a, Path(place) / "a"), (b, Path(place) / "b")
        ir = any(_is_ir(package) for package in (a, b))
        first, second = (_subject(p, at, threads, exact=ir) for p, at in placed)
        if first.vocabulary != second.vocabulary:
            raise ParityError(
                f"vocabularies of {first.vocabulary} and {second.vocabulary} entries; they must be equal",
                at=f"{a}, {b}",
            )
        asked = [p for p in _asked(a, b, second.vocabulary) if p.generates]
        ran, pairs = _answers(first, second, asked)
        del first, second
        usually: tuple[tuple[str, ...], tuple[Pair, ...]] = (), ()
        if ir:
            first, second = (_subject(p, at, threads, usual=True) for p, at in placed)
            usually = _answers(first, second, asked)
    described = _described(a), _described(b)
    return Comparison(
        sizes=_both(_sizes(a), _sizes(b)),
        ports=_differing(described[0][0], described[1][0]),
        metadata=_differing(described[0][1], described[1][1]),
        ran=ran,
        pairs=pairs,
        ran_usually=usually[0],
        usual=usually[1],
    )


def _predicting(package: Path) -> Path:
    """What predicts by itself: of a pair its target, else the package."""
    if open_folder(package).full or not is_drafter(package):
        return package
    if decoder_file(package / TARGET) is None:
        raise ParityError(
            "a drafter, which predicts nothing alone; expected a pair, or a package of text or a full one",
            at=str(package),
            remedy="`cabochon parity` compares a drafter step by step",
        )
    return package / TARGET


def _answers(
    a: "Subject | Whole", b: "Subject | Whole", asked: Sequence[Prompt]
) -> tuple[tuple[str, str], tuple[Pair, ...]]:
    """What ran both, and what they answered."""
    return (a.how, b.how), tuple(_pair(prompt, a, b) for prompt in asked)


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


def _is_ir(package: Path) -> bool:
    graph = decoder_file(package)
    return graph is not None and graph.suffix == IR


def _subject(
    package: Path, place: Path, threads: int | None, *, exact: bool = False, usual: bool = False
) -> "Subject | Whole":
    """`usual`: an IR with the settings that OpenVINO has by itself."""
    settings = {} if usual else None
    halves = activations(_properties(_graphs(package)[0])) == "bf16" and not _is_ir(package)
    if is_full(package):
        from cabochon.parity.whole import Whole

        ours = widen_full(package, place) if halves and not place.exists() else place if halves else package
        return Whole(ours, threads=threads, settings=settings, exact=exact)
    own = widen(package, place) if halves else graph_file(package) or package / "model.onnx"
    return Subject.open(own, threads=threads, settings=settings, exact=exact)


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
    others = (folder for folder in sorted(package.iterdir()) if graph_file(folder) is not None)
    return [package / "decoder", *(folder for folder in others if folder.name != "decoder")]


def _properties(folder: Path) -> dict[str, str]:
    return read_properties(folder)


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

    file = graph_file(folder)
    if file is not None and file.suffix == IR:
        ports = read_net(folder, file.name).ports
        return {
            p.name: (_spelled(p.dtype), list(p.shape)) for p in {**ports.inputs, **ports.outputs}.values()
        }
    graph, found = read_graph(folder).graph, {}
    for port in [*graph.input, *graph.output]:
        tensor = port.type.tensor_type
        shape = [d.dim_param or d.dim_value for d in tensor.shape.dim]
        found[port.name] = (TensorProto.DataType.Name(tensor.elem_type).lower(), shape)
    return found


def _spelled(dtype: str) -> str:
    """As ONNX spells it."""
    return {"float32": "float"}.get(dtype, dtype)


def _sizes(package: Path) -> dict[str, int]:
    return {str(p.relative_to(package)): p.stat().st_size for p in sorted(package.rglob("*")) if p.is_file()}


def _both(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (a.get(name), b.get(name)) for name in sorted({*a, *b})}


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: pair for name, pair in _both(a, b).items() if pair[0] != pair[1]}
