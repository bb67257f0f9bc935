"""The rules on what ties a drafter to its target beside the document: the look-up of tokens, and the window."""

from collections.abc import Iterator

from cabochon.validation.drafting import EMBEDDING, drafted
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.lookup_nodes import TABLE, factor, parts, token_tables
from cabochon.validation.opened import DECODER, FED, LOOKUP, TARGET, Opened
from cabochon.validation.rules import Found, rule

__all__: list[str] = []

NEEDS = ("graphs",)


def _target(package: Opened) -> Graph | None:
    """The target of a pair."""
    found = (package.graphs.get(f"{TARGET}/{name}") for name in (DECODER, FED))
    return next(filter(None, found), None) if drafted(package) else None


def _looking_up(package: Opened) -> Graph | None:
    """The graph of the target that looks tokens up: its embedding where it has one."""
    embedding = package.graphs.get(f"{TARGET}/{LOOKUP}")
    return embedding if embedding and drafted(package) else _target(package)


@rule("SPC016", Severity.ERROR, NEEDS)
def other_rows_looked_up(package: Opened) -> Iterator[Found]:
    """token_embedding.onnx gives other rows than the target looks up.

    Causes: it was left out of a copy; the target was replaced; its table or its scale is that of another build. What
    the drafter then proposes is fluent, and nearly all of it is refused.
    Remedy: build the pair again: the look-up is cut out of the target's own graph.
    """
    target, own = _looking_up(package), package.graphs.get(EMBEDDING)
    if target is None:
        return
    if own is None:
        if not package.faults.get("FIL011"):
            yield Found(EMBEDDING, "no such graph", "the look-up of the target's tokens")
        return
    tables = token_tables(target) or [TABLE]
    for part in _looked_up(target, tables) or tables:
        places = [_place(graph, part) for graph in (own, target)]
        if places[0] != places[1]:
            yield Found(
                f"{EMBEDDING}: {part}", _spelled(places[0]), f"{_spelled(places[1])}, as the target has it"
            )
    scale, real = factor(own, tables[0]), factor(target, tables[0])
    if real is not None and scale != real:
        yield Found(f"{EMBEDDING}: rows", f"times {scale}", f"times {real}, as the target")


def _looked_up(graph: Graph, tables: list[str]) -> list[str]:
    """The initializers that rows come from: the tables, or codes, scales and zero points of tables in blocks."""
    found = [part for table in tables for part in parts(graph, table)]
    return [
        part for part in found if any(n.op_type.startswith("Gather") for n in graph.consumers.get(part, ()))
    ]


Place = tuple[str, str, int, tuple[int, ...], str]


def _place(graph: Graph, name: str) -> Place | None:
    """Where a table lies: the file by its path in the package, offset, length; its shape and type."""
    table = graph.initializers.get(name)
    if table is None or table.external is None:
        return None
    location = (graph.folder() / (table.external.location or "")).as_posix()
    return location, table.external.offset or "0", table.nbytes, table.shape, table.dtype


def _spelled(place: Place | None) -> str:
    if place is None:
        return "no table outside of the graph"
    location, offset, nbytes, shape, dtype = place
    return f"{dtype} {list(shape)}, {nbytes} bytes at {offset} of {location}"


@rule("SPC017", Severity.ERROR, NEEDS)
def windows_differ(package: Opened) -> Iterator[Found]:
    """The drafter was built for a window that its target does not have.

    Causes: the assistant of another model with the same sizes; one of both graphs was replaced.
    Remedy: build the pair again, from the assistant that was made for this target.
    """
    found, target = drafted(package), _target(package)
    if found is None or target is None:
        return
    real = target.properties.get("cabochon.sliding_window")
    if (said := found.graph.properties.get("cabochon.sliding_window")) != real:
        yield Found(f"{DECODER}: cabochon.sliding_window", str(said), f"{real}, as {target.path} says")
