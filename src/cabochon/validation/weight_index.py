"""model.onnx.data.index.json: which file of weights holds each tensor, for whoever fetches them one by one.

It says what the graph's external data say, in the form that indexes of safetensors have. Targets that limit the bytes
of a file (`Target.file_bytes`) have one beside every graph with external data.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

from cabochon import sums
from cabochon.errors import PackageError
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.inside import resolved
from cabochon.validation.mentions import index_path
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, rule
from cabochon.validation.targeted import target_of

__all__ = ["index_of", "index_path", "indexed"]

_SHOWN = 5  # differences of one index


def indexed(package: Opened) -> Iterator[Graph]:
    """The graphs that must have an index: they have external data, and their target limits files.

    Those of the target of a pair, a package of its own, are not among them.
    """
    for path, graph in package.graphs.items():
        external = any(weight.external for weight in graph.tensors.values())
        if external and _limit(graph) is not None and not _inner(package, path):
            yield graph


def _limit(graph: Graph) -> int | None:
    """The most bytes of a file that the target of the graph reads."""
    target = target_of(graph)
    return target.file_bytes if target else None


def index_of(graph: Graph, sizes: Mapping[str, int], digests: Mapping[str, str]) -> dict[str, Any]:
    """The index of a graph. `sizes` and `digests` are those of the package's files by path; None where not known.

    `total_size` counts the bytes of weights; two that are the very same bytes once.
    """
    lying = {name: (w.external, w.nbytes) for name, w in graph.tensors.items() if w.external}
    where = {name: external.location or "" for name, (external, _) in lying.items()}
    distinct = {(e.location, e.offset, nbytes) for e, nbytes in lying.values()}
    paths = {name: (graph.folder() / name).as_posix() for name in where.values()}
    return {
        "metadata": {"total_size": sum(nbytes for _, _, nbytes in distinct)},
        "files": {n: {"bytes": sizes.get(path), "sha256": digests.get(path)} for n, path in paths.items()},
        "weight_map": where,
    }


@rule("FIL022", Severity.ERROR)
def wrong_index(package: Opened) -> Iterator[Found]:
    """The index of external data is not what the graph says.

    Causes: A graph that was saved again, data files that were merged, split or replaced, an index of another build. Who
    fetches the files that it names has other weights than the graph asks for, or too few.
    Remedy: Build the package again, or correct the index at the place that is named.
    """
    digests = _digests(package)
    for path, graph in package.graphs.items():
        said = package.json(index_path(path))
        if said is not None and not _inner(package, path):
            found = _differing(said, index_of(graph, package.files, digests))
            yield from (
                Found(f"{index_path(path)}: {at}", what, expected)
                for at, what, expected in islice(found, _SHOWN)
            )


def _differing(said: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Where an index is not right: its address, what is said there and what is expected."""
    for part in right:
        stated, expected = _object(said.get(part)), right[part]
        for key in expected if part == "metadata" else dict.fromkeys([*expected, *stated]):
            if not _agree(stated.get(key), expected.get(key)):
                yield f"{part}.{key}", _shown(stated.get(key)), _shown(expected.get(key))


def _agree(said: Any, right: Any) -> bool:
    """Of a file whatever is known of it must be said; of all else the very same."""
    if isinstance(right, dict) and isinstance(said, dict):
        return all(value in (None, said.get(key)) for key, value in right.items())
    return said == right


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _shown(value: Any) -> str:
    return "nothing" if value is None else repr(value)[:200]


@rule("FIL023", Severity.WARNING)
def no_index(package: Opened) -> Iterator[Found]:
    """A graph whose target limits files has no index of its external data.

    Causes: The index was left out of a copy, or an earlier version of cabochon built the package. Whoever fetches the
    files one by one has to parse the graph for their names.
    Remedy: Put the index back, or build again.
    """
    for graph in indexed(package):
        if index_path(graph.path) not in package.files:
            yield Found(index_path(graph.path), "no such file", f"the index of the weights of {graph.path}")


@rule("FIL024", Severity.ERROR)
def too_large(package: Opened) -> Iterator[Found]:
    """A file of weights is larger than what its target reads.

    Causes: Data files that were merged after the build, or a graph that was saved again into one file. A browser hands
    a file over as one ArrayBuffer, which ends before 2 GiB.
    Remedy: Build the package again: weights then go into as many files as they need.
    """
    for graph in indexed(package):
        limit, folder = _limit(graph) or 0, graph.folder().as_posix()
        for location in dict.fromkeys(w.external.location for w in graph.tensors.values() if w.external):
            name = resolved(package, folder, location) or ""
            if (size := package.files.get(name, 0)) > limit:
                yield Found(name, f"{size:,} bytes, for {graph.path}", f"at most {limit:,}")


def _inner(package: Opened, path: str) -> bool:
    """Whether the file is of the target of a pair, a package that is judged by itself."""
    return package.inner is not None and PurePosixPath(path).is_relative_to(package.inner)


def _digests(package: Opened) -> dict[str, str]:
    """SHA256SUMS, empty where it cannot be read: another rule says so."""
    try:
        return sums.read(package.root) if sums.SUMS in package.files else {}
    except PackageError:
        return {}
