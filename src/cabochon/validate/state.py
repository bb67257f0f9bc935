"""The rules on state: cells, groups and aliases against the caches of the graphs and the owners of the config."""

from collections import Counter
from collections.abc import Iterator

from onnx import NodeProto

from cabochon.metadata.document import DTYPES, Cell
from cabochon.metadata.ports import Port
from cabochon.validate.caches import PAST, PRESENT, cache_ports, caches, named
from cabochon.validate.described import Described, Served, canonical, described
from cabochon.validate.findings import Severity
from cabochon.validate.graph import Graph
from cabochon.validate.opened import Opened
from cabochon.validate.rules import Found, rule
from cabochon.validate.sight import Feed, computed

__all__: list[str] = []

NEEDS = ("document", "graphs")
LAYOUTS = {"bnsh": 2, "head_major_bnsh": 2, "bsnh": 1, "seq_major_bsnh": 1}  # name -> axis of positions
IN_PLACE = {"GroupQueryAttention": {3: 1, 4: 2}}  # operator -> input of the past -> output of the present


def owning(document: Described) -> Iterator[Served]:
    """The aliases by which a component advances a cell."""
    return (served for served in document.served if served.alias.access == "read_write")


def borrowing(document: Described) -> Iterator[Served]:
    """The aliases that only read."""
    return (served for served in document.served if served.alias.access == "read_only")


@rule("STA001", Severity.ERROR, NEEDS)
def cache_without_alias(package: Opened) -> Iterator[Found]:
    """A cache port of the graph is no state.

    Causes: an owner was dropped from the groups; the document describes a model with fewer layers.
    Remedy: every `past_key_values.N.*` and `present.N.*` must be the input and output of a read_write alias.
    """
    for document in described(package):
        served = {
            (alias.component, port)
            for alias in owning(document)
            for port in (alias.alias.input, alias.alias.output)
        }
        for name, graph in document.graphs.items():
            for port in cache_ports(graph):
                if (name, port) not in served:
                    at = document.at("serving.state_service.groups")
                    yield Found(
                        at,
                        f"no alias of {name}'s {port}",
                        "every cache port of the graph in one read_write alias",
                    )


@rule("STA002", Severity.ERROR, NEEDS)
def alias_without_port(package: Opened) -> Iterator[Found]:
    """An alias names a port that the graph does not have.

    Causes: an owner was invented; a layer that reads another's cache was given one of its own.
    Remedy: only layers with cache ports own state; drop the alias and its cell.
    """
    for _, served, graph in _with_graph(package):
        alias = served.alias
        for side, port, real in (
            ("input", alias.input, graph.ports.inputs),
            ("output", alias.output, graph.ports.outputs),
        ):
            if port is not None and port not in real:
                yield Found(f"{served.at}.{side}", f"{port!r}", f"an {side} of {graph.path}")


def _with_graph(package: Opened) -> Iterator[tuple[Described, Served, Graph]]:
    for document in described(package):
        for served in document.served:
            if served.component in document.graphs:
                yield document, served, document.graphs[served.component]


@rule("STA003", Severity.ERROR, NEEDS)
def layer_differs(package: Opened) -> Iterator[Found]:
    """The layer of an alias is not the layer of its port.

    Causes: layers were counted anew within a group; owners were numbered without gaps.
    Remedy: `layer` is the N of `past_key_values.N.*`, the index of the decoder layer.
    """
    for document in described(package):
        for served in owning(document):
            name, layer = named(served.alias.input), served.alias.layer
            if name and layer is not None and layer != name[1]:
                yield Found(f"{served.at}.layer", str(layer), f"{name[1]}, as in {served.alias.input}")


@rule("STA004", Severity.ERROR, ("graphs", "config"))
def owners_differ(package: Opened) -> Iterator[Found]:
    """The layers with caches are not the owners that config.json states.

    Causes: the graph was built from another config; `num_kv_shared_layers` was not honoured.
    Remedy: build the package again from this config.
    """
    assert package.config is not None
    expected = package.config.owners
    for graph in _owners(package):
        found = sorted({layer for layer, _ in caches(graph)})
        if found != expected:
            yield Found(
                f"{graph.path}: inputs", f"caches of layers {_spans(found)}", f"of layers {_spans(expected)}"
            )


def _owners(package: Opened) -> Iterator[Graph]:
    """The graphs that have caches of their own."""
    found = {graph.path: graph for graph in package.components.values()}
    if not found and package.decoder:
        found = {package.decoder.path: package.decoder}
    return (graph for graph in found.values() if caches(graph))


def _spans(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


@rule("STA005", Severity.ERROR, (*NEEDS, "config"))
def kind_differs(package: Opened) -> Iterator[Found]:
    """A cache is in a group of another kind than its layer.

    Causes: a full layer was listed among the sliding ones, or the other way round; the rhythm of the kinds was guessed.
    Remedy: config.json's layer_types say which layers are of which kind.
    """
    assert package.config is not None
    layers = package.config.layers
    for document in described(package):
        for served in owning(document):
            name, kind = named(served.alias.input), document.groups[served.group].kind
            if name and name[1] < len(layers) and layers[name[1]].kind != kind:
                found = f"layer {name[1]} in a group of kind {kind}"
                yield Found(served.at, found, f"{layers[name[1]].kind}, as config.json says")


@rule("STA006", Severity.ERROR, NEEDS)
def halves_mixed(package: Opened) -> Iterator[Found]:
    """An alias mixes keys with values, or one layer with another.

    Causes: two lines were exchanged; `present.N.value` was written as the output of keys.
    Remedy: input, output and role of an alias are of one layer, and all of keys or all of values.
    """
    for document in described(package):
        for served in document.served:
            yield from _mixed(served)


def _mixed(served: Served) -> Iterator[Found]:
    alias = served.alias
    came, goes = named(alias.input), named(alias.output or "")
    part = came[2] if came else alias.input.rpartition(".")[2]
    if alias.role in ("key", "value") and part in ("key", "value") and part != alias.role:
        yield Found(f"{served.at}.input", f"{alias.input!r} as {alias.role}", f"a port of {alias.role}s")
    if came and came[0] != PAST:
        yield Found(f"{served.at}.input", f"{alias.input!r}", "a past, not a present")
    if came and goes and (goes[0] != PRESENT or came[1:] != goes[1:]):
        yield Found(f"{served.at}.output", f"{alias.output!r}", f"'present.{came[1]}.{came[2]}'")


@rule("STA007", Severity.ERROR, NEEDS)
def half_missing(package: Opened) -> Iterator[Found]:
    """A layer has keys without values, or values without keys.

    Causes: one line of a pair was dropped.
    Remedy: list both, in the same group.
    """
    for document in described(package):
        halves = dict[tuple[str, str, int], set[str]]()
        for served in owning(document):
            if (name := named(served.alias.input)) and served.alias.role:
                halves.setdefault((served.group, served.component, name[1]), set()).add(served.alias.role)
        for (group, component, layer), roles in halves.items():
            if roles not in ({"key", "value"}, {"combined"}, {"key", "value", "combined"}):
                at = document.at("serving.state_service.groups", group, "ports", component)
                yield Found(at, f"of layer {layer} only the {', '.join(sorted(roles))}", "keys and values")


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


def _described(port: Port) -> str:
    return f"{port.dtype} [{', '.join(map(str, port.shape))}]"


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


@rule("STA011", Severity.ERROR, NEEDS)
def port_shared(package: Opened) -> Iterator[Found]:
    """Two cells lie behind one port.

    Causes: a line was copied and its port left as it was.
    Remedy: one cell for each port.
    """
    for document in described(package):
        taken = dict[tuple[str, str], Served]()
        for served in document.served:
            for port in filter(None, (served.alias.input, served.alias.output)):
                first = taken.setdefault((served.component, port), served)
                if first is not served:
                    yield Found(served.at, f"{port!r}, which {first.cell!r} has", "a port of its own")


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
                elif node.op_type in IN_PLACE and node.input[6] not in lengths:
                    lengths[node.input[6]] = _length_of_room(graph, node)
                    yield from (f"{node.name} {wrong}" for wrong in [lengths[node.input[6]]] if wrong)


def _in_place(node: NodeProto, served: Served) -> bool:
    """Whether the node writes what it reads: the past's place among its inputs has the present's among its outputs."""
    places = IN_PLACE.get(node.op_type, {})
    taken = [i for i, name in enumerate(node.input) if name == served.alias.input]
    return all(list(node.output)[places.get(i, -1) :][:1] == [served.alias.output] for i in taken)


def _length_of_room(graph: Graph, node: NodeProto) -> str:
    """What the operator is told of a buffer with more columns than tokens, where that is not the tokens' number."""
    try:
        total = computed(graph, node.input[6], Feed(past=4, new=1, room=64))
    except LookupError:
        return ""  # the length comes from outside
    return (
        "" if int(total.max()) == 5 else f"is told of {int(total.max())} tokens where 5 lie in a buffer of 64"
    )


@rule("STA014", Severity.ERROR, NEEDS)
def owner_not_one(package: Opened) -> Iterator[Found]:
    """A cell has several owners, or is borrowed and has none; or what only reads it writes it.

    Causes: a component that borrows a cache was given an output; the owner was dropped.
    Remedy: exactly one component advances a cell; who borrows it names its input port alone, with read_only.
    """
    for document in described(package):
        owners = Counter((served.group, served.cell) for served in owning(document))
        for (group, cell), count in owners.items():
            if count > 1:
                at = document.at("serving.state_service.groups", group, "ports")
                yield Found(at, f"{count} components advance {cell!r}", "one; the others read_only")
        for served in borrowing(document):
            if served.alias.output is not None:
                yield Found(
                    f"{served.at}.output", f"{served.alias.output!r} of a read_only alias", "no output"
                )
            if not owners[served.group, served.cell]:
                yield Found(
                    served.at, f"{served.cell!r}, which no component advances", "a cell of its target"
                )


@rule("STA015", Severity.ERROR, NEEDS)
def anchor_differs(package: Opened) -> Iterator[Found]:
    """A borrowed cache is not that of the last owner of its kind.

    Causes: the first layer of the kind was taken, or one chosen by eye.
    Remedy: layers that share, and assistants, read what the last owner of their kind wrote.
    """
    for document in described(package):
        layers = dict[tuple[str, str], int]()
        for served in owning(document):
            if name := named(served.alias.input):
                layers[served.group, served.cell] = name[1]
        for served in borrowing(document):
            layer = layers.get((served.group, served.cell))
            last = max((n for (group, _), n in layers.items() if group == served.group), default=layer)
            if layer is not None and layer != last:
                yield Found(
                    served.at, f"the cache of layer {layer}", f"of layer {last}, the last of {served.group}"
                )


@rule("STA016", Severity.ERROR, NEEDS)
def cell_does_not_fit(package: Opened) -> Iterator[Found]:
    """A cell's contract is not that of the port it lies behind.

    Causes: one head size was written for all layers; the precision changed.
    Remedy: derive the document from the graph again: `cabochon build` does.
    """
    for document, served, graph in _with_graph(package):
        cell, port = document.workflow.state.get(served.cell), graph.ports.inputs.get(served.alias.input)
        if cell and port and (wrong := _misfit(cell, port)):
            yield Found(
                document.at("state", served.cell, "contract"), wrong, f"{_described(port)}, as {port.name}"
            )


def _misfit(cell: Cell, port: Port) -> str:
    shape, dtype = cell.contract.shape, DTYPES[cell.contract.dtype]
    if dtype != port.dtype:
        return dtype
    if shape is None:
        return ""
    pairs = zip(shape, port.shape, strict=False)
    clash = any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)
    return f"[{', '.join(map(str, shape))}]" if clash or len(shape) != len(port.shape) else ""


@rule("STA017", Severity.ERROR, NEEDS)
def other_value_handed_over(package: Opened) -> Iterator[Found]:
    """A component is handed another value than the cell that its alias names.

    Causes: keys and values of an assistant were exchanged in the invocation; the cache of another layer was bound.
    Remedy: bind the cell, or its initializer, to the port of its alias.
    """
    if (document := canonical(package)) is None:
        return
    for at, step in document.invocations:
        for served in document.served:
            cell = document.workflow.state.get(served.cell)
            value = step.inputs.get(served.alias.input)
            if served.component != step.component or cell is None or value is None:
                continue
            if value not in (served.cell, cell.initializer):
                where = f"{at}.inputs.{served.alias.input}"
                yield Found(where, f"{value!r}", f"{cell.initializer!r}, which {served.cell!r} begins with")
