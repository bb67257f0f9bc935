"""What a decoder's graph and config really say: the measure for provenance, card and configs. Independent of the
modules that wrote them.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cabochon.gemma4 import TextConfig
from cabochon.gemma4.config import FULL, SLIDING
from cabochon.validation.assembled import assembled
from cabochon.validation.attention_nodes import attention_nodes
from cabochon.validation.caches import caches
from cabochon.validation.graph import Graph
from cabochon.validation.lookup_nodes import factor, token_tables
from cabochon.validation.memo import once
from cabochon.validation.opened import DECODER, DRAFTER, FED, LOOKUP, Opened

__all__ = ["Decoded", "built", "decoded", "parts"]

_KINDS = {SLIDING: "local_sliding", FULL: "global_full"}  # as provenance.json calls them


@dataclass(frozen=True)
class Decoded:
    """The facts of a decoder; `config` is None where config.json could not be read.

    `embedding` looks its tokens up, where another graph does.
    """

    graph: Graph
    config: TextConfig | None
    embedding: Graph | None = None

    @property
    def lookup(self) -> Graph:
        """The graph that looks tokens up."""
        return self.embedding or self.graph

    @cached_property
    def operators(self) -> Mapping[str, int]:
        """Nodes by operator, those of other domains with the domain's name before theirs."""
        named = (
            f"{n.domain}.{n.op_type}" if n.domain not in ("", "ai.onnx") else n.op_type
            for n in self.graph.nodes
        )
        return dict(Counter(named))

    @cached_property
    def fused(self) -> set[str]:
        """The operators of onnxruntime, as the field spells them: GroupQueryAttention is group_query_attention."""
        found = {
            n.op_type.replace("MatMul", "Matmul") for n in self.graph.nodes if n.domain == "com.microsoft"
        }
        return {re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() for name in found}

    @cached_property
    def attentions(self) -> Mapping[str, int]:
        """Attention operators by name and how often they are there."""
        found = {name.rpartition(".")[2]: count for name, count in self.operators.items()}
        return {name: count for name, count in found.items() if name.endswith("Attention")}

    @cached_property
    def owners(self) -> list[int]:
        """The layers with caches."""
        return sorted({layer for layer, _ in caches(self.graph)})

    @cached_property
    def layers(self) -> int | None:
        """Attentions over a cache, one for each layer; None where some are not recognised, as ATT001 says."""
        found = [node.layer for node in attention_nodes(self.graph)]
        return len(found) if found == list(range(len(found))) else None

    @property
    def borrowers(self) -> int | None:
        """Layers without caches of their own."""
        return None if self.layers is None else self.layers - len(self.owners)

    def by_kind(self, axis: int) -> dict[str, Any]:
        """A dimension of the caches by the kind of their layers."""
        ports = {layer: cache.past for (layer, part), cache in caches(self.graph).items() if part == "key"}
        kinds = self.config.layers if self.config else ()
        return {
            _KINDS[kinds[layer].kind]: port.shape[axis]
            for layer, port in ports.items()
            if port and layer < len(kinds) and len(port.shape) > axis
        }

    @property
    def tap(self) -> str | None:
        """The output that carries hidden states."""
        return next((name for name in self.graph.ports.outputs if name.startswith("hidden_states.")), None)

    @property
    def vocabulary(self) -> int | None:
        """The last dimension of the logits."""
        port = self.graph.ports.outputs.get("logits")
        size = port.shape[-1] if port and port.shape else None
        return size if isinstance(size, int) else None

    @property
    def dtype(self) -> str | None:
        """The element type of the logits."""
        port = self.graph.ports.outputs.get("logits")
        return port.dtype if port else None

    @cached_property
    def embed_scale(self) -> float | None:
        """The constant that rows of the embedding table are multiplied by."""
        tables = token_tables(self.lookup)
        return factor(self.lookup, tables[0]) if tables else None

    @property
    def kept(self) -> int | None:
        """The default of logits_to_keep; 1 without that input where the port of the logits has one position."""
        value = self.graph.inline("logits_to_keep")
        if value is not None and value.size == 1:
            return int(value.reshape(-1)[0])
        logits = self.graph.ports.outputs.get("logits")
        return 1 if logits is not None and logits.shape[1:2] == (1,) else None


def decoded(package: Opened) -> Decoded | None:
    """The facts of the decoder; None where the package has none."""
    return once(package, _decoded)


def _decoded(package: Opened) -> Decoded | None:
    graph = package.decoder
    if graph is None or not caches(graph):
        return None
    return Decoded(graph, package.config, package.graphs.get(LOOKUP) if graph.path == FED else None)


def built(package: Opened) -> Decoded | None:
    """What holds for model.onnx whatever it is: of a drafter operators, types and weights."""
    if found := decoded(package):
        return found
    return once(package, _drafted)


def _drafted(package: Opened) -> Decoded | None:
    graph = package.graphs.get(DECODER)
    own = graph is not None and graph.properties.get("cabochon.model") == DRAFTER
    return Decoded(graph, None) if graph and own else None


def parts(package: Opened) -> tuple[Decoded, ...]:
    """What holds for every graph with weights: operators, types and weights. Of a full package these are several."""
    return once(package, _parts)


def _parts(package: Opened) -> tuple[Decoded, ...]:
    if found := assembled(package):
        return tuple(Decoded(graph, None) for graph in found.graphs.values())
    return tuple(found for found in (built(package),) if found)
