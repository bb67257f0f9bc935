"""What the files of a package state, and how it is compared with what is measured."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cabochon.metadata.document import Document
from cabochon.sums import SUMS
from cabochon.validation.assembled import assembled
from cabochon.validation.facts import Decoded, built, decoded
from cabochon.validation.graph import Graph
from cabochon.validation.opened import DOCUMENTS, Opened
from cabochon.validation.rules import Found

__all__ = [
    "CARD",
    "CLOSE",
    "GENAI",
    "NEEDS",
    "NOTHING",
    "PROVENANCE",
    "VARIES",
    "differing",
    "documents",
    "entries",
    "facts",
    "inside",
    "one",
    "own_graphs",
    "sums_of",
    "whole",
    "whole_name",
]

NEEDS = ("graphs",)


PROVENANCE, CARD, GENAI = "provenance.json", "README.md", "genai_config.json"


NOTHING, VARIES = "nothing", "nothing: it differs between layers"  # what must not be said


CLOSE = 1e-6  # relative; numbers that went through decimal text


def facts(package: Opened) -> Iterator[Decoded]:
    """The decoder, if there is one."""
    if found := decoded(package):
        yield found


def whole(package: Opened) -> Iterator[Decoded]:
    """The graph of the package itself: its decoder, or the drafter that it is or holds beside its target."""
    if found := built(package):
        yield found


def own_graphs(package: Opened) -> Mapping[str, Graph]:
    """The graphs that were built from the checkpoint, by component; "" is the name of a lone one."""
    if parts := assembled(package):
        return parts.graphs
    lone = built(package)
    return {"": lone.graph} if lone else {}


def whole_name(name: str) -> str:
    """The tensor that a weight is, or is a part of: `embed_tokens_per_layer.3.weight` is a part of the table, and so is
    `embed_tokens.rows1000.weight`, and `experts.down_proj.rows64`."""
    if "embed_tokens" in name or "lm_head" in name:
        return re.sub(r"(\.\d+)?(\.rows\d+)?\.weight$", ".weight", name)
    return re.sub(r"(\.experts\.\w+)\.rows\d+$", r"\1", name)


def inside(data: Any, *keys: str) -> Any:
    """A value inside of nested objects; None where there is none."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def entries(data: Any, *keys: str) -> Mapping[str, Any]:
    """An object inside of nested objects; an empty one where there is none."""
    found = inside(data, *keys)
    return found if isinstance(found, Mapping) else {}


def differing(at: str, said: Mapping[str, Any] | None, real: Mapping[str, Any]) -> Iterator[Found]:
    """Every entry of `real` that is said, and otherwise. None is what is not known."""
    for key, expected in real.items():
        found = inside(said, key)
        if found is not None and expected is not None and not _same(found, expected):
            yield Found(f"{at}.{key}" if at else key, _short(found), _short(expected))


def _same(found: Any, expected: Any) -> bool:
    if isinstance(found, float | int) and isinstance(expected, float) and not isinstance(found, bool):
        margin = CLOSE * max(abs(expected), 1)
        return (
            expected - margin <= found <= expected + margin
        )  # a whole number may be too large for any float
    return type(found) is type(expected) and found == expected


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 200 else text[:200] + " ..."


def one(numbers: Mapping[str, Any]) -> Any:
    """The number that all layers have; None where they differ."""
    return next(iter(numbers.values())) if len(set(numbers.values())) == 1 else None


def sums_of(package: Opened) -> Mapping[str, str]:
    """The hashes of SHA256SUMS by file."""
    lines = re.findall(r"^([0-9a-f]{64}) [ *](.+)$", package.text(SUMS) or "", re.MULTILINE)
    return {name: digest for digest, name in lines}


def documents(package: Opened) -> Iterator[tuple[str, Document]]:
    """Every document but the annotated copy, which a rule of its own holds equal."""
    return ((name, document) for name, document in package.documents.items() if name != DOCUMENTS[2])
