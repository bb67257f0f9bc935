"""Weights in blocks as the nodes of a graph read them: codes, a scale for each block, sometimes a zero point."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onnx import NodeProto

from cabochon.validation.attention_nodes import attributes, given
from cabochon.validation.graph import Graph, Weight
from cabochon.validation.memo import once

__all__ = [
    "ROUNDED",
    "SCALES",
    "ZERO_POINTS",
    "Blocked",
    "blocked",
    "numbers",
    "rounds",
    "stem",
]

# What the initializers of a weight `X.weight` in blocks are called beside its codes. Other names that begin so are
# other sights of the same bytes: another shape of them, or another type.
SCALES, ZERO_POINTS = "_scales", "_zero_points"
_PART = re.compile(r"(.*(?:\.weight|\.experts\.\w+_proj(?:\.rows\d+)?))_\w+")
ROUNDED = 4  # the accuracy level of MatMulNBits at which activations are rounded to 8 bits
_UNPACKING = ("BitwiseAnd", "BitShift")  # what parts two codes of a byte


@dataclass(frozen=True)
class Blocked:
    """A weight in blocks as one node reads it: names of `codes`, `scales`, `zero_points` ("" where there are none).

    A row has `columns` numbers, `block` of which share a scale; `rows` and `columns` are None where nothing says them.
    `flat`: blocks go on from row to row. `across`: rows and columns have changed places, the blocks go down.
    """

    node: NodeProto
    codes: str
    scales: str
    zero_points: str
    bits: int
    block: int
    rows: int | None = None
    columns: int | None = None
    flat: bool = False
    across: bool = False

    @property
    def name(self) -> str:
        """The weight's."""
        return stem(self.codes)

    @property
    def at(self) -> str:
        """The operator and the node's name."""
        return f"{self.node.op_type} {self.node.name or next(iter(self.node.output), '')}"

    @property
    def scheme(self) -> str:
        """Bits and block in words."""
        return f"{self.bits} bits in blocks of {self.block}"

    @property
    def blocks(self) -> int | None:
        """Blocks of a row, or of the whole weight where they are flat."""
        count = self.columns if not self.flat else _product(self.rows, self.columns)
        return None if count is None or self.block < 1 else -(-count // self.block)


def _product(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a * b


def stem(name: str) -> str:
    """The weight that an initializer is a part of: `X.weight` of `X.weight_scales`."""
    found = _PART.fullmatch(name)
    return found[1] if found else name


def codes_of(graph: Graph, weight: str) -> list[str]:
    """The initializers that hold the codes of a weight, each in a shape and type of its own."""
    others = (f"{weight}{SCALES}", f"{weight}{ZERO_POINTS}")
    return [name for name in graph.initializers if stem(name) == weight and not name.startswith(others)]


def zero_points_of(graph: Graph, weight: str) -> list[str]:
    """The same of its zero points."""
    return [name for name in graph.initializers if name.startswith(f"{weight}{ZERO_POINTS}")]


def numbers(graph: Graph, weight: Weight) -> int:
    """How many numbers a weight stands for: codes that share a byte are several."""
    found = [one.bits for one in blocked(graph) if one.codes == weight.name]
    count = math.prod(weight.shape)
    return count * max(weight.bits // bits for bits in found) if found and all(found) else count


def rounds(graph: Graph) -> bool:
    """Whether activations are rounded to 8 bits before they are multiplied with some weight: where a node asks for it,
    and where a session fuses DequantizeLinear with MatMul, which it does so unless it is told otherwise."""
    return any(
        one.node.op_type == "DequantizeLinear" or attributes(one.node).get("accuracy_level") == ROUNDED
        for one in blocked(graph)
    )


def blocked(graph: Graph) -> tuple[Blocked, ...]:
    """Every weight in blocks, once for each node that reads it."""
    return once(graph, _blocked)


def _blocked(graph: Graph) -> tuple[Blocked, ...]:
    return tuple(_found(graph))


def _found(graph: Graph) -> Iterator[Blocked]:
    for node in graph.nodes:
        if (reader := _READERS.get((node.domain, node.op_type))) and (read := reader(graph, node)):
            yield read


def _multiplied(graph: Graph, node: NodeProto) -> Blocked:
    """MatMulNBits: activations, codes [N, blocks, bytes], scales, zero points."""
    said = attributes(node)
    return Blocked(node, *_three(node, 1, 2, 3), _whole(said, "bits", 4), _whole(said, "block_size", 0),
                   _whole(said, "N", 0), _whole(said, "K", 0))  # fmt: skip


def _flat(graph: Graph, node: NodeProto) -> Blocked:
    """MatMulBnb4: activations, codes, absolute maxima; blocks over the whole weight."""
    said = attributes(node)
    return Blocked(node, *_three(node, 1, 2, 3), 4, _whole(said, "block_size", 0),
                   _whole(said, "N", 0), _whole(said, "K", 0), flat=True)  # fmt: skip


def _gathered(graph: Graph, node: NodeProto) -> Blocked:
    """GatherBlockQuantized: codes, ids, scales, zero points. Codes of uint8 fill their bytes."""
    said = attributes(node)
    bits = _whole(said, "bits", 4)
    names = _three(node, 0, 2, 3)
    table = graph.initializers.get(names[0])
    rows = columns = None
    if table is not None and len(table.shape) == 2:
        rows, columns = table.shape[0], table.shape[1] * (table.bits // bits if bits else 1)
    return Blocked(node, *names, bits, _whole(said, "block_size", 128), rows, columns)


def _dequantized(graph: Graph, node: NodeProto) -> Blocked | None:
    """DequantizeLinear with a block size: codes, scales, zero points, blocks along an axis."""
    said, names = attributes(node), _three(node, 0, 1, 2)
    block, table = _whole(said, "block_size", 0), graph.initializers.get(names[0])
    if not block or table is None:
        return None
    axis, shape = _whole(said, "axis", 1), table.shape
    across = len(shape) == 2 and axis in (0, -2)
    rows, columns = (None, None) if len(shape) != 2 else shape[::-1] if across else shape
    return Blocked(node, *names, table.bits, block, rows, columns, across=across)


def _unpacked(graph: Graph, node: NodeProto) -> Blocked | None:
    """Gather of the codes of a table, with scales beside it that are gathered alike."""
    codes = given(node, 0)
    table, scales = graph.initializers.get(codes), graph.initializers.get(f"{stem(codes)}{SCALES}")
    if table is None or scales is None or table.bits != 8 or len(scales.shape) != 2 or codes == scales.name:
        return None
    if codes not in codes_of(graph, stem(codes)) or not _gathers(graph, scales.name):
        return None
    zero_points = next(iter(zero_points_of(graph, stem(codes))), "")
    names = codes, scales.name, zero_points
    if len(table.shape) == 2 and not attributes(node).get("axis", 0):
        apart = any(user.op_type in _UNPACKING for user in graph.consumers.get(node.output[0], ()))
        bits = 4 if apart else 8
        columns = table.shape[1] * 8 // bits
        return Blocked(node, *names, bits, _block(columns, scales.shape[1]), table.shape[0], columns)
    bits = 8 if len(table.shape) == 2 else 4
    rows = scales.shape[1]
    columns = math.prod(table.shape) * 8 // bits // max(rows, 1)
    return Blocked(node, *names, bits, _block(columns, scales.shape[0]), rows, columns, across=True)


def _gathers(graph: Graph, name: str) -> bool:
    return any(user.op_type == "Gather" for user in graph.consumers.get(name, ()))


def _block(columns: int, blocks: int) -> int:
    """The least block of which a row of so many numbers has so many; 0 where there is none."""
    return next((1 << i for i in range(4, 16) if -(-columns // (1 << i)) == blocks), 0)


def _three(node: NodeProto, *places: int) -> tuple[str, str, str]:
    codes, scales, zero_points = (given(node, place) for place in places)
    return codes, scales, zero_points


def _whole(said: Mapping[str, Any], key: str, default: int) -> int:
    value = said.get(key, default)
    return value if isinstance(value, int) else default


_Reader = Callable[[Graph, NodeProto], Blocked | None]
_READERS: Mapping[tuple[str, str], _Reader] = {
    ("com.microsoft", "MatMulNBits"): _multiplied,
    ("com.microsoft", "MatMulBnb4"): _flat,
    ("com.microsoft", "GatherBlockQuantized"): _gathered,
    ("", "DequantizeLinear"): _dequantized,
    ("", "Gather"): _unpacked,
}
