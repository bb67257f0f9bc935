"""The rules on what a group claims of its caches: axes, layout, eviction, shared buffers."""

from collections import Counter
from collections.abc import Iterator

from onnx import NodeProto

from cabochon.validation.attention_nodes import given
from cabochon.validation.caches import PAST, PRESENT, caches, named
from cabochon.validation.described import Described, Served, described
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, rule
from cabochon.validation.sight import Feed, computed
from cabochon.validation.state import _described, owning

__all__: list[str] = []

NEEDS = ("document", "graphs")
LAYOUTS = {"bnsh": 2, "head_major_bnsh": 2, "bsnh": 1, "seq_major_bsnh": 1}  # name -> axis of positions


IN_PLACE = {"GroupQueryAttention": {3: 1, 4: 2}}  # operator -> input of the past -> output of the present


@rule("STA008", Severity.ERROR, ("graphs",))
def past_and_present_differ(package: Opened) -> Iterator[Found]:
    """What goes out of a cache does not fit what comes in.

    Causes: the graph was edited; a cast was put before one of the two.
    Remedy: past and present must have the same type and rank, and the same dimensions but for one, the positions.
    """
    for path, graph in package.graphs.items():
        for (layer, part), cache in caches(graph).items():
            at = f"{path}: {PAST}.{layer}.{part}"
            past, present = cache.past, cache.present
            if past is None or present is None:
                yield Found(at, f"no {PRESENT if past else PAST}.{layer}.{part}", "both")
            elif past.dtype != present.dtype or len(past.shape) != len(present.shape):
                yield Found(at, _described(past), f"{_described(present)}, as {present.name}")
            elif len(cache.grows) > 1:
                yield Found(
                    at, _described(past), f"{_described(present)}, as {present.name}, but for one axis"
                )


@rule("STA009", Severity.ERROR, NEEDS)
def sequence_axis_differs(package: Opened) -> Iterator[Found]:
    """sequence_axis is not the axis on which the graph's caches grow.

    Causes: the axis of heads was taken for that of positions; a layout was copied from another runtime.
    Remedy: it is the one axis on which `present.N.*` differs from `past_key_values.N.*`.
    """
    for document in described(package):
        for name, group in document.groups.items():
            grown = _grown(document, name)
            if group.sequence_axis is not None and len(grown) == 1 and [group.sequence_axis] != [*grown]:
                at = document.at("serving.state_service.groups", name, "sequence_axis")
                yield Found(
                    at, str(group.sequence_axis), f"{grown.most_common(1)[0][0]}, on which {name} grows"
                )


def _grown(document: Described, group: str) -> Counter[int]:
    """The axes on which the caches of a group grow."""
    found = Counter[int]()
    for served in owning(document):
        graph, name = document.graphs.get(served.component), named(served.alias.input)
        if served.group == group and graph and name:
            cache = caches(graph).get(name[1:])
            found.update(cache.grows if cache and len(cache.grows) == 1 else [])
    return found


@rule("STA010", Severity.ERROR, NEEDS)
def layout_unknown(package: Opened) -> Iterator[Found]:
    """The layout of a group is no known one, or contradicts its sequence_axis.

    Causes: a typing error; a layout of another runtime.
    Remedy: `bnsh` has positions on axis 2, `bsnh` on axis 1.
    """
    for document in described(package):
        for name, group in document.groups.items():
            at = document.at("serving.state_service.groups", name, "layout")
            if group.kind in ("recurrent", "encoder"):
                continue
            if group.layout not in LAYOUTS:
                yield Found(at, f"{group.layout!r}", f"one of {', '.join(LAYOUTS)}")
            elif group.sequence_axis not in (None, LAYOUTS[group.layout]):
                found = f"{group.layout!r} with sequence_axis {group.sequence_axis}"
                yield Found(at, found, f"axis {LAYOUTS[group.layout]}")


@rule("STA012", Severity.ERROR, NEEDS)
def prefix_not_evictable(package: Opened) -> Iterator[Found]:
    """evictable_prefix is claimed where every position counts.

    Causes: the reuse block of the sliding group was copied.
    Remedy: only layers with a sliding window can do without the oldest positions.
    """
    for document in described(package):
        for name, group in document.groups.items():
            if group.reuse.evictable_prefix and group.kind != "sliding_attention":
                at = document.at("serving.state_service.groups", name, "reuse.evictable_prefix")
                yield Found(at, f"true in a group of kind {group.kind}", "false")


@rule("STA013", Severity.ERROR, NEEDS)
def not_in_place(package: Opened) -> Iterator[Found]:
    """aliasing is claimed of a graph that does not update its caches in place.

    Causes: the claim was made for another target. Attention and Concat return a longer tensor; a graph that takes the
    columns of the past for its length is wrong where the buffer has room for more.
    Remedy: say `forbidden`; only caches that nothing but GroupQueryAttention touches may share a buffer.
    """
    for document in described(package):
        for name, group in document.groups.items():
            if group.aliasing != "forbidden" and (reader := next(_elsewhere(document, name), None)):
                at = document.at("serving.state_service.groups", name, "aliasing")
                yield Found(at, f"{group.aliasing}, but {reader}", "forbidden")


def _elsewhere(document: Described, group: str) -> Iterator[str]:
    """What reads a cache of the group otherwise than in place."""
    lengths = dict[str, str]()  # by the value that states the length
    for served in owning(document):
        graph = document.graphs.get(served.component)
        if served.group == group and graph:
            for node in graph.consumers.get(served.alias.input, ()):
                if node.op_type != "Shape" and not _in_place(node, served):
                    yield f"{node.op_type} {node.name} reads {served.alias.input}"
                elif node.op_type in IN_PLACE and given(node, 6) not in lengths:
                    lengths[given(node, 6)] = _length_of_room(graph, node)
                    yield from (f"{node.name} {wrong}" for wrong in [lengths[given(node, 6)]] if wrong)


def _in_place(node: NodeProto, served: Served) -> bool:
    """Whether the node writes what it reads: the past's place among its inputs has the present's among its outputs."""
    places = IN_PLACE.get(node.op_type, {})
    taken = [i for i, name in enumerate(node.input) if name == served.alias.input]
    return all(list(node.output)[places.get(i, -1) :][:1] == [served.alias.output] for i in taken)


def _length_of_room(graph: Graph, node: NodeProto) -> str:
    """What the operator is told of a buffer with more columns than tokens, where that is not the tokens' number."""
    try:
        total = computed(graph, given(node, 6), Feed(past=4, new=1, room=64))
    except LookupError:
        return ""  # the length comes from outside
    return (
        "" if int(total.max()) == 5 else f"is told of {int(total.max())} tokens where 5 lie in a buffer of 64"
    )
