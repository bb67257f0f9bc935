"""The rules on what the kernels of a target's provider take."""

from collections.abc import Iterator

from cabochon.validation.attention_nodes import AttentionNode, attention_nodes
from cabochon.validation.blocks import numbers
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.kernels import told
from cabochon.validation.opened import Opened
from cabochon.validation.registry import schema, typed
from cabochon.validation.rules import Found, rule
from cabochon.validation.statements import NEEDS
from cabochon.validation.targeted import CPU, REQUIREMENTS, name_of, provider_of, stated_runtime, target_of

__all__: list[str] = []

INT32 = 2**31 - 1  # elements that an index of the GPU kernels can count


KERNEL_HEADS = 8  # GroupQueryAttention takes head sizes that are multiples of it


EMPTY_KEYS = (1, 27)  # the first onnxruntime whose GroupQueryAttention takes keys of no token


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
                    at = f"{graph.path}: {name_of(node)}"
                    expected = ", ".join(sorted(known.attributes)) or "none"
                    yield Found(at, f"{node.node.op_type} with {attribute.name}", expected)


@rule("RUN006", Severity.ERROR, NEEDS)
def head_size_not_taken(package: Opened) -> Iterator[Found]:
    """GroupQueryAttention does not take this head size.

    Causes: the checkpoint has heads whose size is no multiple of 8.
    Remedy: build for a target that spells attention as ai.onnx Attention.
    """
    yield from told(package, "RUN006")


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
    yield from told(package, "RUN007")


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


@rule("RUN009", Severity.ERROR, NEEDS)
def too_many_elements(package: Opened) -> Iterator[Found]:
    """A tensor has more elements than the provider's kernels can count.

    Causes: the kernels of CUDA and WebGPU index with 32 bits; the per-layer table of a whole model has more elements.
    Codes that share a byte count each.
    Remedy: store the table in parts, one for each layer, as the targets of cabochon do.
    """
    for graph in package.graphs.values():
        if provider_of(graph) == CPU:
            continue
        for weight in graph.initializers.values():
            if (count := numbers(graph, weight)) > INT32:
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
    applied. GatherBlockQuantized takes 4-bit zero points of rows with an odd number of blocks as if rows lay side by
    side on CUDA, and refuses them on WebGPU. Nothing says so when the package is loaded.
    Remedy: write the scores out, as the target webgpu does; store such tables with 8 bits, or with an even number of
    blocks.
    """
    yield from told(package, "RUN011")


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
