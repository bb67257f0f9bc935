"""What a package is made of, where it runs, and what it would need to run elsewhere."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath

from cabochon.dialects import CONVERSIONS, TARGETS, Target
from cabochon.errors import PackageError
from cabochon.evidence import activations
from cabochon.kernels import PROVIDERS
from cabochon.validation.blocks import blocked
from cabochon.validation.graph import Graph
from cabochon.validation.kernels import Group, Judged, judge, operator_of
from cabochon.validation.net import Net, spelled
from cabochon.validation.opened import Opened, open_package
from cabochon.validation.registry import typed

__all__ = ["Component", "Fit", "Inspection", "Stored", "inspect"]

OPENVINO = "OpenVINO"
_POLICIES = "policies"  # the folder of the graphs of the loop, which every host runs on its CPU
_NAMED = 3  # needs of a kind that are said one by one


@dataclass(frozen=True)
class Stored:
    """Weights that are stored alike: how, how many, and their bytes."""

    type: str
    tensors: int
    bytes: int


@dataclass(frozen=True)
class Component:
    """One graph: an ONNX file or an OpenVINO IR file. `types`: the element types of what its nodes make."""

    path: str
    form: str
    nodes: int
    opsets: Mapping[str, int]
    operators: Mapping[str, int]
    types: Mapping[str, int]
    weights: tuple[Stored, ...]


@dataclass(frozen=True)
class Fit:
    """A package on a target. `needs`: what is in the way; `beside`: what runs on the CPU beside the target's provider;
    `conditions`: what the machine must grant."""

    target: str
    provider: str
    needs: tuple[str, ...]
    beside: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()

    @property
    def satisfied(self) -> bool:
        """Whether the target's provider computes all of it, and rightly."""
        return not (self.needs or self.beside)


@dataclass(frozen=True)
class Inspection:
    """A package: its components, and how its nodes fare on each provider and target."""

    package: Path
    target: str
    precision: str
    components: tuple[Component, ...]
    providers: tuple[Judged, ...]
    targets: tuple[Fit, ...]

    @property
    def satisfies(self) -> tuple[str, ...]:
        """The targets that it satisfies."""
        return tuple(fit.target for fit in self.targets if fit.satisfied)

    def runs(self, provider: str) -> bool:
        """Whether nothing is known to keep it from running on a provider, right."""
        judged = next((one for one in self.providers if one.provider == provider), None)
        return judged.runs if judged else any(f.provider == provider and not f.needs for f in self.targets)


def inspect(package: str | Path) -> Inspection:
    """Look at the graphs of a package, without its weights. Raises PackageError where there are none."""
    opened = open_package(package)
    graphs = [g for path, g in opened.graphs.items() if PurePosixPath(path).parent.name != _POLICIES]
    nets = list(opened.nets.values())
    if not graphs and not nets:
        raise PackageError(
            "no graph; expected a package", at=str(package), remedy="make one with `cabochon build`"
        )
    wrapped = opened.contexts.values()
    components = (*map(_component, (*graphs, *wrapped)), *map(_converted, nets))
    target, precision = _said(opened, "target"), _said(opened, "precision")
    judged = tuple(judge(graphs, name) for name in PROVIDERS) if graphs else ()
    fits = _fits(graphs, judged) if graphs else _fits_converted(nets, bool(wrapped))
    return Inspection(opened.root, target, precision, components, judged, tuple(fits))


def _said(opened: Opened, key: str) -> str:
    every = (*opened.graphs.values(), *opened.contexts.values(), *opened.nets.values())
    return next(
        (one.properties[f"cabochon.{key}"] for one in every if f"cabochon.{key}" in one.properties), ""
    )


def _component(graph: Graph) -> Component:
    nodes = typed(graph)
    return Component(
        graph.path,
        "ONNX",
        len(nodes),
        {domain or "ai.onnx": version for domain, version in graph.opsets.items()},
        _counted(operator_of(node) for node in nodes),
        _counted(kind for node in nodes for kind in node.outputs if kind),
        _stored(_held(graph)),
    )


def _counted(found: Iterable[str]) -> dict[str, int]:
    """How often each occurs, the most frequent first."""
    return dict(sorted(Counter(found).items(), key=lambda pair: (-pair[1], pair[0])))


def _held(graph: Graph) -> Iterator[tuple[str, int]]:
    """How each initializer is stored, and its bytes."""
    schemes = {one.codes: one.scheme for one in blocked(graph)}
    for weight in graph.initializers.values():
        yield schemes.get(weight.name, weight.dtype), max(weight.nbytes, 0)


def _stored(held: Iterable[tuple[str, int]]) -> tuple[Stored, ...]:
    sizes = dict[str, list[int]]()
    for kind, nbytes in held:
        sizes.setdefault(kind, []).append(nbytes)
    found = (Stored(kind, len(each), sum(each)) for kind, each in sizes.items())
    return tuple(sorted(found, key=lambda one: -one.bytes))


def _converted(net: Net) -> Component:
    layers = net.layers
    return Component(
        net.path,
        "OpenVINO IR",
        len(layers),
        _counted(layer.version for layer in layers if layer.version),
        _counted(layer.type for layer in layers),
        _counted(spelled(slot.dtype) for layer in layers for slot in layer.gives.values()),
        _stored((spelled(one.dtype), max(one.nbytes, 0)) for one in net.constants),
    )


def _fits(graphs: list[Graph], judged: tuple[Judged, ...]) -> Iterator[Fit]:
    by_name = {one.provider: one for one in judged}
    known = {name: target for name, target in TARGETS.items() if target.provider in by_name}
    for name, target in known.items():
        found = by_name[target.provider]
        pure = _impure(graphs) if _portable(target) else ()
        needs = (*pure, *_precisions(graphs, target), *_groups(found.missing, found.wrong, found.refused))
        yield Fit(
            name, found.provider, needs, tuple(_groups(found.falls_back)), tuple(_conditions(graphs, target))
        )
    for conversion in CONVERSIONS.values():
        found = by_name[OPENVINO]
        conditions = (conversion.condition,) if conversion.condition else ()
        needs = _groups(found.missing, found.wrong, found.refused)
        yield Fit(conversion.name, OPENVINO, tuple(needs), conditions=conditions)


def _portable(target: Target) -> bool:
    """Whether it is for any runtime: its dialect has the operators of ai.onnx alone."""
    return target.name == "onnx-standard"


def _impure(graphs: Iterable[Graph]) -> tuple[str, ...]:
    """Operators of other domains, those inside of loops included."""
    found = dict[str, list[str]]()
    for graph in graphs:
        for node in graph.nodes:
            if node.domain not in ("", "ai.onnx"):
                at = f"{graph.path}: {node.name or next(iter(node.output), '')}"
                found.setdefault(f"{node.domain}.{node.op_type}", []).append(at)
    return tuple(f"{name} in operators of ai.onnx ({_count(len(at))} {at[0]})" for name, at in found.items())


def _count(nodes: int) -> str:
    return "1 node:" if nodes == 1 else f"{nodes} nodes, such as"


def _precisions(graphs: Iterable[Graph], target: Target) -> tuple[str, ...]:
    said = {activations(graph.properties) for graph in graphs} - {None}
    return tuple(
        f"another precision than {name}: {target.caveats[name]}"
        for name in sorted(filter(None, said))
        if name not in target.precisions and name in target.caveats
    )


def _groups(*groups: Iterable[Group]) -> Iterator[str]:
    for one in chain(*groups):
        kinds = f" over {', '.join(one.types)}" if one.types else ""
        yield f"{one.operator}{kinds}: {one.why} ({_count(one.nodes)} {one.at})"


def _conditions(graphs: Iterable[Graph], target: Target) -> Iterator[str]:
    """What a machine of the target must grant."""
    found = list(graphs)
    for name in sorted({activations(graph.properties) or "" for graph in found} & target.kernels):
        if name in target.caveats:
            yield target.caveats[name]
    if target.binding:
        sizes = [weight.nbytes for graph in found for weight in graph.initializers.values()]
        if large := [size for size in sizes if size > target.binding]:
            yield f"bindings of {max(large):,} bytes, for {len(large)} tensors beyond {target.binding:,}"


def _fits_converted(nets: list[Net], wrapped: bool) -> Iterator[Fit]:
    """Of a package that is OpenVINO's already: it runs there, and nowhere else."""
    newest = PROVIDERS[OPENVINO].version
    newer = [net for net in nets if _order(net.version) > _order(newest)]
    needs = [
        f"OpenVINO {net.version}, which wrote {net.path}: nothing is known beyond {newest}" for net in newer
    ]
    name = "openvino-epcontext" if wrapped else "openvino-ir"
    yield Fit(name, OPENVINO, tuple(needs))
    for target in TARGETS.values():
        need = f"an ONNX graph: `cabochon build SOURCE OUT --target {target.name}`"
        yield Fit(target.name, target.provider, (need,))


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
