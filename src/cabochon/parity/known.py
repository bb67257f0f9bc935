"""Published answers of real checkpoints: proof without torch and without the checkpoint."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cabochon.errors import ParityError
from cabochon.evidence import identity, versions, write
from cabochon.parity.evidence import Evidence, Verdict
from cabochon.parity.subject import Subject
from cabochon.parity.widened import is_full, read_graph, widen, widen_full

if TYPE_CHECKING:
    from cabochon.parity.whole import Whole

__all__ = ["TABLE", "TOLERANCES", "Known", "check_known", "read_table"]

TABLE = Path(__file__).with_name("known_answers.json")
# Of the largest |logit| published. f32: the project's limit. Halves round weights and the scale of the
# embedding (for a hidden size of 1536: 39.1875, 39.25; not 39.1918); the published f32 run did not. On the
# shipped miniature a scale wrong by 1.1e-4 moves logits by 3e-4, one wrong by 1.5e-3 by 5e-3 of the largest.
TOLERANCES = {"f32": 1e-4, "f16": 2e-3, "bf16": 2e-2}


@dataclass(frozen=True)
class Known:
    """One checkpoint's published answers to one prompt, in f32.

    top_ids, top_logits: the largest logits after the prompt, in order. logits: max, min, mean and std of all
    of them. geometry: config.json's figures that tell this checkpoint's family member from others.
    """

    id: str
    geometry: Mapping[str, int]
    prompt: str
    prompt_ids: tuple[int, ...]
    top_ids: tuple[int, ...]
    top_logits: tuple[float, ...]
    logits: Mapping[str, float]
    greedy_ids: tuple[int, ...]

    @property
    def scale(self) -> float:
        """The largest |logit|, which tolerances are relative to."""
        return max(abs(self.logits["max"]), abs(self.logits["min"]))


def read_table(path: Path = TABLE) -> tuple[str, list[Known]]:
    """Where the figures come from, and the figures."""
    table = json.loads(path.read_text(encoding="utf-8"))
    return table["source"], [_known(row) for row in table["models"]]


def _known(row: Mapping[str, Any]) -> Known:
    lists: dict[str, Any] = {
        key: tuple(row[key]) for key in ("prompt_ids", "top_ids", "top_logits", "greedy_ids")
    }
    return Known(**{**row, **lists})


def check_known(
    package: Path, *, threads: int | None = None, scratch: str | Path | None = None, table: Path = TABLE
) -> Evidence:
    """Compares a package with the published answers of its checkpoint and writes evidence/known_answers.json.

    The checkpoint is recognised by the id in provenance.json or, where there is none, by the geometry in
    config.json. Half-precision packages run as f32 twins, so that rounding of intermediates does not blur the
    figures. Raises ParityError for a checkpoint the table does not have, and for a quantized package.
    """
    source, rows = read_table(table)
    known, matched_by = _recognised(package, rows)
    with tempfile.TemporaryDirectory(prefix="cabochon-known-", dir=scratch) as place:
        subject, metadata, how = _subject(package, Path(place), threads)
        precision = metadata.get("cabochon.precision", "")
        findings = list(_findings(subject, known, TOLERANCES[precision]))
    document = {
        "level": "known answers",
        "passed": not findings,
        "source": source,
        "checkpoint": {"id": known.id, "matched_by": matched_by},
        "how": how,
        "tolerance": {
            "relative_to_largest_logit": TOLERANCES[precision],
            "absolute": TOLERANCES[precision] * known.scale,
        },
        "prompt": {"text": known.prompt, "ids": list(known.prompt_ids)},
        "findings": findings,
        "package": identity(package, metadata),
        "versions": versions(),
    }
    line = f"{known.id}: {'; '.join(findings) if findings else 'logits and greedy tokens as published'}"
    file = write(package, "known_answers.json", document)
    return Evidence(package, (Verdict("known answers", not findings, line, file),))


def _subject(
    package: Path, place: Path, threads: int | None
) -> "tuple[Subject | Whole, Mapping[str, str], str]":
    """What answers, the metadata of its decoder, and how it was run."""
    full = is_full(package)
    graph = read_graph(package / "decoder" if full else package)
    metadata = {item.key: item.value for item in graph.metadata_props}
    precision = metadata.get("cabochon.precision", "")
    if precision not in TOLERANCES:
        raise ParityError(
            f"is {precision}: published answers are those of weights that were never in blocks",
            at=str(package),
            remedy="compare with the checkpoint: cabochon parity PACKAGE SOURCE; or measure: cabochon eval",
        )
    how = "the package on onnxruntime CPU"
    if precision != "f32":
        how = f"the package's f32 twin ({precision} values widened) on onnxruntime CPU"
    if full:
        from cabochon.parity.whole import Whole

        ours = package if precision == "f32" else widen_full(package, place)
        return Whole(ours, threads=threads), metadata, f"{how}, in cabochon's runtime"
    path = package / "model.onnx" if precision == "f32" else widen(package, place)
    return Subject.open(path, threads=threads), metadata, how


def _recognised(package: Path, rows: Sequence[Known]) -> tuple[Known, str]:
    if name := _source_id(package):
        for row in rows:
            if row.id.lower() == name.lower():
                return row, "id in provenance.json"
        raise ParityError(
            f"no published answers for {name!r}; there are some for {', '.join(row.id for row in rows)}",
            at=str(package / "provenance.json"),
            remedy="compare with the checkpoint itself: cabochon parity PACKAGE SOURCE",
        )
    config = json.loads((package / "config.json").read_text(encoding="utf-8"))
    text = config.get("text_config", config)
    for row in rows:
        if all(text.get(key) == value for key, value in row.geometry.items()):
            return row, "geometry in config.json (a base model and its tuned ones share it)"
    raise ParityError(
        "no published answers for this geometry, and provenance.json names no checkpoint",
        at=str(package / "config.json"),
        remedy="compare with the checkpoint itself: cabochon parity PACKAGE SOURCE",
    )


def _source_id(package: Path) -> str | None:
    path = package / "provenance.json"
    if not path.is_file():
        return None
    provenance = json.loads(path.read_text(encoding="utf-8"))
    sources = (provenance.get(key) or {} for key in ("target", "source"))
    return next((source["id"] for source in sources if source.get("id")), None)


def _findings(subject: "Subject | Whole", known: Known, tolerance: float) -> Iterator[str]:
    """What does not hold, as sentences; nothing when all does."""
    allowed = tolerance * known.scale
    row = subject.forward(known.prompt_ids)[0][-1].astype(np.float64)
    for token, published in zip(known.top_ids, known.top_logits, strict=True):
        if not abs(row[token] - published) <= allowed:
            yield f"the logit of token {token} is {row[token]:.5f}; published {published:.5f} ± {allowed:.5f}"
    others = np.delete(row, known.top_ids)
    if not others.max() <= known.top_logits[-1] + allowed:
        yield f"a token outside the published {len(known.top_ids)} has the logit {others.max():.5f}"
    for name, published in known.logits.items():
        if not abs((found := float(getattr(np, name)(row))) - published) <= allowed:
            yield f"the {name} of all logits is {found:.5f}; published {published:.5f} ± {allowed:.5f}"
    greedy = subject.greedy(known.prompt_ids, len(known.greedy_ids))
    if tuple(greedy) != known.greedy_ids:
        at = next(i for i, (a, b) in enumerate(zip(greedy, known.greedy_ids, strict=True)) if a != b)
        yield f"greedy token {at} is {greedy[at]}; published is {known.greedy_ids[at]}"
