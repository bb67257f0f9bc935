"""component_contract.yaml: what each graph of a package takes and gives, and what it borrows, read off the graphs."""

from collections.abc import Mapping
from typing import Any

from cabochon.evidence import activations
from cabochon.gemma4.config import SLIDING
from cabochon.metadata.drafter import CARRY, FUSED, Drafter
from cabochon.metadata.pair import Pair
from cabochon.metadata.ports import Port, Ports
from cabochon.metadata.yaml import write

__all__ = ["COMPONENT_CONTRACT", "drafter_contract", "pair_contract"]

COMPONENT_CONTRACT = "component_contract.yaml"

_MEANS = {
    FUSED: "the target's scaled embedding row of the newest token, then the target's hidden state or the carry",
    "attention_mask": "ones are tokens whose keys are given; zeros may stand anywhere",
    "logits": "scores of the token behind the newest",
    CARRY: "stands in for the target's hidden state in the next step",
}


def drafter_contract(drafter: Drafter) -> bytes:
    """Of a drafter by itself."""
    return write({"components": {drafter.name: _drafter(drafter, {})}})


def pair_contract(pair: Pair) -> bytes:
    """Of a drafter, of what looks its tokens up, and of the target that it reads."""
    anchors = {kind: layer for kind, layer in pair.target.anchors.items() if kind in pair.drafter.kinds}
    components = {
        pair.drafter.name: _drafter(pair.drafter, anchors),
        "token_embedding": {
            "artifact": pair.embedding.artifact,
            **_ports(pair.embedding.ports, {}),
            "tables": list(pair.embedding.tables),
            **({"beside_tables": list(pair.embedding.beside)} if pair.embedding.beside else {}),
            "table_in": pair.holder.artifact,
            "scale": pair.embedding.scale,
        },
        pair.target.name: {
            "artifact": pair.target.artifact,
            "hidden_states": pair.target.hidden,
            "caches": sorted({cache.layer for cache in pair.target.caches}),
            "read_by_the_drafter": {kind: f"layer {layer}" for kind, layer in anchors.items()},
        },
    }
    return write({"components": components})


def _drafter(drafter: Drafter, anchors: Mapping[Any, int]) -> dict[str, Any]:
    return {
        "artifact": drafter.artifact,
        "model": drafter.properties["cabochon.model"],
        "target": drafter.properties["cabochon.target"],
        "precision": drafter.properties["cabochon.precision"],
        "activations": activations(drafter.properties),
        **_ports(drafter.ports, _MEANS),
        "owns": [],
        "borrows": {kind: _borrowed(drafter, kind, port, anchors) for kind, port in drafter.kinds.items()},
        "position": {
            "rule": "the number of ones in the first kv_sequence columns of attention_mask",
            "held": "in every step of a round, and for all queries of a call",
        },
        "carry": {
            "seed": "the target's hidden state after the final norm",
            "output": CARRY,
            "input": FUSED,
            "columns": [drafter.backbone, 2 * drafter.backbone],
        },
        "head": _head(drafter),
    }


def _ports(ports: Ports, means: Mapping[str, str]) -> dict[str, Any]:
    sides = {"inputs": ports.inputs, "outputs": ports.outputs}
    return {
        side: {name: _port(port, means.get(name)) for name, port in of.items()} for side, of in sides.items()
    }


def _port(port: Port, means: str | None) -> dict[str, Any]:
    said = {"dtype": port.dtype, "shape": list(port.shape)}
    return said | ({"means": means} if means else {})


def _borrowed(drafter: Drafter, kind: str, port: Port, anchors: Mapping[Any, int]) -> dict[str, Any]:
    said: dict[str, Any] = {
        "from": f"the target's last {kind} layer that owns a cache",
        "access": "read_only",
        "heads": port.shape[1],
        "head_size": port.shape[3],
        "ports": {each.part: each.port.name for each in drafter.borrowed if each.kind == kind},
    }
    if kind in anchors:
        said["layer"] = anchors[kind]
    if kind == SLIDING and drafter.window is not None:
        return said | {"keys_seen": drafter.window + 1, "window_of_the_target": drafter.window}
    return said | {"keys_seen": "all"}


def _head(drafter: Drafter) -> dict[str, Any]:
    head = drafter.head
    said: dict[str, Any] = {"kind": head.kind, "vocabulary": head.vocabulary, "scored": head.scored}
    if head.kind == "ordered":
        said |= {
            "centroids": head.centroids,
            "top_k": head.top_k,
            "not_scored": "the least score of the call minus 1",
        }
    return said
