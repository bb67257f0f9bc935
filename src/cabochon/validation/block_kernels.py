"""The rules on weights in blocks and the kernels that read them: shapes, types, speed."""

from collections.abc import Iterator
from itertools import chain

from cabochon.validation.attention_nodes import attributes, given, shapes
from cabochon.validation.blocks import Blocked, blocked, stem
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.kernels import told
from cabochon.validation.opened import Opened
from cabochon.validation.registry import element_types
from cabochon.validation.rules import Found, rule

__all__: list[str] = []

NEEDS = ("graphs",)
_BITS = (2, 4, 8)  # of the codes that the kernels of all providers take
_LEAST = 16  # numbers of a block


def _everywhere(package: Opened) -> Iterator[tuple[Graph, Blocked]]:
    return ((graph, one) for graph in package.graphs.values() for one in blocked(graph))


@rule("RUN015", Severity.ERROR, NEEDS)
def parts_do_not_fit(package: Opened) -> Iterator[Found]:
    """The parts of a weight in blocks do not fit each other, or not what they are multiplied with.

    Causes: codes, scales or zero points of another weight, or cut otherwise; attributes that were changed without them;
    a block that no kernel takes (a power of two from 16 on) or bits other than 2, 4 and 8. Kernels read beyond the end
    of what is too short.
    Remedy: build the package again.
    """
    for graph, one in _everywhere(package):
        for what, found, expected in chain(
            _sizes(one), _strangers(one), _shapes(graph, one), _ends(graph, one)
        ):
            yield Found(f"{graph.path}: {one.at}: {what}", found, expected)


Wrong = tuple[str, str, str]  # what, found, expected


def _sizes(one: Blocked) -> Iterator[Wrong]:
    if one.bits not in _BITS:
        yield "bits", str(one.bits), "2, 4 or 8"
    if one.block < _LEAST or one.block & (one.block - 1):
        yield "block_size", str(one.block), f"a power of two, {_LEAST} or more"


def _strangers(one: Blocked) -> Iterator[Wrong]:
    """Parts whose names say that they are another weight's, and axes along which no kernel here reads."""
    for what, name in (("scales", one.scales), ("zero points", one.zero_points)):
        if stem(name) not in (name, one.name):
            yield name, f"{what} of {stem(name)}", f"those of {one.name}"
    if one.node.op_type == "GatherBlockQuantized":
        axes = tuple(attributes(one.node).get(*each) for each in (("gather_axis", 0), ("quantize_axis", 1)))
        if axes not in ((0, 1), (0, -1)):
            yield (
                "axes",
                f"gather_axis {axes[0]}, quantize_axis {axes[1]}",
                "0 and 1: rows, and blocks along them",
            )


def _shapes(graph: Graph, one: Blocked) -> Iterator[Wrong]:
    """The shape of each part that is an initializer."""
    if one.bits not in _BITS or one.blocks is None:
        return
    for what, name, allowed in _allowed(graph, one, one.blocks):
        weight = graph.initializers.get(name)
        if weight is not None and weight.shape not in allowed:
            expected = " or ".join(str(list(shape)) for shape in dict.fromkeys(allowed))
            yield name, f"{what} of shape {list(weight.shape)}", f"{expected} for {_told(one)}"


def _told(one: Blocked) -> str:
    return f"{one.rows} rows of {one.columns} numbers, {one.scheme}"


Shapes = tuple[tuple[int, ...], ...]


def _allowed(graph: Graph, one: Blocked, blocks: int) -> Iterator[tuple[str, str, Shapes]]:
    """What each part is, its name, and the shapes that it may have."""
    rows, columns = one.rows or 0, one.columns or 0
    packed, size = -(-blocks * one.bits // 8), one.block * one.bits // 8
    if one.flat:
        count = -(-rows * columns // 2)
        yield "codes", one.codes, ((count,), (count, 1))
        yield "scales", one.scales, ((blocks,),)
    elif one.node.op_type == "MatMulNBits":
        yield "codes", one.codes, ((rows, blocks, size),)
        yield "scales", one.scales, ((rows, blocks), (rows * blocks,))
        yield "zero points", one.zero_points, _zero_points(graph, one, rows, blocks, packed)
    elif one.across:
        yield "scales", one.scales, ((blocks, rows),)
        flat = () if one.node.op_type == "DequantizeLinear" else ((-(-blocks * rows * one.bits // 8),),)
        yield "zero points", one.zero_points, ((blocks, rows), *flat)
    else:
        narrow = graph.initializers.get(one.codes)
        wide = (narrow is not None and narrow.bits < 8) or one.node.op_type == "DequantizeLinear"
        yield "scales", one.scales, ((rows, blocks),)
        yield "zero points", one.zero_points, ((rows, blocks if wide else packed),)


def _zero_points(graph: Graph, one: Blocked, rows: int, blocks: int, packed: int) -> Shapes:
    """Of MatMulNBits: packed as the codes are, or one number for each block."""
    weight = graph.initializers.get(one.zero_points)
    count = packed if weight is None or weight.dtype == "uint8" else blocks
    return (rows, count), (rows * count,)


def _ends(graph: Graph, one: Blocked) -> Iterator[Wrong]:
    """What comes in and goes out of a product."""
    if not one.node.op_type.startswith("MatMul"):
        return
    transposed = attributes(one.node).get("transB", 1) == 1
    wide = (one.columns, one.rows) if transposed else (one.rows, one.columns)
    for name, expected in zip((given(one.node, 0), next(iter(one.node.output), "")), wide, strict=True):
        shape = shapes(graph).get(name)
        if shape and shape[-1] not in (None, expected):
            yield name, f"{shape[-1]} wide", f"{expected}, as K and N say"


@rule("RUN016", Severity.ERROR, NEEDS)
def scales_are_computed(package: Opened) -> Iterator[Found]:
    """A part of a weight of MatMulNBits is computed, or its scales are not of the activations' type.

    Causes: scales that are stored in another type and cast in the graph. Where a session is not optimized, the kernel
    of the CPU then computes garbage without a word.
    Remedy: store the scales in the type of the activations.
    """
    for graph, one in _everywhere(package):
        if one.node.op_type != "MatMulNBits":
            continue
        at, types = f"{graph.path}: {one.at}", element_types(graph)
        for what, name in (("codes", one.codes), ("scales", one.scales), ("zero points", one.zero_points)):
            if name and name not in graph.initializers:
                yield Found(at, f"{what} {name!r}, which are computed", "an initializer")
        activations, scales = types.get(given(one.node, 0)), types.get(one.scales)
        if activations and scales and activations != scales:
            yield Found(at, f"scales of {scales}", f"{activations}, the type of the activations")


@rule("RUN017", Severity.WARNING, NEEDS)
def slow(package: Opened) -> Iterator[Found]:
    """A weight in blocks is read in a way that is very slow.

    Causes: on the CPU, 8 bits without an accuracy level (a kernel over 100 times slower) and NF4 (over 15 times);
    everywhere, a table that is unpacked whole before some of its rows are gathered, and an unpacked weight that is
    transposed before it is multiplied, which no runtime fuses.
    Remedy: state accuracy_level 4 for 8 bits on the CPU; choose another precision than NF4 there; gather packed rows;
    store what is unpacked as [in, out].
    """
    yield from told(package, "RUN017")


@rule("RUN018", Severity.WARNING, NEEDS)
def zero_point_left_open(package: Opened) -> Iterator[Found]:
    """Releases of the provider differ in the zero point that they take where none is stored.

    Causes: GatherBlockQuantized over uint8 without zero points. On CUDA releases before the fix of onnxruntime's issue
    31692 (of August 2026) take 0 where all other kernels take the middle of the range: every row is shifted.
    Remedy: store zero points: 8 in each half of a byte, or 128.
    """
    yield from told(package, "RUN018")
