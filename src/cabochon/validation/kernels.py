"""The nodes of a graph judged by the tables of an execution provider: kernels, and what is known beyond that."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from cabochon.kernels import QUIRKS, Provider, Quirk
from cabochon.validation.attention_nodes import attention_nodes, attributes, given
from cabochon.validation.blocks import Blocked, blocked
from cabochon.validation.graph import Graph
from cabochon.validation.memo import once
from cabochon.validation.opened import Opened
from cabochon.validation.registry import Place, Typed, place, provider, typed
from cabochon.validation.rules import Found
from cabochon.validation.targeted import name_of, provider_of

__all__ = ["Group", "Judged", "aside", "judge", "known_of", "operator_of", "quirks", "told"]

_MOVED = ("Transpose", "Reshape", "Cast", "Identity", "Slice")


@dataclass(frozen=True)
class Group:
    """Nodes of which the same is said: how many, where the first is, and why."""

    operator: str
    types: tuple[str, ...]
    nodes: int
    at: str
    why: str


@dataclass(frozen=True)
class Judged:
    """A graph, or several, on one provider.

    `nodes`: all of them; `kernel`: those it has kernels for; `small`: those of shapes, masks and positions that run
    beside it, on the CPU. The others are in groups: `falls_back`: run beside it; `missing`: run nowhere; `unknown`: of
    which nothing is known; `wrong`, `refused`, `slow`: what is known of kernels.
    """

    provider: str
    runtime: str
    version: str
    nodes: int
    kernel: int
    small: int
    falls_back: tuple[Group, ...]
    missing: tuple[Group, ...]
    unknown: tuple[Group, ...]
    wrong: tuple[Group, ...]
    refused: tuple[Group, ...]
    slow: tuple[Group, ...]

    @property
    def runs(self) -> bool:
        """Whether nothing is known to be in the way: every node is computed somewhere, and none wrongly."""
        return not (self.missing or self.wrong or self.refused)


def judge(graphs: Iterable[Graph], name: str) -> Judged:
    """Graphs on a provider, one of `cabochon.kernels.PROVIDERS`; on the CPU as the installed onnxruntime has it."""
    found, on = list(graphs), provider(name)
    placed = [(graph, node, where) for graph in found for node, where in _placed(graph, on)]
    beside = [(g, n) for g, n, where in placed if where == Place.BESIDE]
    remarked = [(g, n, q, facts) for g in found for n, q, facts in quirks(g, name)]
    return Judged(
        on.name,
        on.runtime,
        on.version,
        len(placed),
        sum(where == Place.OWN for _, _, where in placed),
        sum(_small(g, n) for g, n in beside),
        _grouped((g, n, f"run by {on.beside}") for g, n in beside if not _small(g, n)),
        _grouped((g, n, _why(g, n, on)) for g, n, where in placed if where == Place.NOWHERE),
        _grouped((g, n, "not in the table") for g, n, where in placed if where == Place.UNKNOWN),
        *(_grouped((g, n, _said(q, f)) for g, n, q, f in remarked if q.kind == kind) for kind in KINDS),
    )


def _small(graph: Graph, node: Typed) -> bool:
    return not node.floats or id(node.node) in aside(graph)


def aside(graph: Graph) -> frozenset[int]:
    """The nodes that no weight and no floating input has a part in, by identity; shapes are of
    neither. They make masks and angles."""
    return once(graph, _aside)


def _aside(graph: Graph) -> frozenset[int]:
    floating = {name for name, port in graph.ports.inputs.items() if "float" in port.dtype}
    heavy = floating | {name for name, weight in graph.initializers.items() if weight.external}
    found = set[int]()
    for node in graph.proto.graph.node:
        reads = not heavy.isdisjoint(node.input) or any(a.type == a.GRAPH for a in node.attribute)
        if not reads or node.op_type in ("Shape", "Size"):
            found.add(id(node))
        else:
            heavy.update(node.output)
    return frozenset(found)


KINDS = ("wrong", "refused", "slow")


def _placed(graph: Graph, on: Provider) -> Iterator[tuple[Typed, Place]]:
    """Every node and where it is computed; one of each sort is looked up."""
    known = dict[Any, Place]()
    too_new = graph.opsets.get("", 0) > on.opset
    for node in typed(graph):
        key = (node.domain, node.node.op_type, node.inputs, node.outputs)
        if key not in known:
            known[key] = place(node, on)
        yield node, Place.NOWHERE if too_new and not node.domain else known[key]


def _why(graph: Graph, node: Typed, on: Provider) -> str:
    version = graph.opsets.get("", 0)
    if not node.domain and version > on.opset:
        return f"operator set {version} is newer than {on.opset}, the newest that {on.runtime} {on.version} takes"
    return "no kernel for these types" if (node.domain, node.node.op_type) in on.kernels else "no kernel"


def _said(quirk: Quirk, facts: Mapping[str, Any]) -> str:
    return f"{quirk.found.format(**facts)}; expected {quirk.expected}"


def operator_of(node: Typed) -> str:
    """The operator with its domain, as com.microsoft.MatMulNBits; those of ai.onnx by name."""
    return f"{node.domain}.{node.node.op_type}" if node.domain else node.node.op_type


def _grouped(found: Iterable[tuple[Graph, Typed, str]]) -> tuple[Group, ...]:
    groups = dict[tuple[str, tuple[str, ...], str], list[str]]()
    for graph, node, why in found:
        kinds = tuple(dict.fromkeys(kind for kind in node.inputs if kind))
        at = f"{graph.path}: {name_of(node)}"
        groups.setdefault((operator_of(node), kinds, why), []).append(at)
    return tuple(Group(name, kinds, len(at), at[0], why) for (name, kinds, why), at in groups.items())


def quirks(graph: Graph, name: str, rule: str = "") -> Iterator[tuple[Typed, Quirk, Mapping[str, Any]]]:
    """The nodes with a quirk of a provider (and of a rule of the validator), and what is known of each."""
    wanted = dict[str, list[Quirk]]()
    for quirk in QUIRKS.of(name, rule=rule):
        wanted.setdefault(quirk.operator, []).append(quirk)
    for node in typed(graph):
        if found := wanted.get(operator_of(node)):
            facts = known_of(graph).get(id(node.node), {}) | _plain(graph, node)
            yield from ((node, quirk, facts) for quirk in found if quirk.holds(operator_of(node), facts))


def told(package: Opened, rule: str) -> Iterator[Found]:
    """What is known of the nodes of each graph on its target's provider, under a rule; once where it is the same."""
    for graph in package.graphs.values():
        found = dict[tuple[str, str], list[str]]()
        for node, quirk, facts in quirks(graph, provider_of(graph), rule):
            said = quirk.found.format(**facts), quirk.expected
            found.setdefault(said, []).append(f"{node.node.op_type} {name_of(node)}")
        for (what, expected), nodes in found.items():
            more = f" ({len(nodes)} nodes)" if len(nodes) > 1 else ""
            yield Found(f"{graph.path}: {nodes[0]}", what + more, expected)


def _plain(graph: Graph, node: Typed) -> dict[str, Any]:
    """What is known of any node."""
    floats = sorted(node.floats)
    return {
        "float": floats[0] if len(floats) == 1 else None,
        "constant": any(_constant(graph, name) for name in node.node.input),
        "outputs": sum(1 for name in node.node.output[:3] if name),
    }


def _constant(graph: Graph, name: str) -> bool:
    """Whether a value is an initializer, or one that is turned."""
    above = graph.producers.get(name)
    turned = above is not None and above.op_type == "Transpose" and above.input[0] in graph.initializers
    return turned or name in graph.initializers


def known_of(graph: Graph) -> Mapping[int, dict[str, Any]]:
    """What is known of attentions over a cache and of weights in blocks, by the identity of their nodes."""
    return once(graph, _known_of)


def _known_of(graph: Graph) -> dict[int, dict[str, Any]]:
    return dict(chain(_attentions(graph), ((id(one.node), _block(graph, one)) for one in blocked(graph))))


def _attentions(graph: Graph) -> Iterator[tuple[int, dict[str, Any]]]:
    for one in attention_nodes(graph):
        facts = dict(appends=one.appends, window=one.window, softcap=one.softcap, head_size=one.size)
        yield id(one.node), facts


def _block(graph: Graph, one: Blocked) -> dict[str, Any]:
    codes, zero_points = graph.initializers.get(one.codes), graph.initializers.get(one.zero_points)
    computed = [n for n in (one.codes, one.scales, one.zero_points) if n and n not in graph.initializers]
    unpacked, reader = _unpacked(graph, one) if one.node.op_type == "DequantizeLinear" else ("", "")
    return {
        "bits": one.bits,
        "block": one.block,
        "blocks": one.blocks,
        "codes": codes.dtype if codes else None,
        "zero_points": bool(one.zero_points),
        "packed_zero_points": zero_points is not None and zero_points.dtype == "uint8",
        "accuracy_level": attributes(one.node).get("accuracy_level", 0),
        "computed": bool(computed),
        "computed_part": next(iter(computed), ""),
        "unpacked": unpacked,
        "reader": reader,
    }


def _unpacked(graph: Graph, one: Blocked) -> tuple[str, str]:
    """What becomes of a weight that is unpacked whole, and the operator that reads it; "" where nothing is slow."""
    values, turned = list(one.node.output), False
    for name in values:  # grows while it is walked
        for node in graph.consumers.get(name, ()):
            if node.op_type.startswith("Gather") and given(node, 0) == name:
                return "gathered", node.op_type
            if node.op_type == "MatMul" and turned:
                return "turned", node.op_type
            if node.op_type in _MOVED:
                turned = turned or node.op_type == "Transpose"
                values += node.output
    return "", ""
