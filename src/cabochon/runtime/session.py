"""The graph of a decoder in a session of what runs it, with its ports by role."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.errors import PackageError
from cabochon.runtime.embedder import Embedder, Lookup
from cabochon.runtime.graph import Value, open_graph
from cabochon.runtime.ports import Argument, Cache, Ports, read_contract, read_ports


class Session:
    """A decoder's graph with its ports, and what makes its feeds of tokens."""

    def __init__(self, path: Path, embedder: Embedder | None = None, **options: Any) -> None:
        """`options` are those of `OnnxGraph`; without an embedder the decoder looks its tokens up itself.

        Raises PackageError for a graph that is not a decoder of ours, or not of the kind that the embedder feeds.
        """
        self.graph = open_graph(path, **options)
        self.put, self.run = self.graph.put, self.graph.run
        self.embedder = embedder or Lookup()
        contract = read_contract(
            self.metadata, path.name if embedder is None else f"{path.parent.name}/{path.name}"
        )
        self.ports: Ports = read_ports(
            self.graph.inputs.values(), self.graph.optional.values(), self.outputs.values(), contract
        )
        if contract.fed == (embedder is None):
            raise PackageError(
                f"a decoder {'fed by an embedding' if contract.fed else 'of text'}",
                at=str(path),
                remedy="load the folder of a whole package",
            )

    @property
    def provider(self) -> str:
        """What runs the graph."""
        return self.graph.provider

    @property
    def device(self) -> str:
        """Where caches live; see `Graph`."""
        return self.graph.device

    @property
    def settings(self) -> Mapping[str, str]:
        """What the provider says of how it computes; {} where it says nothing."""
        return self.graph.settings

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata properties of the graph."""
        return self.graph.metadata

    @property
    def outputs(self) -> Mapping[str, Argument]:
        """Outputs by name."""
        return self.graph.outputs

    def feeds(self, rows: Sequence[Sequence[int]], ids: np.ndarray) -> dict[str, Value]:
        """What the decoder takes for `ids` i64 [B, S]; `rows` are the same tokens, soft ones as such."""
        made = self.embedder.feeds(rows, ids)
        return {name: made[name] for name in self.ports.takes}

    def empty(self, cache: Cache, rows: int) -> Value:
        """A cache without columns."""
        return self.put(np.empty((rows, cache.heads, 0, cache.size), self.ports.dtype))
