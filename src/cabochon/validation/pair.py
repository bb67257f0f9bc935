"""The speculative section of a document beside the graphs of proposer and target."""

from collections.abc import Iterator
from dataclasses import dataclass

from cabochon.metadata.document import Chained, Speculative, ValueRef
from cabochon.metadata.ports import Port
from cabochon.validation.described import Described, described
from cabochon.validation.graph import Graph
from cabochon.validation.opened import Opened

__all__ = ["Pair", "last", "pairs"]


@dataclass(frozen=True)
class Pair:
    """The speculative section of a document with the graphs of proposer and target, where they could be read."""

    document: Described
    said: Speculative
    proposer: Graph | None
    target: Graph | None

    def at(self, *path: str) -> str:
        """The address of a place in the section."""
        return ".".join((f"{self.document.name}: speculative", *path))

    @property
    def chained(self) -> Chained | None:
        """How proposals are chained; None for another kind."""
        return self.said.proposal_execution if isinstance(self.said.proposal_execution, Chained) else None

    def output(self, reference: ValueRef | None) -> Port | None:
        """The port that a reference names."""
        graph = self.document.graphs.get(reference.component) if reference else None
        return graph.ports.outputs.get(reference.output) if graph and reference else None


def pairs(package: Opened) -> Iterator[Pair]:
    """Every speculative section."""
    for document in described(package):
        if said := document.document.speculative:
            graphs = document.graphs
            yield Pair(document, said, graphs.get(said.proposer), graphs.get(said.target))


def last(port: Port | None) -> int | None:
    """The last dimension, where it is a number."""
    size = port.shape[-1] if port and port.shape else None
    return size if isinstance(size, int) else None
