"""The key/value caches among a graph's ports."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cabochon.metadata.ports import Port
from cabochon.validation.graph import Graph
from cabochon.validation.memo import once

__all__ = ["PAST", "PRESENT", "Cache", "Name", "cache_ports", "caches", "named"]

PAST, PRESENT = "past_key_values", "present"
_NAME = re.compile(r"(past_key_values|present)\.(\d+)\.(key|value)")
Name = tuple[str, int, str]  # PAST or PRESENT, the layer, "key" or "value"


@dataclass(frozen=True)
class Cache:
    """One half of a layer's cache as it comes in and as it goes out; None where the graph lacks the port."""

    past: Port | None
    present: Port | None

    @property
    def grows(self) -> list[int]:
        """The axes on which what goes out has another dimension than what came in."""
        if self.past is None or self.present is None or len(self.past.shape) != len(self.present.shape):
            return []
        pairs = zip(self.past.shape, self.present.shape, strict=True)
        return [axis for axis, (old, new) in enumerate(pairs) if old != new]


def named(port: str) -> Name | None:
    """What the name of a cache port says; None for any other port."""
    match = _NAME.fullmatch(port)
    return (match[1], int(match[2]), match[3]) if match else None


def caches(graph: Graph) -> Mapping[tuple[int, str], Cache]:
    """By layer and "key" or "value"."""
    return once(graph, _caches)


def _caches(graph: Graph) -> Mapping[tuple[int, str], Cache]:
    ports = graph.ports
    keys = {name[1:] for port in cache_ports(graph) if (name := named(port))}
    return {
        (layer, part): Cache(
            ports.inputs.get(f"{PAST}.{layer}.{part}"), ports.outputs.get(f"{PRESENT}.{layer}.{part}")
        )
        for layer, part in sorted(keys)
    }


def cache_ports(graph: Graph) -> list[str]:
    """The inputs that are pasts, and the outputs that are presents."""
    sides = ((graph.ports.inputs, PAST), (graph.ports.outputs, PRESENT))
    return [port for side, when in sides for port in side if (name := named(port)) and name[0] == when]
