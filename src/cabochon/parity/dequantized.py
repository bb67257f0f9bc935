"""The weights that the blocks of a package stand for, by name: what its reference runs on.

A weight may be stored in parts (a table per layer, tables of some rows), and one table may be read in two ways: looked
up, and multiplied with as the head of the decoder.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cabochon.parity.blocks import Blocks, read_blocks
from cabochon.parity.graph_bytes import GraphBytes

__all__ = ["Dequantized", "Weight", "read_dequantized"]

HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"
ROWS = re.compile(r"\.rows(\d+)(?=\.weight$|$)")
LAYER = re.compile(r"(embed_tokens_per_layer)\.(\d+)\.weight$")


@dataclass(frozen=True)
class Weight:
    """One weight as its nodes read it. parts: by layer and first row; (0, 0) alone where it is stored whole."""

    name: str
    multiplied: bool
    parts: Mapping[tuple[int, int], Blocks]

    @property
    def rounding(self) -> int | None:
        """The blocks in which its kernel rounds what it multiplies to int8; None where it does not."""
        return next((part.block for part in self.parts.values() if part.rounds), None)

    def values(self, shape: tuple[int, ...]) -> np.ndarray:
        """f32, in the shape that the checkpoint has: rows may be stored by layer, and end with what fills a block."""
        layers = sorted({layer for layer, _ in self.parts})
        tables = [self._layer(layer) for layer in layers]
        columns = int(np.prod(shape)) // sum(len(table) for table in tables)
        return np.concatenate([table[:, :columns] for table in tables], axis=1).reshape(shape)

    def _layer(self, layer: int) -> np.ndarray:
        rows = sorted(row for at, row in self.parts if at == layer)
        return np.concatenate([self.parts[layer, row].values() for row in rows])


@dataclass(frozen=True)
class Dequantized:
    """All weights in blocks of a package's graphs; none of a package that has none.

    head_floats: the head is a floating weight of its own, whatever the table is that it was tied to.
    """

    weights: tuple[Weight, ...] = ()
    head_floats: bool = False

    @property
    def rounds(self) -> bool:
        """True where any kernel rounds what it multiplies."""
        return any(weight.rounding for weight in self.weights)

    @property
    def kinds(self) -> list[str]:
        """In words, what there is: "4 bits in blocks of 32: 70 weights"."""
        found: dict[str, int] = {}
        for weight in self.weights:
            part = next(iter(weight.parts.values()))
            kind = f"{part.bits} bits in blocks of {part.block}"
            found[kind] = found.get(kind, 0) + 1
        return [f"{kind}: {count} weights" for kind, count in sorted(found.items())]

    def place(self, shapes: Mapping[str, tuple[int, ...]]) -> "Iterable[tuple[str, np.ndarray]]":
        """Name and f32 values of every weight, in the shapes of a checkpoint's.

        A table that is looked up and multiplied comes once; twice, the second time as the head, where the two ways to
        read it give other numbers.
        """
        read = {(weight.name, weight.multiplied): weight for weight in self.weights}
        for (name, multiplied), weight in read.items():
            if (name, multiplied) != (TABLE, True) or (TABLE, False) not in read:
                yield name, weight.values(shapes.get(name) or shapes[TABLE])
        if (TABLE, True) in read and (TABLE, False) in read:
            head, table = (read[TABLE, way].values(shapes[TABLE]) for way in (True, False))
            if not np.array_equal(head, table):
                yield HEAD, head


def read_dequantized(*graphs: Path) -> Dequantized:
    """The weights in blocks of graphs that belong together. Raises ParityError for a form that is not known."""
    found: dict[tuple[str, bool], dict[tuple[int, int], Blocks]] = {}
    stored = set[str]()
    for graph in graphs:
        stored |= GraphBytes(graph.parent, graph.name).names
        for blocks in read_blocks(graph.parent, graph.name):
            name, at = _place(blocks.weight)
            found.setdefault((name, blocks.multiplied), {}).setdefault(at, blocks)
    head_floats = (HEAD, True) not in found and HEAD in {ROWS.sub("", name) for name in stored}
    return Dequantized(tuple(Weight(*key, parts) for key, parts in found.items()), head_floats)


def _place(name: str) -> tuple[str, tuple[int, int]]:
    """The weight that a stored one is a part of, the layer and the first row of the part."""
    row = ROWS.search(name)
    name = ROWS.sub("", name)
    layer = LAYER.search(name)
    whole = LAYER.sub(r"\1.weight", name)
    return whole, (int(layer[2]) if layer else 0, int(row[1]) if row else 0)
