"""The rules on running: whether the provider of the target has kernels for the graph, and what limits it has."""

import math
import re
from collections.abc import Iterator, Mapping

from cabochon.dialects import TARGETS, Target
from cabochon.recipes.cast import TYPES
from cabochon.validate.attention_nodes import AttentionNode, attention_nodes
from cabochon.validate.findings import Severity
from cabochon.validate.graph import Graph
from cabochon.validate.kernels import TABLES, Table
from cabochon.validate.memo import once
from cabochon.validate.opened import Opened
from cabochon.validate.registry import Typed, registry_version, runs, schema, typed
from cabochon.validate.rules import Found, rule

__all__: list[str] = []

NEEDS = ("graphs",)
CPU = "CPUExecutionProvider"
INT32 = 2**31 - 1  # elements that an index of the GPU kernels can count
KERNEL_HEADS = 8  # GroupQueryAttention takes head sizes that are multiples of it
EMPTY_KEYS = (1, 27)  # the first onnxruntime whose GroupQueryAttention takes keys of no token
REQUIREMENTS = "runtime-requirements.txt"


def target_of(graph: Graph) -> Target | None:
    """The target that a graph was built for; None where it does not say, or says one that there is not."""
    return TARGETS.get(graph.properties.get("cabochon.target", ""))


def provider_of(graph: Graph) -> str:
    """The execution provider of the target; the CPU's where none is said, as for policies."""
    target = target_of(graph)
    return target.provider if target else CPU


Sort = tuple[str, str, tuple[str, ...], tuple[str, ...]]  # domain, operator, types


def sorts(graph: Graph) -> Mapping[Sort, list[Typed]]:
    """The nodes by operator and types."""
    return once(graph, _sorts)


def _sorts(graph: Graph) -> Mapping[Sort, list[Typed]]:
    found = dict[Sort, list[Typed]]()
    for node in typed(graph):
        key = (node.domain, node.node.op_type, node.inputs, node.outputs)
        found.setdefault(key, []).append(node)
    return found


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
    """What the target says of this precision, where it builds it knowing that the kernels are missing; else ""."""
    target, precision = target_of(graph), graph.properties.get("cabochon.precision", "")
    if target is None or precision not in target.precisions - target.kernels:
        return ""
    return target.caveats.get(precision, "")


def _excuses(graph: Graph, nodes: list[Typed]) -> bool:
    """Whether it is the type of the weights that these nodes have no kernel for."""
    dtype = TYPES.get(graph.properties.get("cabochon.precision", ""))
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
                found = f"{_spelled(sort)}: {len(nodes)} nodes, such as {_name(nodes[0])}"
                yield Found(graph.path, found, f"operators that {provider_of(graph)} has kernels for")


def _spelled(sort: Sort) -> str:
    domain, name, inputs, _ = sort
    kinds = ", ".join(dict.fromkeys(kind for kind in inputs if kind))
    return f"{domain + '.' if domain else ''}{name} over {kinds or 'nothing'}"


def _name(node: Typed) -> str:
    return node.node.name or next(iter(node.node.output), "")


@rule("RUN002", Severity.WARNING, NEEDS)
def known_not_to_run(package: Opened) -> Iterator[Found]:
    """The provider of the target has no kernels for the package's precision, and the package says so.

    Causes: the package was built for its content, to be converted, or for another runtime; its card says it.
    Remedy: build in another precision to run it on this provider.
    """
    for graph in package.graphs.values():
        if caveat := excused(graph):
            precision = graph.properties["cabochon.precision"]
            missing = [*without_kernel(graph).values(), *fallen_back(graph).values()]
            count = sum(len(nodes) for nodes in missing if _excuses(graph, nodes))
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
                found = f"{_spelled(sort)}: {len(nodes)} nodes, such as {_name(nodes[0])}"
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


@rule("RUN005", Severity.ERROR, NEEDS)
def attribute_unknown(package: Opened) -> Iterator[Found]:
    """A node has an attribute that its operator does not know.

    Causes: the attribute is that of another operator or of a later version (rotary_embedding_dim of
    GroupQueryAttention): onnxruntime refuses to load the graph.
    Remedy: drop the attribute, or build again.
    """
    for graph in package.graphs.values():
        for node in typed(graph):
            known = schema(node.domain, node.node.op_type, node.version)
            if known is None:
                continue  # RUN001 says so
            for attribute in node.node.attribute:
                if attribute.name not in known.attributes:
                    at = f"{graph.path}: {_name(node)}"
                    expected = ", ".join(sorted(known.attributes)) or "none"
                    yield Found(at, f"{node.node.op_type} with {attribute.name}", expected)


@rule("RUN006", Severity.ERROR, NEEDS)
def head_size_not_taken(package: Opened) -> Iterator[Found]:
    """GroupQueryAttention does not take this head size.

    Causes: the checkpoint has heads whose size is no multiple of 8.
    Remedy: build for a target that spells attention as ai.onnx Attention.
    """
    for graph, node in _group_queries(package):
        if node.size is not None and node.size % KERNEL_HEADS:
            yield Found(
                f"{graph.path}: {node.name}", f"heads of size {node.size}", f"a multiple of {KERNEL_HEADS}"
            )


def _group_queries(package: Opened) -> Iterator[tuple[Graph, AttentionNode]]:
    for graph in package.graphs.values():
        for node in attention_nodes(graph):
            if node.node.op_type == "GroupQueryAttention":
                yield graph, node


@rule("RUN007", Severity.ERROR, NEEDS)
def outputs_not_bound(package: Opened) -> Iterator[Found]:
    """GroupQueryAttention has fewer than its three outputs.

    Causes: nothing reads the second and third, and they were dropped. With keys of its own the operator then computes
    with memory that holds anything; with borrowed ones onnxruntime 1.27 to 1.30 crashes.
    Remedy: bind all three.
    """
    for graph, node in _group_queries(package):
        bound = [name for name in node.node.output[:3] if name]
        if len(bound) < 3:
            yield Found(f"{graph.path}: {node.name}", f"{len(bound)} outputs", "3")


@rule("RUN008", Severity.ERROR, NEEDS)
def runtime_too_old(package: Opened) -> Iterator[Found]:
    """The stated onnxruntime refuses keys of no token.

    Causes: runtime-requirements.txt pins a version before 1.27, but layers borrow their cache through
    GroupQueryAttention.
    Remedy: state onnxruntime 1.27 or later.
    """
    stated = stated_runtime(package)
    borrowed = next((at for at in _group_queries(package) if not at[1].appends), None)
    if stated and borrowed and tuple(map(int, stated.split(".")[:2])) < EMPTY_KEYS:
        graph, node = borrowed
        yield Found(REQUIREMENTS, f"onnxruntime {stated}", f"1.27 or later, for {graph.path}: {node.name}")


def stated_runtime(package: Opened) -> str:
    """The version of onnxruntime that runtime-requirements.txt states; "" where it states none."""
    match = re.search(
        r"^onnxruntime(?:-\w+)?==(\d+\.\d+[\d.]*)", package.text(REQUIREMENTS) or "", re.MULTILINE
    )
    return match[1] if match else ""


@rule("RUN009", Severity.ERROR, NEEDS)
def too_many_elements(package: Opened) -> Iterator[Found]:
    """A tensor has more elements than the provider's kernels can count.

    Causes: the kernels of CUDA and WebGPU index with 32 bits; the per-layer table of a whole model has more elements.
    Remedy: store the table in parts, one for each layer, as the targets of cabochon do.
    """
    for graph in package.graphs.values():
        if provider_of(graph) == CPU:
            continue
        for weight in graph.initializers.values():
            if (count := math.prod(weight.shape)) > INT32:
                readers = ", ".join(sorted({node.op_type for node in graph.consumers.get(weight.name, ())}))
                at = f"{graph.path}: {weight.name}"
                yield Found(at, f"{count:,} elements, read by {readers or 'nothing'}", f"at most {INT32:,}")


@rule("RUN010", Severity.WARNING, NEEDS)
def binding_too_large(package: Opened) -> Iterator[Found]:
    """A tensor is larger than what every adapter of the provider must grant.

    Causes: WebGPU grants 128 MiB for one binding unless asked for more; the tables of large vocabularies are larger.
    Remedy: ask the adapter for larger limits, or choose a precision with fewer bits.
    """
    for graph in package.graphs.values():
        target = target_of(graph)
        large = [
            w for w in graph.initializers.values() if target and target.binding and w.nbytes > target.binding
        ]
        if large and target and target.binding:
            largest = max(large, key=lambda weight: weight.nbytes)
            found = f"{len(large)} tensors, the largest {largest.name} of {largest.nbytes:,} bytes"
            yield Found(graph.path, found, f"at most {target.binding:,} bytes")


@rule("RUN011", Severity.ERROR, NEEDS)
def computed_wrongly(package: Opened) -> Iterator[Found]:
    """The provider is known to compute this node wrongly.

    Causes: on WebGPU, GroupQueryAttention over a borrowed cache ignores the window's edge, and its soft-cap is not
    applied. Nothing says so when the package runs.
    Remedy: write the scores out, as the target webgpu does.
    """
    for graph, node in _group_queries(package):
        if provider_of(graph) != "WebGpuExecutionProvider":
            continue
        at = f"{graph.path}: {node.name}"
        if not node.appends and node.window > 0:
            yield Found(
                at, f"a borrowed cache with a window of {node.window}", "no window, or a borrower written out"
            )
        if node.softcap:
            yield Found(at, f"a soft-cap of {node.softcap}", "none, or an attention written out")


@rule("RUN012", Severity.NOTE, NEEDS)
def caveat(package: Opened) -> Iterator[Found]:
    """There is something to know before running this precision on the target.

    Causes: the provider runs it, under a condition.
    Remedy: see the limits in README.md.
    """
    for graph in package.graphs.values():
        target, precision = target_of(graph), graph.properties.get("cabochon.precision", "")
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


@rule("RUN014", Severity.ERROR, NEEDS)
def rotary_cache_not_taken(package: Opened) -> Iterator[Found]:
    """GroupQueryAttention rotates by a cache that it does not take.

    Causes: cosines and sines of another head size; fewer positions than the model has.
    Remedy: the widths of cos_cache and sin_cache are multiples of 8 and at most half a head; build again.
    """
    for graph, node in _group_queries(package):
        if not node.rotates or node.size is None:
            continue
        for name in node.node.input[7:9]:
            weight = graph.initializers.get(name)
            width = weight.shape[-1] if weight and weight.shape else None
            if width is not None and (width % KERNEL_HEADS or width > node.size // 2):
                at = f"{graph.path}: {name}"
                yield Found(
                    at, f"a width of {width}", f"a multiple of {KERNEL_HEADS}, at most {node.size // 2}"
                )
