"""The tensors of a graph as their bytes are stored, and the numbers that codes, scales and zero points stand for.

Legend: N rows · K columns · B blocks of a row.
"""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.errors import ParityError
from cabochon.parity.widened import _graphs, read_graph

__all__ = ["GraphBytes", "codes_of", "numbers", "signed", "zeros_of"]


class GraphBytes:
    """The nodes of a graph and its bytes."""

    def __init__(self, folder: Path, name: str) -> None:
        self.at, self._folder = str(folder / name), folder
        graph = read_graph(folder, name).graph
        self.nodes = [node for each in _graphs(graph) for node in each.node]
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}

    @cached_property
    def readers(self) -> Mapping[str, list[Any]]:
        """The nodes that read a value."""
        found: dict[str, list[Any]] = {}
        for node in self.nodes:
            for name in node.input:
                found.setdefault(name, []).append(node)
        return found

    @property
    def names(self) -> set[str]:
        """Of all tensors that are stored."""
        return set(self._tensors)

    def has(self, name: str) -> bool:
        """True for a tensor that is stored."""
        return name in self._tensors

    def array(self, name: str) -> np.ndarray:
        """A stored tensor; two of four bits in a byte, as they stand there."""
        import onnx

        tensor = self._tensors[name]
        if not tensor.external_data:
            array = onnx.numpy_helper.to_array(tensor)
            return _paired(array.astype(np.uint8) & 15) if self.packed(name) else array
        dtype, shape = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type), self.shape(name)
        if self.packed(name):
            dtype, shape = np.dtype(np.uint8), ((int(np.prod(shape)) + 1) // 2,)
        entry = {item.key: item.value for item in tensor.external_data}
        path = self._folder / entry["location"]
        try:
            return np.memmap(path, dtype, "r", int(entry.get("offset", 0)), shape)
        except (OSError, ValueError) as error:  # absent, or shorter than that
            raise ParityError(
                f"does not hold the tensor {name} of model.onnx: {error}", at=str(path)
            ) from error

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
        found = codes_of(array[None], 4)[0, : int(np.prod(shape))].reshape(shape)
        return signed(found, 4) if self._tensors[name].data_type == TensorProto.INT4 else found

    def shape(self, name: str) -> tuple[int, ...]:
        """As it is declared."""
        return tuple(self._tensors[name].dims)

    def refuse(self, node: Any, found: str, expected: str) -> ParityError:
        """The error for a form that is not read here."""
        return ParityError(f"{node.op_type} {node.name}: {found}; expected {expected}", at=self.at)


def codes_of(packed: np.ndarray, bits: int) -> np.ndarray:
    """u8 [N, bytes] -> i32 [N, codes]"""
    if bits == 8:
        return packed.astype(np.int32)
    return np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1).astype(np.int32)


def signed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes that are two's complements."""
    half = 1 << bits - 1
    return (codes ^ half) - half


def _paired(codes: np.ndarray) -> np.ndarray:
    """Codes of four bits, two in a byte: the inverse of `codes_of` for one row."""
    flat = np.append(codes.reshape(-1), np.zeros(codes.size % 2, np.uint8))
    return flat[::2] | flat[1::2] << 4


def zeros_of(graph: GraphBytes, name: str, rows: int, bits: int) -> np.ndarray:
    """Zero points [N, B or more]; where none are stored, half the range."""
    if not name:
        return np.full((1, 1), 1 << bits - 1, np.int32)
    return codes_of(graph.array(name).reshape(rows, -1), bits)


def numbers(codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray, block: int) -> np.ndarray:
    """(code - zero point) · scale, exact in f32.   codes [N, K], scales [N, B], zeros [N, B or more] or [1, 1]"""
    count = codes.shape[1]

    def spread(each: np.ndarray) -> np.ndarray:
        return each if each.size == 1 else np.repeat(each[:, : scales.shape[1]], block, 1)[:, :count]

    return ((codes - spread(zeros)) * spread(scales.astype(np.float32))).astype(np.float32)
