"""What a drafter's graph really says, and the graph that looks its tokens up: the measure for what a package states."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cabochon.gemma4.config import SLIDING
from cabochon.metadata.ports import Port
from cabochon.validation.blocks import blocked
from cabochon.validation.graph import Graph
from cabochon.validation.opened import DECODER, DRAFTER, Opened

__all__ = ["EMBEDDING", "Drafted", "drafted"]

EMBEDDING = "token_embedding.onnx"
_CENTROIDS = "masked_embedding.centroids.weight"


@dataclass(frozen=True)
class Drafted:
    """The facts of a drafter's graph."""

    graph: Graph

    @property
    def backbone(self) -> int | str:
        """The width of the state that it returns."""
        return self.graph.ports.outputs["projected_state"].shape[-1]

    @property
    def vocabulary(self) -> int | str:
        """The number of its logits."""
        return self.graph.ports.outputs["logits"].shape[-1]

    @property
    def window(self) -> int | None:
        """The keys that a sliding layer of its target sees."""
        said = self.graph.properties.get("cabochon.sliding_window", "")
        return int(said) if said.isdecimal() else None

    @cached_property
    def kinds(self) -> Mapping[str, Port]:
        """The port of the keys of each kind of layer that it reads."""
        names = {name: name.split(".") for name in self.graph.ports.inputs if name.startswith("shared_kv.")}
        return {kind: self.graph.ports.inputs[n] for n, (_, kind, part) in names.items() if part == "key"}

    @cached_property
    def centroids(self) -> int | None:
        """The groups of an ordered head; None for a dense one."""
        packed = next((one.rows for one in blocked(self.graph) if one.name == _CENTROIDS), None)
        table = self.graph.initializers.get(_CENTROIDS)
        return packed or (table.shape[0] if table else None)

    @cached_property
    def top_k(self) -> int | None:
        """The groups whose tokens are scored."""
        best = (node.input[1] for node in self.graph.nodes if node.op_type == "TopK")
        value = self.graph.inline(next(best, "")) if self.centroids else None
        return None if value is None else int(value.reshape(-1)[0])

    @cached_property
    def borrows(self) -> dict[str, dict[str, Any]]:
        """What component_contract.yaml must say of what is read."""
        seen = None if self.window is None else self.window + 1
        return {
            kind: {
                "access": "read_only",
                "heads": port.shape[1],
                "head_size": port.shape[3],
                "keys_seen": seen if kind == SLIDING else "all",
            }
            for kind, port in self.kinds.items()
        }


def drafted(package: Opened) -> Drafted | None:
    """The facts of model.onnx; None where it is no drafter, or lacks what every one has: the rules on ports say so."""
    graph = package.graphs.get(DECODER)
    if graph is None or graph.properties.get("cabochon.model") != DRAFTER:
        return None
    whole = {"projected_state", "logits"} <= graph.ports.outputs.keys()
    shapes = [port.shape for name, port in graph.ports.inputs.items() if name.startswith("shared_kv.")]
    named = all(name.count(".") == 2 for name in graph.ports.inputs if name.startswith("shared_kv."))
    return Drafted(graph) if whole and named and all(len(shape) == 4 for shape in shapes) else None
