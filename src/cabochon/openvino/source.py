"""A package that is to be converted: of what kind it is, its graphs, its own record."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cabochon import files, sums
from cabochon.errors import PackageError
from cabochon.metadata.full import COMPONENTS
from cabochon.package.layout import GRAPH, inside
from cabochon.strict_json import parse_object
from cabochon.validation.graph import Graph, read_graph
from cabochon.validation.net import Net, read_net

__all__ = ["EPCONTEXT", "IR", "PROVENANCE", "STANDARD", "Source", "read_nets", "read_source"]

STANDARD, IR, EPCONTEXT = "onnx-standard", "openvino-ir", "openvino-epcontext"
PROVENANCE = "provenance.json"
FILES = {IR: "openvino_model.xml", EPCONTEXT: "model.xml"}  # what a graph is called, by target
_EMBEDDING, _TARGET = "token_embedding", "target"


@dataclass(frozen=True)
class Source:
    """A package of onnx-standard or of openvino-ir. `graphs`: its graphs by the folder that each is converted into, ""
    for the package's own; `record`: its provenance; `digests`: SHA-256 by file, as its SHA256SUMS says; `inner`: the
    target of a pair."""

    root: Path
    kind: str  # "text", "full", "drafter" or "pair"
    graphs: Mapping[str, Graph] | Mapping[str, Net]
    record: Mapping[str, Any]
    digests: Mapping[str, str]
    inner: "Source | None" = None

    @property
    def properties(self) -> Mapping[str, str]:
        """Those of the graph that the package is named by."""
        return next(iter(self.graphs.values())).properties

    @property
    def target(self) -> str:
        """What it was built for."""
        return self.properties["cabochon.target"]

    @property
    def nbytes(self) -> int:
        """The bytes of its files."""
        return sum((self.root / name).stat().st_size for name in self.digests)

    def verify(self, advance: Callable[[int], object]) -> None:
        """Raise PackageError for a file that is not what was summed."""
        for name, digest in self.digests.items():
            if files.sha256(self.root / name, advance) != digest:
                raise PackageError(
                    f"is not what {sums.SUMS} says",
                    at=str(self.root / name),
                    remedy="build the package again",
                )


def read_source(root: Path) -> Source:
    """The package at `root`. Raises PackageError for what is none, or of another target."""
    root = root.resolve()
    if not (root / sums.SUMS).is_file():
        found = f"has no {sums.SUMS}" if root.is_dir() else "is not a folder"
        raise PackageError(
            f"{found}; expected a package", at=str(root), remedy=f"make one with --target {STANDARD}"
        )
    digests = sums.read(root)
    for name in digests:
        if not (root / name).is_file():
            raise PackageError(
                f"has no {name}, which {sums.SUMS} lists", at=str(root), remedy="build the package again"
            )
    graphs = {folder: read_graph(root, path) for folder, path in _graphs(root)} or read_nets(root, FILES[IR])
    said = next(iter(graphs.values())).properties if graphs else {}
    if said.get("cabochon.target") not in (STANDARD, IR):
        raise PackageError(
            f"was built for {said.get('cabochon.target')}; only packages of {STANDARD} and {IR} are converted",
            at=str(root),
            remedy=f"build it with --target {STANDARD}",
        )
    inner = read_source(root / _TARGET) if _EMBEDDING in graphs else None
    return Source(root, _kind(graphs), graphs, _record(root), digests, inner)


def read_nets(root: Path, file: str) -> dict[str, Net]:
    """The graphs of a converted package by their folders, "" for the package's own; `file` is what each is called."""
    paths = {folder: inside(folder, file) for folder in ("", _EMBEDDING, *COMPONENTS)}
    return {folder: read_net(root, path) for folder, path in paths.items() if (root / path).is_file()}


def _graphs(root: Path) -> Iterator[tuple[str, str]]:
    """The folders that graphs of ONNX are converted into, and where they lie."""
    paths = {
        "": GRAPH,
        _EMBEDDING: f"{_EMBEDDING}.onnx",
        **{name: inside(name, GRAPH) for name in COMPONENTS},
    }
    return ((folder, path) for folder, path in paths.items() if (root / path).is_file())


def _kind(graphs: Mapping[str, Graph] | Mapping[str, Net]) -> str:
    if _EMBEDDING in graphs:
        return "pair"
    if "" not in graphs:
        return "full"
    return "drafter" if graphs[""].properties.get("cabochon.model") == "drafter" else "text"


def _record(root: Path) -> dict[str, Any]:
    at, remedy = str(root / PROVENANCE), "build the package again"
    try:
        record = parse_object((root / PROVENANCE).read_bytes())
    except (OSError, ValueError) as error:
        raise PackageError(f"cannot be read: {error}", at=at, remedy=remedy) from None
    origins = [said for name in ("target", "assistant") if isinstance(said := record.get(name), Mapping)]
    if not origins or not all({"license", "license_evidence"} <= said.keys() for said in origins):
        raise PackageError("does not say which checkpoint it was built from", at=at, remedy=remedy)
    return record
