"""How a graph looks tokens up: its table, or the tables that hold the rows of one, and what rows are multiplied by."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from onnx import NodeProto

from cabochon.validation.attention_nodes import shapes
from cabochon.validation.blocks import SCALES, blocked, stem
from cabochon.validation.graph import Graph
from cabochon.validation.registry import element_types

__all__ = ["TABLE", "Rows", "factor", "parts", "rows", "taken", "token_tables"]

TABLE = "model.embed_tokens.weight"  # the name that the tables of cabochon's packages have
# What stands between a table and its rows: the choice between several, and what unpacks numbers of four or eight bits.
_UNPACKED = {
    *("Where", "Slice", "Reshape", "Unsqueeze", "Squeeze", "Transpose", "Concat", "Identity"),
    *("BitwiseAnd", "BitwiseXor", "BitShift", "Cast", "CastLike", "Gather", "Sub", "Mul"),
}
_ROWS = re.compile(r"model\.embed_tokens\.rows(\d+)\.weight")  # or the tables that hold its rows


def token_tables(graph: Graph) -> list[str]:
    """The tables that hold the rows of the token table, in their order; one where nothing asked for several."""
    names = {stem(name) for name in graph.initializers}
    several = {int(found[1]): name for name in names if (found := _ROWS.fullmatch(name))}
    return [TABLE] if TABLE in names else [several[first] for first in sorted(several)]


def parts(graph: Graph, table: str) -> list[str]:
    """The initializers that hold a table: itself, or what is stored of one in blocks."""
    return [name for name in graph.initializers if stem(name) == table]


@dataclass(frozen=True)
class Rows:
    """Rows of a table as a graph takes them: how many there are, the numbers of one, their type by numpy's name."""

    count: int | None
    width: int | None
    dtype: str


def rows(graph: Graph, table: str) -> Rows | None:
    """The rows of a table; None where there is no such table, or none of two dimensions."""
    scales = graph.initializers.get(f"{table}{SCALES}")
    if scales is None:
        weight = graph.initializers.get(table)
        if weight is None or len(weight.shape) != 2:
            return None
        row = next((name for name, _ in _scaled(graph, table)), "")  # which may be cast behind the table
        return Rows(*weight.shape, element_types(graph).get(row, weight.dtype))
    row = next((name for name, _ in _scaled(graph, table)), None) or next(iter(taken(graph, table)), "")
    width = (shapes(graph).get(row) or (None,))[-1]
    count = scales.shape[1 if _lies_across(graph, table) else 0] if len(scales.shape) == 2 else None
    return Rows(count, width, element_types(graph).get(row, scales.dtype))


def _lies_across(graph: Graph, table: str) -> bool:
    """Whether a row is a column of what is stored."""
    return any(one.across and one.name == table for one in blocked(graph))


def taken(graph: Graph, table: str) -> list[str]:
    """The values that hold rows of a table: as they are gathered, unpacked, chosen between several tables."""
    values = [
        name
        for part in parts(graph, table)
        for node in graph.consumers.get(part, ())
        if node.op_type.startswith("Gather") and node.input[0] == part
        for name in node.output
    ]
    for name in values:  # grows while it is walked
        for node in graph.consumers.get(name, ()):
            if node.op_type in _UNPACKED and _number(graph, node) is None:
                values += (made for made in node.output if made not in values)
    return values


def factor(graph: Graph, table: str) -> float | None:
    """The constant that rows of a table are multiplied by, after a choice between tables where there are several."""
    return next((number for _, number in _scaled(graph, table)), None)


def _scaled(graph: Graph, table: str) -> Iterator[tuple[str, float]]:
    """The rows as they are before they are multiplied by a constant, and that."""
    for name in taken(graph, table):
        for node in graph.consumers.get(name, ()):
            if (number := _number(graph, node)) is not None:
                yield name, number


def _number(graph: Graph, node: NodeProto) -> float | None:
    """The one number among the inputs of a product."""
    values = (graph.inline(name) for name in node.input) if node.op_type == "Mul" else ()
    found = [value for value in values if value is not None and value.size == 1]
    return float(np.asarray(found[0]).astype(np.float64).reshape(-1)[0]) if found else None
