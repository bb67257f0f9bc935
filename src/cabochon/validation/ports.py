"""The rules on ports: what the document says of a graph's inputs and outputs, against the graph itself."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cabochon.metadata.document import DTYPES, Invoke, TensorContract
from cabochon.metadata.ports import Port, Ports
from cabochon.validation.described import Described, contracts, described
from cabochon.validation.findings import Severity
from cabochon.validation.flow import Kind, flows
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, rule

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
    """A role is given to a port that the graph does not have, where the document declares no ports.

    Causes: the port was renamed and its role was not; a role was copied from another model.
    Remedy: name a port of the graph, or drop the role.
    """
    for document in described(package):
        for name, component, graph in document.components:
            if component.ports.inputs or component.ports.outputs:
                continue  # REF013 compares with what is declared
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
        named = [each for port in _declared(document) for each in _symbols(port)]
        names, meanings = _usual(named)
        for port, axis, said, real in named:
            at, name = f"{port.at}.shape[{axis}]", names[port.component, real]
            if said != name:
                yield Found(at, repr(said), f"{name!r}, which {real!r} of the graph is called elsewhere")
            elif meanings[port.component, said] != real:
                other = meanings[port.component, said]
                yield Found(
                    at, f"{said!r}, which is {other!r} of the graph elsewhere", f"another name for {real!r}"
                )


Symbol = tuple[Declared, int, str, str]  # a port, an axis, the document's symbol, the graph's


def _symbols(port: Declared) -> Iterator[Symbol]:
    for axis, said, real in port.dims:
        if isinstance(said, str) and isinstance(real, str) and real and said != ANY:
            yield port, axis, said, real


def _usual(named: list[Symbol]) -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], str]]:
    """Of each component: what each symbol of the graph is mostly called, and what each name mostly stands for."""
    count = Counter((port.component, said, real) for port, _, said, real in named)
    names, meanings = dict[tuple[str, str], str](), dict[tuple[str, str], str]()
    for (component, said, real), _ in count.most_common():
        names.setdefault((component, real), said)
        meanings.setdefault((component, said), real)
    return names, meanings


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


@rule("PRT009", Severity.ERROR, NEEDS)
def symbols_disagree_across(package: Opened) -> Iterator[Found]:
    """Values of different lengths are bound to ports that share a symbol.

    Causes: an assistant is given the target's cache with a mask of another length; rows of a batch were taken for
    positions.
    Remedy: bind values whose symbols agree wherever the ports' symbols do.
    """
    values = {flow.at: flow.values for flow in flows(package)}
    for document in described(package):
        for at, step in document.invocations:
            if graph := document.graphs.get(step.component):
                yield from _disagreements(at, step, graph.ports, values[document.name])


def _disagreements(at: str, step: Invoke, ports: Ports, values: Mapping[str, Kind]) -> Iterator[Found]:
    met = dict[
        str, tuple[str, int | str]
    ]()  # symbol of the graph -> the value that gave it a meaning, the meaning
    for name, value in step.inputs.items():
        if name not in ports.inputs or value not in values:
            continue
        for said, real in zip(values[value].shape or (), ports.inputs[name].shape, strict=False):
            if isinstance(real, int) or not real or said in ("", ANY):
                continue
            other, first = met.setdefault(real, (value, said))
            if first != said:
                yield Found(
                    f"{at}.inputs.{name}", f"{real!r} is {said!r} here", f"{first!r}, as in {other!r}"
                )


def _some(names: Iterable[str]) -> str:
    """The first few names."""
    listed = list(names)
    rest = f" and {len(listed) - 6} more" if len(listed) > 6 else ""
    return ", ".join(listed[:6]) + rest
