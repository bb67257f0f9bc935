"""Where in a document something is, and what stands there, in words."""

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from cabochon.errors import MetadataError

__all__ = ["Path", "Problem", "dotted", "in_words", "raised"]

Path = tuple[str | int, ...]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Problem(NamedTuple):
    """What is wrong at a path of the document."""

    path: Path
    found: str
    expected: str


def dotted(path: Path) -> str:
    """("state", "kv.0.key", "shape", 1) -> state["kv.0.key"].shape[1]."""
    keys = (f".{k}" if isinstance(k, str) and _NAME.fullmatch(k) else f"[{json.dumps(k)}]" for k in path)
    return "".join(keys).removeprefix(".")


def in_words(value: Any) -> str:
    """A value as a message shows it: short, and containers by their kind."""
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list | tuple):
        return f"a sequence of {len(value)}" if value else "an empty sequence"
    text = str(value) if type(value) is int else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def raised(problems: Iterable[Problem], at: str, remedy: str) -> MetadataError:
    """The first problem as an error, with the others behind it."""
    first, *others = (_error(problem, at, remedy) for problem in problems)
    return MetadataError(first.found, first.expected, at=first.at, remedy=remedy, others=tuple(others))


def _error(problem: Problem, at: str, remedy: str) -> MetadataError:
    where = ": ".join(filter(None, (at, dotted(problem.path))))
    return MetadataError(problem.found, problem.expected, at=where, remedy=remedy)
