"""The ports of graphs that were converted to OpenVINO, against config.json and what the graphs say of themselves."""

from collections.abc import Iterator, Mapping
from typing import Any

from cabochon.errors import MetadataError
from cabochon.metadata.ports import Port, Ports
from cabochon.validation.converted import parts
from cabochon.validation.findings import Severity
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, rule
from cabochon.validation.statements import inside

__all__: list[str] = []

CONTRACT = "component_contract.yaml"


def _sides(ports: Ports) -> Mapping[str, Mapping[str, Port]]:
    return {"inputs": ports.inputs, "outputs": ports.outputs}


@rule("OVN007", Severity.ERROR)
def other_ports(package: Opened) -> Iterator[Found]:
    """A converted graph lacks a port, or has one that its kind does not have.

    Causes: OpenVINO makes a constant of an input that may be left out, so that logits_to_keep must be given; a port
    that was renamed on the way; a config of another model.
    Remedy: Convert the package again; if cabochon converted it, report it.
    """
    for part in parts(package):
        for side, wanted in _sides(part.expected).items() if part.expected else ():
            real = _sides(part.net.ports)[side]
            for name in sorted(wanted.keys() - real.keys()):
                yield Found(
                    f"{part.net.path}: {side}", f"nothing of {name!r}", f"every port of a {part.kind}"
                )
            for name in sorted(real.keys() - wanted.keys()):
                yield Found(
                    f"{part.net.path}: {side}.{name}", "a port", f"none that a {part.kind} does not have"
                )


@rule("OVN008", Severity.ERROR)
def port_differs(package: Opened) -> Iterator[Found]:
    """A port of a converted graph has another type, rank or size than the model of config.json.

    Causes: A graph of another model or precision; a config that was replaced; caches whose heads are all of one size.
    Remedy: Convert the package again, or put the config back that belongs to the graphs.
    """
    for part in parts(package):
        for side, wanted in _sides(part.expected).items() if part.expected else ():
            for name, port in _sides(part.net.ports)[side].items():
                if name in wanted and _sizes(port) != _sizes(wanted[name]):
                    at = f"{part.net.path}: {side}.{name}"
                    yield Found(at, _spelled(port), f"{_spelled(wanted[name])}, as config.json has it")


def _sizes(port: Port) -> tuple[Any, ...]:
    return (port.dtype, *(size if isinstance(size, int) else "any" for size in port.shape))


def _spelled(port: Port) -> str:
    return f"{port.dtype} [{', '.join(str(d) or '?' for d in port.shape)}]"


@rule("OVN009", Severity.ERROR)
def axes_differ(package: Opened) -> Iterator[Found]:
    """What a converted graph says of its dimensions is not what its ports are.

    Causes: IR has no names for dimensions of any size: the property `axes` keeps them, line by line, and was edited or
    belongs to another graph.
    Remedy: Convert the package again.
    """
    for part in parts(package):
        at, ports = f"{part.net.path}: cabochon.axes", {**part.net.ports.inputs, **part.net.ports.outputs}
        if "cabochon.axes" not in part.properties or (part.stateful and part.lines is None):
            continue  # a rule on properties says so
        known = {**part.lines.inputs, **part.lines.outputs} if part.lines else {}
        states = {name: known[name] for name in known.keys() - ports.keys()} if part.stateful else {}
        for name in sorted(part.net.axes.keys() - ports.keys() - states.keys()):
            yield Found(f"{at}: {name}", "a line", "lines for the ports and the states that there are")
        for name, port in {**ports, **states}.items():
            said = part.net.axes.get(name)
            if said is None:
                yield Found(at, f"no line for {name!r}", "one for each port and state")
            elif fault := _misnamed(said, port, known.get(name)):
                yield Found(f"{at}: {name}", ", ".join(said) or "nothing", fault)


def _misnamed(said: tuple[str, ...], port: Port, wanted: Port | None) -> str:
    """What a line should say; "" where it is right."""
    if len(said) != len(port.shape):
        return f"{len(port.shape)} dimensions"
    for name, size in zip(said, port.shape, strict=True):
        if isinstance(size, int) and name != str(size):
            return f"{size}, as the port has it"
        if not isinstance(size, int) and (not name.isidentifier()):
            return "a name for what may be of any size"
    same = wanted and _sizes(wanted) == _sizes(port)  # otherwise a rule on ports says more
    right = tuple(map(str, wanted.shape)) if same and wanted else said
    return "" if said == right else ", ".join(right)


@rule("OVN010", Severity.ERROR)
def contract_differs(package: Opened) -> Iterator[Found]:
    """component_contract.yaml states other ports than the converted graphs have.

    Causes: The file is that of another package, or is not there; it was edited.
    Remedy: Convert the package again.
    """
    if not (found := parts(package)):
        return
    said = _contract(package)
    if isinstance(said, str):
        yield Found(CONTRACT, said, "the ports of every graph")
        return
    by_file = {str(inside(one, "artifact")): (name, one) for name, one in said.items()}
    for part in found:
        path = part.wrapper.path if part.wrapper else part.net.path
        if path not in by_file:
            yield Found(CONTRACT, f"nothing of {path}", "the ports of every graph")
            continue
        name, one = by_file[path]
        for side, real in _sides(part.net.ports).items():
            stated = inside(one, side) or {}
            at = f"{CONTRACT}: components.{name}.{side}"
            for port in sorted(real.keys() ^ stated.keys()):
                yield Found(f"{at}.{port}", "a port" if port in stated else "nothing", f"the ports of {path}")
            for port in sorted(real.keys() & stated.keys()):
                shape = inside(stated[port], "shape")
                shape = tuple(shape) if isinstance(shape, list | tuple) else None
                if (inside(stated[port], "dtype"), shape) != (real[port].dtype, real[port].shape):
                    found_ = f"{inside(stated[port], 'dtype')} {list(shape or ())}"
                    yield Found(f"{at}.{port}", found_, _spelled(real[port]))


def _contract(package: Opened) -> Mapping[str, Any] | str:
    """Its components; why there are none."""
    from cabochon.metadata import yaml

    if CONTRACT not in package.files:
        return "no such file"
    try:
        found = inside(yaml.read(package.bytes(CONTRACT), CONTRACT), "components")
    except MetadataError as error:
        return error.message
    return found if isinstance(found, Mapping) else "no components"
