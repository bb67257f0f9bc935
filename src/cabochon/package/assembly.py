"""What stands beside the weights of a package: graph, side files, documents, checksums; judged together."""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cabochon import files, sums
from cabochon.errors import PackageError
from cabochon.package.described import Described
from cabochon.package.facts import Digest, Facts
from cabochon.package.graph_file import serialize
from cabochon.package.layout import GRAPH, Layouts, inside
from cabochon.package.notices import requirements, source_license
from cabochon.validation import reports
from cabochon.validation.checking import Begun, Verdict, finish
from cabochon.validation.mentions import index_path
from cabochon.validation.weight_index import index_of, indexed

__all__ = ["accept", "complete", "place_graphs"]

_SHOWN = 20  # findings that an error lists
_NOTICES = {
    "SOURCE_LICENSE.md": "the licence of the checkpoint",
    reports.EVIDENCE: "what `cabochon validate --quick` said when it was built",
    "runtime-requirements.txt": "the wheels it was built beside",
    sums.SUMS: f"checksums of all these files: `sha256sum -c {sums.SUMS}`",
}


def place_graphs(facts: Facts[Any], layouts: Layouts, folder: Path, package: Described[Any]) -> Facts[Any]:
    """The graphs, their contract and the files that come along, into `folder`.

    Returns `facts` with the digests of the graphs.

    Raises GraphError where the weights of a graph are not those that `layouts` places.
    """
    digests: dict[str, Digest] = {}
    for name, model in facts.models.items():
        graph, path = serialize(model, layouts.parts[name]), inside(name, GRAPH)
        (folder / path).write_bytes(graph)
        digests[path] = Digest(len(graph), files.sha256(folder / path))
    for name, content in package.contract(facts).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    for name, (file, _) in package.travelling(facts).items():
        files.copy(file, folder / name)
    return replace(facts, digests=digests)


def complete(facts: Facts[Any], folder: Path, package: Described[Any], begun: Begun) -> None:
    """The documents and the checksums of `folder`, in which all else stands; and the verdict on all of it.

    `begun` is what was said of the graph and its contract already.

    Raises PackageError where a rule finds an error.
    """
    indexes = {index_path(graph.path): graph for graph in indexed(begun.opened)}
    _describe(facts, folder, package, indexes)
    known = {name: digest.sha256 for name, digest in facts.digests.items()}
    summed = {**package.summed(), **known}
    sizes = {name: (folder / name).stat().st_size for name in summed}
    for name, graph in indexes.items():
        _write(folder / name, json.dumps(index_of(graph, sizes, summed), indent=1) + "\n")
    sums.write(folder, summed)
    accept(finish(begun), folder)


def _describe(facts: Facts[Any], folder: Path, package: Described[Any], indexes: Collection[str]) -> None:
    for name, text in package.documents(facts).items():
        _write(folder / name, text)
    _write(folder / "SOURCE_LICENSE.md", source_license(facts))
    _write(folder / "runtime-requirements.txt", requirements(facts))
    _write(folder / "README.md", package.card(facts, _files(facts, package, indexes)))


def _files(facts: Facts[Any], package: Described[Any], indexes: Collection[str]) -> Mapping[str, str]:
    """The files of the package and what each is, for its card."""
    graphs = {inside(name, GRAPH): _graph(name) for name in facts.models}
    what = {**graphs, **{name: "the weights" for name in facts.digests if name not in graphs}}
    what |= dict.fromkeys(
        indexes, "which file each of the weights is in; the size and the SHA-256 of each file"
    )
    what |= {name: said for name, (_, said) in package.travelling(facts).items()}
    return {**what, **package.said(), **_NOTICES}


def _graph(component: str) -> str:
    return f"the graph of the {component.replace('_', ' ')}" if component else "the graph"


def accept(verdict: Verdict, folder: Path) -> None:
    """Keep the verdict of all rules but those that read weights, which were hashed just now, in the package.

    Raises PackageError where it has errors.
    """
    if verdict.errors:
        shown = "\n".join(str(finding) for finding in verdict.errors[:_SHOWN])
        raise PackageError(
            f"the package that was written has {len(verdict.errors)} errors:\n{shown}",
            at=str(folder),
            remedy="this is a fault of cabochon, of the checkpoint's files or of the disk: build again, and report it",
        )
    reports.record(verdict, folder)


def _write(path: Path, text: str) -> None:
    # A name of undecodable bytes, of the checkpoint or in the command, is spelled \udcff: in JSON the very same.
    path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
