"""Weights in blocks, read back from a graph by the nodes that read them: as what those operators make of the bytes.

Nothing here knows how a package was packed. A byte order, a zero point or a scale that is not what an operator takes
gives other numbers than the checkpoint's, here and in the operator.

Sources: the specifications of MatMulNBits, GatherBlockQuantized and MatMulBnb4 in onnxruntime's ContribOperators.md,
and of DequantizeLinear-23 in onnx. For rows that are unpacked by plain operators there is none but cabochon's own:
codes in the order of ONNX's uint4, with their scales and zero points under their own longer names.

Legend: N rows [out] · K columns [in] · B blocks of a row.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.parity.graph_bytes import GraphBytes, codes_of, numbers, signed, zeros_of

__all__ = ["Blocks", "read_blocks"]

NF4 = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
     -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
     0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0],
    np.float32,
)  # fmt: skip
"""The levels of a 4-bit normal float (Dettmers et al., QLoRA, 2023, appendix E)."""
ROUNDING = 4
"""The accuracy level of MatMulNBits whose kernel rounds what it multiplies to int8, in the blocks of the weight."""
ENDINGS = ("_blocks", "_bytes", "_codes")  # second shapes of one weight


@dataclass(frozen=True)
class Blocks:
    """A weight as one node reads it.

    weight: its name. multiplied: x · weightᵀ, else rows are looked up. rounds: the kernel rounds what it multiplies to
    int8, in blocks of `block`. values(): f32 [N, K]; K with the columns that fill up the last block, where only the
    shape of the result would tell.
    """

    weight: str
    multiplied: bool
    bits: int
    block: int
    rounds: bool
    values: Callable[[], np.ndarray]


def read_blocks(folder: Path, name: str = "model.onnx") -> Iterator[Blocks]:
    """Every weight in blocks, once for each node that reads it. Raises ParityError for a form that is unknown here."""
    graph = GraphBytes(folder, name)
    for node in graph.nodes:
        if reader := READERS.get(node.op_type):
            found = reader(graph, node)
            if found is not None:
                yield found


def _multiplied_in_blocks(graph: GraphBytes, node: Any) -> Blocks:
    """MatMulNBits: codes u8 [N, B, bytes], the first in the low bits; scales [N, B]; zero points u8 [N, bytes]."""
    said = _attributes(node)
    n, k, bits, block = (said[key] for key in ("N", "K", "bits", "block_size"))
    codes, scales, zeros = (*node.input[1:], "", "")[:3]
    if any(node.input[4:5]) or (zeros and graph.array(zeros).dtype != np.uint8):
        raise graph.refuse(node, "an order of groups, or zero points that are no codes", "neither")

    def values() -> np.ndarray:
        levels = codes_of(graph.array(codes).reshape(n, -1), bits)
        zero = zeros_of(graph, zeros, n, bits)
        return numbers(levels, graph.array(scales).reshape(n, -1), zero, block)[:, :k]

    rounds = said.get("accuracy_level", 0) == ROUNDING
    return Blocks(_weight(codes), True, bits, block, rounds, values)


def _looked_up_in_blocks(graph: GraphBytes, node: Any) -> Blocks:
    """GatherBlockQuantized: codes u8 [N, bytes], the first in the low bits; scales and zero points as above."""
    said = {"bits": 4, "block_size": 128, "gather_axis": 0, "quantize_axis": 1} | _attributes(node)
    codes, _, scales, zeros = (*node.input, "")[:4]
    axes = said["gather_axis"], said["quantize_axis"] % 2
    if axes != (0, 1) or graph.array(codes).dtype != np.uint8:
        raise graph.refuse(node, f"axes {axes} of codes {graph.array(codes).dtype}", "rows of uint8")
    bits, block = said["bits"], said["block_size"]

    def values() -> np.ndarray:
        rows = graph.array(codes)
        zero = zeros_of(graph, zeros, len(rows), bits)
        return numbers(codes_of(rows, bits), graph.array(scales), zero, block)

    return Blocks(_weight(codes), False, bits, block, False, values)


def _multiplied_nf4(graph: GraphBytes, node: Any) -> Blocks:
    """MatMulBnb4: codes of all of [N, K] in one row, the first in the high bits; a scale for each flat block."""
    said = _attributes(node)
    n, k, block = (said[key] for key in ("N", "K", "block_size"))
    if said["quant_type"] != 1:
        raise graph.refuse(node, f"quant_type {said['quant_type']}", "1, normal floats")
    codes, scales = node.input[1:3]

    def values() -> np.ndarray:
        packed = graph.array(codes).reshape(-1)
        levels = NF4[np.stack([packed >> 4, packed & 15], 1).reshape(-1)[: n * k]]
        each = np.repeat(graph.array(scales).astype(np.float32), block)[: n * k]
        return (levels * each).reshape(n, k)

    return Blocks(_weight(codes), True, 4, block, False, values)


def _dequantized(graph: GraphBytes, node: Any) -> Blocks | None:
    """DequantizeLinear before a MatMul: codes [K, N], scales and zero points [B, N]; fused, it rounds."""
    if not graph.has(node.input[0]):
        return None
    said = _attributes(node)
    if said.get("axis", 1) != 0 or {other.op_type for other in graph.readers[node.output[0]]} != {"MatMul"}:
        raise graph.refuse(node, f"axis {said.get('axis', 1)}", "blocks down the columns, for a MatMul")
    codes, scales, zeros = (*node.input, "")[:3]
    block = said["block_size"]

    def values() -> np.ndarray:
        zero = graph.levels(zeros).T if zeros else np.zeros((1, 1), np.int32)
        return numbers(graph.levels(codes).T, graph.array(scales).T, zero, block)

    return Blocks(_weight(codes), True, 4 if graph.packed(codes) else 8, block, True, values)


def _unpacked(graph: GraphBytes, node: Any) -> Blocks | None:
    """Gather of bytes: rows u8 [N, bytes], or what DequantizeLinear reads, [K, N], as bytes in a row or in columns."""
    codes = node.input[0]
    weight = _weight(codes)
    scales, zeros = f"{weight}_scales", f"{weight}_zero_points"
    if not graph.has(codes) or not graph.has(scales) or graph.array(codes).dtype != np.uint8:
        return None
    flat, across = len(graph.shape(codes)) == 1, _attributes(node).get("axis", 0) == 1
    bits = 4 if flat or {other.op_type for other in graph.readers[node.output[0]]} & HALVES else 8
    count = graph.shape(scales)[0 if flat or across else 1]
    if not flat and not across:
        block = graph.shape(codes)[1] * 8 // bits // count

        def along() -> np.ndarray:
            rows = graph.array(codes)
            zero = zeros_of(graph, zeros if graph.has(zeros) else "", len(rows), bits)
            return numbers(codes_of(rows, bits), graph.array(scales), zero, block)

        return Blocks(weight, False, bits, block, False, along)

    n = graph.shape(scales)[1]
    k = int(np.prod(graph.shape(codes))) * 8 // bits // n
    block = next(size for size in (16, 32, 64, 128) if -(-k // size) == count)

    def turned() -> np.ndarray:
        found = codes_of(graph.array(codes).reshape(1, -1), bits)[0, : k * n].reshape(k, n)
        if graph.has(zeros):
            points = codes_of(np.asarray(graph.array(zeros), np.uint8).reshape(1, -1), bits)[0, : count * n]
            return numbers(found.T, graph.array(scales).T, points.reshape(count, n).T, block)
        return numbers(signed(found, bits).T, graph.array(scales).T, np.zeros((1, 1), np.int32), block)

    return Blocks(weight, False, bits, block, False, turned)


READERS: Mapping[str, Callable[[GraphBytes, Any], Blocks | None]] = {
    "MatMulNBits": _multiplied_in_blocks,
    "GatherBlockQuantized": _looked_up_in_blocks,
    "MatMulBnb4": _multiplied_nf4,
    "DequantizeLinear": _dequantized,
    "Gather": _unpacked,
}
HALVES = {"BitwiseAnd", "BitShift"}


def _attributes(node: Any) -> dict[str, int]:
    return {attribute.name: attribute.i for attribute in node.attribute}


def _weight(codes: str) -> str:
    for ending in ENDINGS:
        codes = codes.removesuffix(ending)
    return codes
