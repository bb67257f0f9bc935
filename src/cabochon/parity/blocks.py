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
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.errors import ParityError
from cabochon.parity.widened import read_graph

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
    graph = _Graph(folder, name)
    for node in graph.nodes:
        if reader := READERS.get(node.op_type):
            found = reader(graph, node)
            if found is not None:
                yield found


class _Graph:
    """The nodes of a graph and its bytes."""

    def __init__(self, folder: Path, name: str) -> None:
        self.at, self._folder = str(folder / name), folder
        graph = read_graph(folder, name).graph
        self.nodes = list(graph.node)
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}

    @cached_property
    def readers(self) -> Mapping[str, list[Any]]:
        """The nodes that read a value."""
        found: dict[str, list[Any]] = {}
        for node in self.nodes:
            for name in node.input:
                found.setdefault(name, []).append(node)
        return found

    def has(self, name: str) -> bool:
        """True for a tensor that is stored."""
        return name in self._tensors

    def array(self, name: str) -> np.ndarray:
        """A stored tensor; two of four bits in a byte, as they stand there."""
        import onnx

        tensor = self._tensors[name]
        dtype = (
            np.dtype(np.uint8)
            if self.packed(name)
            else onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        )
        shape = tuple(tensor.dims) if not self.packed(name) else ((int(np.prod(tensor.dims)) + 1) // 2,)
        if not tensor.external_data:
            if self.packed(name) and tensor.raw_data:
                return np.frombuffer(tensor.raw_data, dtype)
            array = onnx.numpy_helper.to_array(tensor)
            return _paired(array.astype(np.uint8) & 15) if self.packed(name) else array
        entry = {item.key: item.value for item in tensor.external_data}
        return np.memmap(self._folder / entry["location"], dtype, "r", int(entry.get("offset", 0)), shape)

    def packed(self, name: str) -> bool:
        """True for codes of four bits in a type of their own."""
        from onnx import TensorProto

        return self._tensors[name].data_type in (TensorProto.UINT4, TensorProto.INT4)

    def levels(self, name: str) -> np.ndarray:
        """Codes i32, as many and in the shape that their type says."""
        from onnx import TensorProto

        array, shape = self.array(name), self.shape(name)
        if not self.packed(name):
            return array.astype(np.int32)
        found = _codes(array[None], 4)[0, : int(np.prod(shape))].reshape(shape)
        return _signed(found, 4) if self._tensors[name].data_type == TensorProto.INT4 else found

    def shape(self, name: str) -> tuple[int, ...]:
        """As it is declared."""
        return tuple(self._tensors[name].dims)

    def refuse(self, node: Any, found: str, expected: str) -> ParityError:
        """The error for a form that is not read here."""
        return ParityError(f"{node.op_type} {node.name}: {found}; expected {expected}", at=self.at)


def _multiplied_in_blocks(graph: _Graph, node: Any) -> Blocks:
    """MatMulNBits: codes u8 [N, B, bytes], the first in the low bits; scales [N, B]; zero points u8 [N, bytes]."""
    said = _attributes(node)
    n, k, bits, block = (said[key] for key in ("N", "K", "bits", "block_size"))
    codes, scales, zeros = (*node.input[1:], "", "")[:3]
    if any(node.input[4:5]) or (zeros and graph.array(zeros).dtype != np.uint8):
        raise graph.refuse(node, "an order of groups, or zero points that are no codes", "neither")

    def values() -> np.ndarray:
        levels = _codes(graph.array(codes).reshape(n, -1), bits)
        zero = _zeros(graph, zeros, n, bits)
        return _numbers(levels, graph.array(scales).reshape(n, -1), zero, block)[:, :k]

    rounds = said.get("accuracy_level", 0) == ROUNDING
    return Blocks(_weight(codes), True, bits, block, rounds, values)


def _looked_up_in_blocks(graph: _Graph, node: Any) -> Blocks:
    """GatherBlockQuantized: codes u8 [N, bytes], the first in the low bits; scales and zero points as above."""
    said = {"bits": 4, "block_size": 128, "gather_axis": 0, "quantize_axis": 1} | _attributes(node)
    codes, _, scales, zeros = (*node.input, "")[:4]
    axes = said["gather_axis"], said["quantize_axis"] % 2
    if axes != (0, 1) or graph.array(codes).dtype != np.uint8:
        raise graph.refuse(node, f"axes {axes} of codes {graph.array(codes).dtype}", "rows of uint8")
    bits, block = said["bits"], said["block_size"]

    def values() -> np.ndarray:
        rows = graph.array(codes)
        zero = _zeros(graph, zeros, len(rows), bits)
        return _numbers(_codes(rows, bits), graph.array(scales), zero, block)

    return Blocks(_weight(codes), False, bits, block, False, values)


def _multiplied_nf4(graph: _Graph, node: Any) -> Blocks:
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


def _dequantized(graph: _Graph, node: Any) -> Blocks | None:
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
        return _numbers(graph.levels(codes).T, graph.array(scales).T, zero, block)

    return Blocks(_weight(codes), True, 4 if graph.packed(codes) else 8, block, True, values)


def _unpacked(graph: _Graph, node: Any) -> Blocks | None:
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
            zero = _zeros(graph, zeros if graph.has(zeros) else "", len(rows), bits)
            return _numbers(_codes(rows, bits), graph.array(scales), zero, block)

        return Blocks(weight, False, bits, block, False, along)

    n = graph.shape(scales)[1]
    k = int(np.prod(graph.shape(codes))) * 8 // bits // n
    block = next(size for size in (16, 32, 64, 128) if -(-k // size) == count)

    def turned() -> np.ndarray:
        found = _codes(graph.array(codes).reshape(1, -1), bits)[0, : k * n].reshape(k, n)
        if graph.has(zeros):
            points = _codes(np.asarray(graph.array(zeros), np.uint8).reshape(1, -1), bits)[0, : count * n]
            return _numbers(found.T, graph.array(scales).T, points.reshape(count, n).T, block)
        return _numbers(_signed(found, bits).T, graph.array(scales).T, np.zeros((1, 1), np.int32), block)

    return Blocks(weight, False, bits, block, False, turned)


READERS: Mapping[str, Callable[[_Graph, Any], Blocks | None]] = {
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


def _codes(packed: np.ndarray, bits: int) -> np.ndarray:
    """u8 [N, bytes] -> i32 [N, codes]"""
    if bits == 8:
        return packed.astype(np.int32)
    return np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1).astype(np.int32)


def _signed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes that are two's complements."""
    half = 1 << bits - 1
    return (codes ^ half) - half


def _paired(codes: np.ndarray) -> np.ndarray:
    """Codes of four bits, two in a byte: the inverse of `_codes` for one row."""
    flat = np.append(codes.reshape(-1), np.zeros(codes.size % 2, np.uint8))
    return flat[::2] | flat[1::2] << 4


def _zeros(graph: _Graph, name: str, rows: int, bits: int) -> np.ndarray:
    """Zero points [N, B or more]; where none are stored, half the range."""
    if not name:
        return np.full((1, 1), 1 << bits - 1, np.int32)
    return _codes(graph.array(name).reshape(rows, -1), bits)


def _numbers(codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray, block: int) -> np.ndarray:
    """(code - zero point) · scale, exact in f32.   codes [N, K], scales [N, B], zeros [N, B or more] or [1, 1]"""
    count = codes.shape[1]

    def spread(each: np.ndarray) -> np.ndarray:
        return each if each.size == 1 else np.repeat(each[:, : scales.shape[1]], block, 1)[:, :count]

    return ((codes - spread(zeros)) * spread(scales.astype(np.float32))).astype(np.float32)
