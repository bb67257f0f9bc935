"""The rules on state: cells, groups and aliases against the caches of the graphs and the owners of the config."""

from collections import Counter
from collections.abc import Iterator

from cabochon.metadata.document import DTYPES, Cell
from cabochon.metadata.ports import Port
from cabochon.validation.caches import PAST, PRESENT, cache_ports, caches, named
from cabochon.validation.described import Described, Served, canonical, described
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, rule

__all__: list[str] = []

NEEDS = ("document", "graphs")


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


def _described(port: Port) -> str:
    return f"{port.dtype} [{', '.join(map(str, port.shape))}]"


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
            before = (
                step.outputs.get(served.alias.output or "") == cell.initializer
            )  # it makes what the cell begins with
            if value not in (served.cell, cell.initializer) and not before:
                where = f"{at}.inputs.{served.alias.input}"
                yield Found(where, f"{value!r}", f"{cell.initializer!r}, which {served.cell!r} begins with")
