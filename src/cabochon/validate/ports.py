"""The rules on ports: what the document says of a graph's inputs and outputs, against the graph itself."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cabochon.metadata.document import DTYPES, Invoke, TensorContract
from cabochon.metadata.ports import Port, Ports
from cabochon.validate.described import Described, contracts, described
from cabochon.validate.findings import Severity
from cabochon.validate.opened import Opened
from cabochon.validate.rules import Found, rule

__all__: list[str] = []

NEEDS = ("document", "graphs")
ANY = "Any"  # a dimension of which nothing is said


@dataclass(frozen=True)
class Declared:
    """A port that the document declares and the graph has. `at`: its address; `side`: inputs or outputs."""

    at: str
    component: str
    side: str
    contract: TensorContract
    port: Port

    @property
    def dims(self) -> Iterable[tuple[int, int | str, int | str]]:
        """Axis, dimension of the document, dimension of the graph; nothing where the ranks differ."""
        shape = self.contract.shape or ()
        if len(shape) != len(self.port.shape):
            return ()
        return ((i, said, real) for i, (said, real) in enumerate(zip(shape, self.port.shape, strict=True)))


def sides(ports: Ports) -> Mapping[str, Mapping[str, Port]]:
    """Inputs and outputs by the names that the document has for them."""
    return {"inputs": ports.inputs, "outputs": ports.outputs}


def declared(package: Opened) -> Iterator[Declared]:
    """Every port that a document declares and the graph has."""
    for document in described(package):
        yield from _declared(document)


def _declared(document: Described) -> Iterator[Declared]:
    for name, component, graph in document.components:
        for side, port, contract in contracts(component.ports):
            if port in sides(graph.ports)[side]:
                at = document.at("components", name, "ports", side, port)
                yield Declared(at, name, side, contract, sides(graph.ports)[side][port])


def dtype(contract: TensorContract) -> str:
    """The element type by numpy's name."""
    return DTYPES[contract.dtype]


@rule("PRT001", Severity.ERROR, NEEDS)
def port_not_in_graph(package: Opened) -> Iterator[Found]:
    """A declared port does not exist in the graph.

    Causes: the document was written by hand or copied from another model; the graph was exported again.
    Remedy: derive the document from the graph again: `cabochon build` does.
    """
    for document in described(package):
        for name, component, graph in document.components:
            for side, port, _ in contracts(component.ports):
                real = sides(graph.ports)[side]
                if port not in real:
                    at = document.at("components", name, "ports", side, port)
                    yield Found(
                        at, f"{port!r}, which {graph.path} does not have", f"one of its {side}: {_some(real)}"
                    )


@rule("PRT002", Severity.ERROR, NEEDS)
def graph_port_not_declared(package: Opened) -> Iterator[Found]:
    """The graph has a port that the document leaves out.

    Causes: a port was dropped from the document; the graph was exported again. Optional inputs may be left out, and
    so may all ports: then the graph is the authority.
    Remedy: derive the document from the graph again: `cabochon build` does.
    """
    for document in described(package):
        for name, component, graph in document.components:
            said = {"inputs": component.ports.inputs, "outputs": component.ports.outputs}
            if not any(said.values()):
                continue
            for side, real in sides(graph.ports).items():
                for port in real.values():
                    if port.name not in said[side] and not port.optional:
                        at = document.at("components", name, "ports", side)
                        yield Found(
                            at, f"nothing of {port.name!r}", f"every one of the {side} of {graph.path}"
                        )


@rule("PRT003", Severity.ERROR, NEEDS)
def role_without_port(package: Opened) -> Iterator[Found]:
    """A role is given to a port that the graph does not have.

    Causes: the port was renamed and its role was not; a role was copied from another model.
    Remedy: name a port of the graph, or drop the role.
    """
    for document in described(package):
        for name, component, graph in document.components:
            real = {**graph.ports.inputs, **graph.ports.outputs}
            for port, role in component.ports.roles.items():
                if port not in real:
                    at = document.at("components", name, "ports.roles", port)
                    yield Found(at, f"role {role!r} of {port!r}", f"a port of {graph.path}: {_some(real)}")


@rule("PRT004", Severity.ERROR, NEEDS)
def dtype_differs(package: Opened) -> Iterator[Found]:
    """A port's element type is not the graph's.

    Causes: the document was kept while the precision changed.
    Remedy: derive the document from the graph again: `cabochon build` does.
    """
    for port in declared(package):
        if dtype(port.contract) != port.port.dtype:
            yield Found(f"{port.at}.dtype", port.contract.dtype, f"{port.port.dtype}, as in the graph")


@rule("PRT005", Severity.ERROR, NEEDS)
def rank_differs(package: Opened) -> Iterator[Found]:
    """A port's rank is not the graph's.

    Causes: the document was written by hand; the graph was exported again.
    Remedy: derive the document from the graph again: `cabochon build` does.
    """
    for port in declared(package):
        shape, real = port.contract.shape, len(port.port.shape)
        if shape is not None and len(shape) != real:
            yield Found(f"{port.at}.shape", f"{len(shape)} dimensions", f"{real}, as in the graph")
        elif shape is None and port.contract.rank not in (None, real):
            yield Found(f"{port.at}.rank", str(port.contract.rank), f"{real}, as in the graph")


@rule("PRT006", Severity.ERROR, NEEDS)
def dimension_differs(package: Opened) -> Iterator[Found]:
    """A fixed dimension is not the graph's.

    Causes: one head size was written for all layers; sizes were copied from another model; a symbol stands where the
    graph has a number.
    Remedy: derive the document from the graph again: `cabochon build` does.
    """
    for port in declared(package):
        for axis, said, real in port.dims:
            if said != real and said != ANY and (isinstance(said, int) or isinstance(real, int)):
                yield Found(f"{port.at}.shape[{axis}]", str(said), f"{real or 'a symbol'}, as in the graph")


@rule("PRT007", Severity.ERROR, NEEDS)
def symbol_means_two_things(package: Opened) -> Iterator[Found]:
    """A symbol does not mean one thing in a component.

    Causes: axes were swapped; one name was given to lengths that differ, such as those of a sliding and a full cache.
    Remedy: use the graph's symbols: `cabochon build` does.
    """
    for document in described(package):
        meaning = dict[
            tuple[str, str], str
        ]()  # component and symbol -> the graph's symbol where it was met first
        name = dict[tuple[str, str], str]()
        for port in _declared(document):
            for axis, said, real in port.dims:
                if isinstance(said, int) or isinstance(real, int) or not real or said == ANY:
                    continue
                means = meaning.setdefault((port.component, said), real)
                called = name.setdefault((port.component, real), said)
                if means != real:
                    yield Found(
                        f"{port.at}.shape[{axis}]", f"{said!r}, which is {means!r} elsewhere", f"{called!r}"
                    )
                elif called != said:
                    yield Found(f"{port.at}.shape[{axis}]", f"{said!r}", f"{called!r}, as elsewhere")


@rule("PRT008", Severity.ERROR, NEEDS)
def batch_axis_differs(package: Opened) -> Iterator[Found]:
    """The axis that holds the rows of a batch is not the graph's batch axis.

    Causes: axes were swapped; a layout was copied from another port.
    Remedy: name the axis that has the batch symbol in every port of the component.
    """
    for document in described(package):
        rows = dict[str, str]()  # component -> the graph's symbol for rows
        for port in _declared(document):
            layout = port.contract.batch_layout
            if layout.kind != "request_aligned":
                continue
            at = f"{port.at}.batch_layout.axis"
            if layout.axis >= len(port.port.shape):
                yield Found(at, str(layout.axis), f"an axis of {len(port.port.shape)}")
                continue
            real = str(port.port.shape[layout.axis])
            if (symbol := rows.setdefault(port.component, real)) != real:
                yield Found(
                    at, f"axis {layout.axis}, which is {real!r} in the graph", f"the axis of {symbol!r}"
                )


@dataclass(frozen=True)
class Bound:
    """A value that an invocation binds to an input of a graph."""

    at: str
    component: str
    value: str
    port: Port
    dtype: str
    shape: tuple[int | str, ...] | None
    rank: int | None


def _bound(document: Described) -> Iterator[Bound]:
    values = _values(document)
    for at, step in document.invocations:
        graph = document.graphs.get(step.component)
        for name, value in step.inputs.items():
            port = graph.ports.inputs.get(name) if graph else None
            if port and (known := values.get(value)):
                rank = len(known.shape) if known.shape is not None else known.rank
                yield Bound(
                    f"{at}.inputs.{name}", step.component, value, port, dtype(known), known.shape, rank
                )


def _values(document: Described) -> Mapping[str, TensorContract]:
    """The contract of every named value: inputs, cells, outputs of components; graphs are believed first."""
    workflow = document.workflow
    found = {name: entry.contract for name, entry in workflow.inputs.items()}
    found |= {name: cell.contract for name, cell in workflow.state.items()}
    for _, step in document.invocations:
        found |= dict(_results(document, step))
    return found


def _results(document: Described, step: Invoke) -> Iterator[tuple[str, TensorContract]]:
    component, graph = document.workflow.components.get(step.component), document.graphs.get(step.component)
    for name, value in step.outputs.items():
        port = graph.ports.outputs.get(name) if graph else None
        if port and port.dtype in DTYPES:
            yield value, TensorContract(dtype=port.dtype, shape=tuple(d or ANY for d in port.shape))
        elif component and name in component.ports.outputs:
            yield value, component.ports.outputs[name]


@rule("PRT009", Severity.ERROR, NEEDS)
def value_does_not_fit(package: Opened) -> Iterator[Found]:
    """A value is bound to an input of a graph that it does not fit.

    Causes: two components were built in different precisions or for different models; a value was bound to the wrong
    port.
    Remedy: bind a value of the same type, rank and fixed dimensions, or build the components together.
    """
    for document in described(package):
        for bound in _bound(document):
            port = bound.port
            if bound.dtype != port.dtype:
                yield Found(bound.at, f"{bound.value!r} of {bound.dtype}", f"{port.dtype}, as in the graph")
            elif bound.rank not in (None, len(port.shape)):
                yield Found(bound.at, f"{bound.value!r} of rank {bound.rank}", f"rank {len(port.shape)}")
            elif wrong := _clash(bound.shape, port.shape):
                yield Found(bound.at, f"{bound.value!r}: {wrong}", f"{list(port.shape)}")


def _clash(shape: tuple[int | str, ...] | None, real: tuple[int | str, ...]) -> str:
    """The first axis on which both dimensions are fixed and differ."""
    for axis, (one, other) in enumerate(zip(shape or (), real, strict=False)):
        if isinstance(one, int) and isinstance(other, int) and one != other:
            return f"dimension {axis} is {one}"
    return ""


@rule("PRT010", Severity.ERROR, NEEDS)
def input_without_source(package: Opened) -> Iterator[Found]:
    """An input of a graph gets no value when the component is invoked.

    Causes: the output of another component that feeds it, such as per-layer inputs, was forgotten; a cache of an owner
    was dropped.
    Remedy: bind it to an input of the package, a state cell, or an output of a component.
    """
    for document in described(package):
        for at, step in document.invocations:
            graph = document.graphs.get(step.component)
            for port in graph.ports.inputs.values() if graph else ():
                if port.name not in step.inputs and not port.optional:
                    yield Found(
                        f"{at}.inputs", f"nothing for {port.name!r}", "a value for every input of the graph"
                    )


@rule("PRT011", Severity.ERROR, NEEDS)
def symbols_disagree_across(package: Opened) -> Iterator[Found]:
    """Values of different lengths are bound to ports that share a symbol.

    Causes: an assistant is given the target's cache with a mask of another length; rows of a batch were taken for
    positions.
    Remedy: bind values whose symbols agree wherever the ports' symbols do.
    """
    for document in described(package):
        met = dict[tuple[str, str], tuple[str, int | str]]()
        for bound in _bound(document):
            step = bound.at.partition(".inputs.")[0]
            for said, real in zip(bound.shape or (), bound.port.shape, strict=False):
                if isinstance(real, int) or not real or said == ANY:
                    continue
                value, first = met.setdefault((step, real), (bound.value, said))
                if first != said:
                    yield Found(bound.at, f"{real!r} is {said!r} here", f"{first!r}, as in {value!r}")


def _some(names: Iterable[str]) -> str:
    """The first few names."""
    listed = list(names)
    rest = f" and {len(listed) - 6} more" if len(listed) > 6 else ""
    return ", ".join(listed[:6]) + rest
