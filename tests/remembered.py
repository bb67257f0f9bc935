"""What thousands of tests would work out of the same bytes again, worked out once in a worker: each of these functions
gives the same for the same, and nobody changes what it gave. Whatever a test breaks has other bytes, and is worked out.

A package's documents and graphs (with what rules work out of a graph) where those of another package have the same
bytes. Child processes know nothing of this.
"""

import hashlib
import sys
import typing
from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache, wraps
from pathlib import Path
from typing import Any

import pytest

from cabochon.validation import graph as graphs
from cabochon.validation import opened, schema
from cabochon.validation.graph import Graph


def install(patch: pytest.MonkeyPatch) -> None:
    """Put the functions that remember in the places of those that do not."""
    patch.setattr(opened, "_document", cache(opened._document))
    patch.setattr(opened, "read_graph", _read_graph)
    patch.setattr(schema, "_first_difference", _of_first(schema._first_difference))
    patch.setattr(schema, "identity", _of_objects(schema.identity))
    if sys.version_info < (3, 12):  # which remembers by itself what a protocol asks for; onnx_ir has many
        patch.setattr(typing, "_get_protocol_attrs", cache(vars(typing)["_get_protocol_attrs"]))


def forget(patch: pytest.MonkeyPatch) -> None:
    """Put back those that do not."""
    for module, name in (
        (opened, "_document"), (opened, "read_graph"), (schema, "_first_difference"), (schema, "identity"),
    ):  # fmt: skip
        patch.setattr(module, name, getattr(module, name).__wrapped__)


def _of_first(make: Callable[..., Any]) -> Callable[..., Any]:
    """By its first argument, of which the others follow."""
    known: dict[Any, Any] = {}

    @wraps(make)
    def remembered(first: Any, *others: Any) -> Any:
        if first not in known:
            known[first] = make(first, *others)
        return known[first]

    return remembered


def _of_objects(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """By the very object, which is kept, so that its id is nobody else's."""
    known: dict[int, tuple[Any, Any]] = {}

    @wraps(make)
    def remembered(value: Any) -> Any:
        if id(value) not in known:
            known[id(value)] = value, make(value)
        return known[id(value)][1]

    return remembered


_FIELDS = {field.name for field in fields(Graph)}
_read: dict[tuple[str, bytes], Graph] = {}
_known: dict[tuple[str, bytes, tuple[str, ...]], Graph] = {}


@wraps(graphs.read_graph)
def _read_graph(root: Path, path: str) -> Graph:
    """The graph, and all that was worked out of one with the same bytes, those of its weights included."""
    content = (root / path).read_bytes()
    if (path, content) not in _read:
        _read[path, content] = graphs.read_graph(root, path)
    graph = replace(_read[path, content], root=root)
    key = path, content, tuple(_weights(graph))
    if key in _known:
        vars(graph).update({name: made for name, made in vars(_known[key]).items() if name not in _FIELDS})
    _known[key] = graph
    return graph


def _weights(graph: Graph) -> list[str]:
    """A hash of each file that the graph refers to; of a file that is none, where it would be."""
    said = {weight.external.location or "" for weight in graph.tensors.values() if weight.external}
    paths = [graph.root / graph.folder() / name for name in sorted(said)]
    return [_hashed(p, p.stat().st_mtime_ns, p.stat().st_size) if p.is_file() else str(p) for p in paths]


@cache
def _hashed(path: Path, changed: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
