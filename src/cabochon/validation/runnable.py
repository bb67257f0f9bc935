"""The rules on running: whether the provider of the target has kernels for the graph, and what limits it has."""

from collections.abc import Iterator, Mapping

from cabochon.evidence import activations
from cabochon.recipes.cast import TYPES
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.kernels import TABLES, Table
from cabochon.validation.memo import once
from cabochon.validation.opened import Opened
from cabochon.validation.registry import Typed, registry_version, runs
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


def without_kernel(graph: Graph) -> Mapping[Sort, list[Typed]]:
    """The nodes that neither the provider of the target nor the CPU provider runs."""
    return once(graph, _without_kernel)


def _without_kernel(graph: Graph) -> Mapping[Sort, list[Typed]]:
    table = TABLES.get(provider_of(graph))
    return {
        sort: nodes
        for sort, nodes in sorts(graph).items()
        if not (table and _listed(table, nodes[0])) and not runs(nodes[0])
    }


def _listed(table: Table, node: Typed) -> bool:
    """Whether the table says that there is a kernel."""
    known = table.types.get((node.domain, node.node.op_type))
    return known is not None and bool(node.floats) and node.floats <= known


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
    """The nodes of which the table says that the provider has no kernel, but that the CPU provider runs."""
    table = TABLES.get(provider_of(graph))
    if table is None:
        return {}
    return {
        sort: nodes
        for sort, nodes in sorts(graph).items()
        if nodes[0].floats and sort[:2] in table.types and not _listed(table, nodes[0]) and runs(nodes[0])
    }


@rule("RUN003", Severity.WARNING, NEEDS)
def runs_on_the_cpu(package: Opened) -> Iterator[Found]:
    """A node falls back to the CPU provider.

    Causes: the provider of the target has no kernel for the operator or its types; what it reads and makes is copied
    back and forth for every token.
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

    Causes: the operator is not in the table of this provider, which was made from its documents, not from a wheel.
    Remedy: load the package there; nothing is claimed of these nodes.
    """
    for graph in package.graphs.values():
        table = TABLES.get(provider_of(graph))
        unknown = sorted(
            {s[1] for s, n in sorts(graph).items() if table and n[0].floats and s[:2] not in table.types}
        )
        if table and unknown:
            expected = f"operators of the table for onnxruntime {table.version}"
            yield Found(graph.path, f"{', '.join(unknown)}: not known for {table.provider}", expected)


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
