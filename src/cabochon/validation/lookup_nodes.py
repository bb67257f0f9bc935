"""How a graph looks tokens up: its table, or the tables that hold the rows of one, and what rows are multiplied by."""

import re
from collections.abc import Iterable

import numpy as np

from cabochon.validation.graph import Graph

__all__ = ["TABLE", "factor", "token_tables"]

TABLE = "model.embed_tokens.weight"  # the name that the tables of cabochon's packages have
_ROWS = re.compile(r"model\.embed_tokens\.rows(\d+)\.weight")  # or the tables that hold its rows


def token_tables(graph: Graph) -> list[str]:
    """The initializers that hold the rows of the token table, in their order; one where nothing asked for several."""
    parts = {int(found[1]): name for name in graph.initializers if (found := _ROWS.fullmatch(name))}
    return [TABLE] if TABLE in graph.initializers else [parts[first] for first in sorted(parts)]


def factor(graph: Graph, table: str) -> float | None:
    """The constant that rows of a table are multiplied by, after a choice between tables where there are several."""
    values = [
        name for node in graph.consumers.get(table, ()) if node.op_type == "Gather" for name in node.output
    ]
    for name in values:  # grows while it is walked
        for node in graph.consumers.get(name, ()):
            if node.op_type == "Where":
                values += node.output
            elif node.op_type == "Mul" and (found := _number(graph, node.input)) is not None:
                return found
    return None


def _number(graph: Graph, names: Iterable[str]) -> float | None:
    values = (graph.inline(name) for name in names)
    found = [value for value in values if value is not None and value.size == 1]
    return float(np.asarray(found[0]).astype(np.float64).reshape(-1)[0]) if found else None
