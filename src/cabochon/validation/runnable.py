"""The rules on running: whether the provider of the target has kernels for the graph, and what limits it has."""

from collections.abc import Iterator, Mapping

from cabochon.evidence import activations
from cabochon.recipes.cast import TYPES
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.kernels import aside
from cabochon.validation.memo import once
from cabochon.validation.opened import Opened
from cabochon.validation.registry import Place, Typed, place, provider, registry_version
from cabochon.validation.rules import Found, rule
from cabochon.validation.targeted import (
    REQUIREMENTS,
    Sort,
    name_of,
    provider_of,
    sorts,
    stated_runtime,
    target_of,
)

__all__: list[str] = []

NEEDS = ("graphs",)


def placed(graph: Graph) -> Mapping[Place, Mapping[Sort, list[Typed]]]:
    """The nodes by where the provider of the target has them computed."""
    return once(graph, _placed)


def _placed(graph: Graph) -> dict[Place, dict[Sort, list[Typed]]]:
    on = provider(provider_of(graph))
    found: dict[Place, dict[Sort, list[Typed]]] = {where: {} for where in Place}
    for sort, nodes in sorts(graph).items():
        found[place(nodes[0], on)][sort] = nodes
    return found


def without_kernel(graph: Graph) -> Mapping[Sort, list[Typed]]:
    """The nodes that neither the provider of the target nor the one beside it runs."""
    return placed(graph)[Place.NOWHERE]


def excused(graph: Graph) -> str:
    """What the target says of this type of activations, where it builds it knowing that the kernels are missing; else
    ""."""
    target, kind = target_of(graph), activations(graph.properties)
    if target is None or kind not in target.precisions - target.kernels:
        return ""
    return target.caveats.get(kind, "")


def _excuses(graph: Graph, nodes: list[Typed]) -> bool:
    """Whether it is the type of activations that these nodes have no kernel for."""
    dtype = TYPES.get(activations(graph.properties) or "")
    return bool(excused(graph)) and dtype is not None and dtype.name in nodes[0].floats


@rule("RUN001", Severity.ERROR, NEEDS)
def no_kernel(package: Opened) -> Iterator[Found]:
    """A node has no kernel on the execution provider of the target.

    Causes: the operator does not exist in this version of onnxruntime, or not for these types; the operator set is
    newer than the runtime. What counts as running on the CPU provider: a kernel of the installed wheel for these types;
    a function whose operators run; f16 without a kernel where f32 has one, since onnxruntime puts casts around it.
    Remedy: build for another target or in another precision.
    """
    for graph in package.graphs.values():
        for sort, nodes in without_kernel(graph).items():
            if not _excuses(graph, nodes):
                found = f"{_spelled(sort)}: {len(nodes)} nodes, such as {name_of(nodes[0])}"
                yield Found(graph.path, found, f"operators that {provider_of(graph)} has kernels for")


def _spelled(sort: Sort) -> str:
    domain, name, inputs, _ = sort
    kinds = ", ".join(dict.fromkeys(kind for kind in inputs if kind))
    return f"{domain + '.' if domain else ''}{name} over {kinds or 'nothing'}"


@rule("RUN002", Severity.WARNING, NEEDS)
def known_not_to_run(package: Opened) -> Iterator[Found]:
    """The provider of the target has no kernels for the package's precision, and the package says so.

    Causes: the package was built for its content, to be converted, or for another runtime; its card says it.
    Remedy: build in another precision to run it on this provider.
    """
    for graph in package.graphs.values():
        if caveat := excused(graph):
            precision = activations(graph.properties)
            missing = [*without_kernel(graph).values(), *fallen_back(graph).values()]
            count = sum(len(nodes) for nodes in missing if _excuses(graph, nodes))
            if not count:
                continue  # the caveat is of operators that this graph does without
            expected = f"kernels of {provider_of(graph)} for {precision}"
            yield Found(
                graph.path, f"{precision}, for which {count} nodes have no kernel: {caveat}", expected
            )


def fallen_back(graph: Graph) -> Mapping[Sort, list[Typed]]:
    """The nodes over floating types that the provider has no kernel for, but the CPU; without those of positions."""
    floating = {sort: nodes for sort, nodes in placed(graph)[Place.BESIDE].items() if nodes[0].floats}
    left = {s: [node for node in nodes if id(node.node) not in aside(graph)] for s, nodes in floating.items()}
    return {sort: nodes for sort, nodes in left.items() if nodes}


@rule("RUN003", Severity.WARNING, NEEDS)
def runs_on_the_cpu(package: Opened) -> Iterator[Found]:
    """A node falls back to the CPU provider.

    Causes: the provider of the target has no kernel for the operator or its types; what it reads and makes is copied
    back and forth for every token. Shapes, masks and positions, which no weight has a part in, are meant to be there.
    Remedy: build for the target that runs there: `cabochon list targets`.
    """
    for graph in package.graphs.values():
        for sort, nodes in fallen_back(graph).items():
            if not _excuses(graph, nodes):
                found = f"{_spelled(sort)}: {len(nodes)} nodes, such as {name_of(nodes[0])}"
                yield Found(graph.path, found, f"operators that {provider_of(graph)} has kernels for")


@rule("RUN004", Severity.NOTE, NEEDS)
def kernel_not_known(package: Opened) -> Iterator[Found]:
    """It is not known whether the provider of the target has a kernel.

    Causes: the operator could not be asked for when the table of this provider was made.
    Remedy: load the package there; nothing is claimed of these nodes.
    """
    for graph in package.graphs.values():
        found = placed(graph)[Place.UNKNOWN].items()
        unknown = sorted({sort[1] for sort, nodes in found if nodes[0].floats})
        if unknown:
            table = provider(provider_of(graph))
            expected = f"operators of the table for {table.runtime} {table.version}"
            yield Found(graph.path, f"{', '.join(unknown)}: not known for {table.name}", expected)


@rule("RUN012", Severity.NOTE, NEEDS)
def caveat(package: Opened) -> Iterator[Found]:
    """There is something to know before running this precision on the target.

    Causes: the provider runs it, under a condition.
    Remedy: see the limits in README.md.
    """
    for graph in package.graphs.values():
        target, precision = target_of(graph), activations(graph.properties) or ""
        if target and precision in target.kernels and (said := target.caveats.get(precision)):
            yield Found(graph.path, f"{precision} on {target.name}: {said}", "an environment that meets it")


@rule("RUN013", Severity.NOTE, NEEDS)
def other_runtime_judged(package: Opened) -> Iterator[Found]:
    """The kernels were looked up in another onnxruntime than the one that the package states.

    Causes: the package was built elsewhere, or before an upgrade.
    Remedy: validate with the stated version to be sure of it.
    """
    stated = stated_runtime(package)
    if stated and stated != registry_version():
        yield Found(
            REQUIREMENTS, f"onnxruntime {stated}", f"{registry_version()}, whose kernels were looked up"
        )
