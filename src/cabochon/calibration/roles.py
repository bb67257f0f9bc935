"""The weights that a recipe puts into blocks, by role: of an f32 text package, whose numbers they still are."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
import onnx

from cabochon.calibration.session import loops, products, row_products
from cabochon.dialects import TARGETS
from cabochon.gemma4.names import HEAD, LAYERS_TABLE, TABLE
from cabochon.packing import Scheme, pack, unpack
from cabochon.recipes import Precision, Table
from cabochon.recipes.addresses import address
from cabochon.runtime.folder import Folder

__all__ = ["Group", "groups", "rounded"]


@dataclass(frozen=True)
class Group:
    """Weights of one role: `tensors` by name. A table that is the head too has both addresses.

    A row is stored as rows of `width` numbers, None for all of it. `scattered`: only some rows of it are looked up.
    """

    addresses: tuple[str, ...]
    scheme: Scheme
    tensors: Mapping[str, onnx.TensorProto]
    width: int | None = None
    scattered: bool = False

    @property
    def parameters(self) -> int:
        """Their numbers."""
        return sum(prod(tensor.dims) for tensor in self.tensors.values())

    @property
    def nbytes(self) -> int:
        """Bytes in blocks, with scales and zero points."""
        return self._nbytes(self.scheme)

    @property
    def more(self) -> int:
        """Bytes that 8 bits would take more."""
        method = "round" if self.scheme.method == "nf4" else self.scheme.method
        return self._nbytes(replace(self.scheme, method=method, bits=8)) - self.nbytes

    def _nbytes(self, scheme: Scheme) -> int:
        return sum(
            _nbytes(prod(t.dims) // (self.width or t.dims[1]), self.width or t.dims[1], scheme)
            for t in self.tensors.values()
        )


def _nbytes(rows: int, columns: int, scheme: Scheme) -> int:
    if scheme.method == "nf4":
        rows, columns = 1, rows * columns
    blocks = scheme.blocks(columns)
    points = 0 if scheme.symmetric else -(-blocks * scheme.bits // 8)
    return rows * (blocks * (scheme.block * scheme.bits // 8 + scheme.scale_type.itemsize) + points)


def groups(graph: onnx.GraphProto, folder: Folder, precision: Precision) -> list[Group]:
    """What `precision` puts into blocks on a CPU, role by role.

    A tied head that it stores otherwise than the look-up becomes a weight of its own in `graph`.
    """
    stored = precision.on(TARGETS["default"].storage).fitted("decoder", {})
    if stored.scheme(HEAD) != stored.scheme(TABLE):
        _untie(graph)
    multiplied = {name for names in products(graph).values() for name in names}
    bodies = (body for _, body in loops(graph).values())
    experts = {name for body in bodies for names in row_products(graph, body).values() for name in names}
    tensors = {t.name: t for t in graph.initializer if t.name in {*multiplied, *experts, TABLE, LAYERS_TABLE}}
    width = folder.text_config.get("hidden_size_per_layer_input") or 0
    tables = {name: Table(tensors[name].dims[1], False, True) for name in experts}
    tables |= {TABLE: Table(tensors[TABLE].dims[1], TABLE in multiplied), LAYERS_TABLE: Table(width, False)}
    stored, found = stored.fitted("decoder", tables), dict[tuple[str, ...], Group]()
    for name, tensor in tensors.items():
        scheme = stored.scheme(name)
        if scheme is None:
            continue
        both = (address(HEAD, "decoder"),) if name == TABLE and TABLE in multiplied else ()
        key = (address(name, "decoder"), *both)
        before = found[key].tensors if key in found else {}
        split = width if name == LAYERS_TABLE else None
        scattered = name not in {*multiplied, *experts}
        found[key] = Group(key, scheme, {**before, name: tensor}, split, scattered)
    return list(found.values())


def _untie(graph: onnx.GraphProto) -> None:
    """Let a head that is the table be read under a name of its own."""
    for node in graph.node:
        if node.op_type == "FusedMatMul" and node.input[1] == TABLE:
            node.input[1] = HEAD
            head = graph.initializer.add()
            head.CopyFrom(next(tensor for tensor in graph.initializer if tensor.name == TABLE))
            head.name = HEAD


def rounded(
    group: Group, folder: Path, ids: Iterable[int], importance: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The weights by name, f32, as their blocks hold them. Of a table that is only looked up the rows `ids` alone:
    the others are zeros, which take no memory as nobody reads them."""
    rows = np.unique(np.fromiter(ids, np.int64)) if group.scattered else slice(None)
    found = dict[str, np.ndarray]()
    for name, tensor in group.tensors.items():
        values = _values(tensor, folder)[rows]
        found[name] = np.zeros(tuple(tensor.dims), np.float32)
        flat = values.reshape(-1, group.width or values.shape[1])
        packed = pack(flat, group.scheme, None if group.scattered else importance.get(name))
        found[name][rows] = unpack(packed, group.scheme, flat.shape[1]).reshape(values.shape)
    return found


def _values(tensor: onnx.TensorProto, folder: Path) -> np.ndarray:
    """Of a weight in its file: a view of it."""
    place = {entry.key: entry.value for entry in tensor.external_data}
    file, offset = folder / place["location"], int(place.get("offset") or 0)
    return np.memmap(file, np.float32, "r", offset, tuple(tensor.dims))
