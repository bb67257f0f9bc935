"""The rules on what a chained proposer is fed: looked-up rows beside a carry."""

from collections.abc import Iterator

from cabochon.metadata.document import Chained
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.lookup_nodes import Rows, factor, parts, rows, taken, token_tables
from cabochon.validation.opened import LOOKUP, Opened
from cabochon.validation.pair import Pair, last, pairs
from cabochon.validation.rules import Found, rule

__all__: list[str] = []

NEEDS = ("document", "graphs")
SCALE_CLOSE = 1e-3  # relative: the scale may be rounded to bf16, the constant to f16


@rule("SPC003", Severity.ERROR, NEEDS)
def chain_incomplete(package: Opened) -> Iterator[Found]:
    """A chained proposer lacks a part of what feeds it.

    Causes: the carry is folded into the embedding, but its seed, its table or its destination was left out; the seed or
    the table is of another component than the target.
    Remedy: folded_carry_output needs folded_carry_seed and token_embedding of the target, and port_bindings with
    target_hidden_context equal to token_embedding_input.
    """
    for pair in pairs(package):
        if chain := pair.chained:
            yield from _lacking(pair, chain)


def _lacking(pair: Pair, chain: Chained) -> Iterator[Found]:
    at, target = pair.at("proposal_execution"), pair.said.target
    if not chain.folded_carry_output:
        if not chain.recurrent:
            yield Found(at, "neither recurrent nor folded_carry_output", "one of both")
        return
    context = pair.said.port_bindings.get("target_hidden_context")
    if context != chain.token_embedding_input:
        expected = f"{chain.token_embedding_input!r}, as token_embedding_input"
        yield Found(pair.at("port_bindings.target_hidden_context"), repr(context), expected)
    for name, part in (
        ("folded_carry_seed", chain.folded_carry_seed),
        ("token_embedding", chain.token_embedding),
    ):
        if part is None:
            yield Found(at, f"no {name}", f"{name} of {target}")
        elif part.component != target and not (name == "token_embedding" and _feeds(pair, part.component)):
            yield Found(f"{at}.{name}.component", repr(part.component), repr(target))


def _feeds(pair: Pair, component: str) -> bool:
    """Whether a component looks tokens up for a target without a table: one whose head is another weight."""
    graph, target = (pair.document.graphs.get(name) for name in (component, pair.said.target))
    if graph is None or target is None:
        return False
    return graph.path == (target.folder().parent / LOOKUP).as_posix() and not token_tables(target)


@rule("SPC004", Severity.ERROR, NEEDS)
def table_unknown(package: Opened) -> Iterator[Found]:
    """token_embedding.table is no embedding table of the target.

    Causes: the name of another checkpoint's tensor; a constant of the graph was taken.
    Remedy: name the initializer [vocabulary, hidden] that the target looks tokens up in.
    """
    for pair in pairs(package):
        if not (chain := pair.chained) or not chain.token_embedding:
            continue
        graph = pair.document.graphs.get(chain.token_embedding.component)
        at = pair.at("proposal_execution.token_embedding.table")
        if graph:
            beside = package.graphs.get((graph.folder().parent / LOOKUP).as_posix())
            yield from _table(at, chain.token_embedding.table, graph, beside)


def _table(at: str, name: str, graph: Graph, beside: Graph | None) -> Iterator[Found]:
    """`beside`: the embedding of a decoder that another graph feeds; its table is the head's too."""
    found, vocabulary = rows(graph, name), last(graph.ports.outputs.get("logits"))
    if not parts(graph, name):
        yield Found(at, repr(name), f"an initializer of {graph.path}")
    elif found is None or vocabulary not in (None, _rows(graph, name)):
        shapes = ", ".join(str(list(graph.initializers[part].shape)) for part in parts(graph, name))
        yield Found(at, f"{name!r} of shape {shapes}", f"[{vocabulary or 'vocabulary'}, hidden]")
    elif not any(taken(each, name) for each in (graph, beside) if each):
        yield Found(at, f"{name!r}, in which {graph.path} looks nothing up", "the table of the token ids")


def _rows(graph: Graph, name: str) -> int | None:
    """The rows of a table; of one that is the first of several, of all of them."""
    tables = token_tables(graph)
    together = tables if tables[:1] == [name] else [name]
    counts = [found.count for each in together if (found := rows(graph, each)) and found.count is not None]
    return sum(counts) if len(counts) == len(together) else None


@rule("SPC005", Severity.ERROR, NEEDS)
def seed_is_no_hidden_state(package: Opened) -> Iterator[Found]:
    """The seed of the carry is not a hidden state of the target.

    Causes: the logits were named; an output of another width.
    Remedy: the seed is an output [batch, positions, hidden] of the target, as wide as what the proposer folds back.
    """
    for pair in pairs(package):
        if not (chain := pair.chained) or not (port := pair.output(chain.folded_carry_seed)):
            continue
        at = pair.at("proposal_execution.folded_carry_seed")
        role = _role(pair, port.name)
        back = pair.proposer.ports.outputs.get(chain.folded_carry_output or "") if pair.proposer else None
        if role not in (None, "hidden_states"):
            yield Found(at, f"{port.name!r}, the {role}", "an output with the role hidden_states")
        elif len(port.shape) != 3:
            yield Found(at, f"{port.name!r} of rank {len(port.shape)}", "[batch, positions, hidden]")
        elif back and last(back) != last(port):
            yield Found(at, f"{port.name!r}, {last(port)} wide", f"{last(back)}, the width of {back.name!r}")
        elif back and back.dtype != port.dtype:
            yield Found(at, f"{port.name!r} of {port.dtype}", f"{back.dtype}, the type of {back.name!r}")


def _role(pair: Pair, port: str) -> str | None:
    component = pair.document.workflow.components.get(pair.said.target)
    return component.ports.roles.get(port) if component else None


@rule("SPC006", Severity.ERROR, NEEDS)
def fused_width_differs(package: Opened) -> Iterator[Found]:
    """The proposer's fused input does not fit an embedding beside a carry.

    Causes: the width was taken from one half; table, carry or input are of another model or type.
    Remedy: the input is as wide as the table's rows and the carry together, and of their type.
    """
    for pair in pairs(package):
        if not (chain := pair.chained) or not chain.folded_carry_output or not pair.proposer:
            continue
        port = pair.proposer.ports.inputs.get(chain.token_embedding_input)
        carry = pair.proposer.ports.outputs.get(chain.folded_carry_output)
        at = pair.at("proposal_execution.token_embedding_input")
        table = _table_of(pair, chain)
        hidden = last(carry) if carry else None
        if port and table and table.width and hidden and last(port) != table.width + hidden:
            expected = f"{table.width + hidden}: a row of {table.width} and a carry of {hidden}"
            yield Found(at, f"{port.name!r}, {last(port)} wide", expected)
        if port and table and table.dtype != port.dtype:
            yield Found(at, f"{port.name!r} of {port.dtype}", f"{table.dtype}, the type of the table")


def _table_of(pair: Pair, chain: Chained) -> Rows | None:
    """The table that the proposer's tokens are looked up in."""
    said = chain.token_embedding
    graph = pair.document.graphs.get(said.component) if said else None
    return rows(graph, said.table) if graph and said else None


@rule("SPC007", Severity.ERROR, NEEDS)
def scale_differs(package: Opened) -> Iterator[Found]:
    """The scale of the looked-up rows is not the one that the target multiplies by.

    Causes: the scale was left out: the proposer is then fed rows that are too small, and everything it proposes is
    rejected. (The form v1 has no key for it; a reader must take it from the target's graph.)
    Remedy: state the constant that the target's graph multiplies the rows by: √hidden, rounded to its type.
    """
    for pair in pairs(package):
        if (
            not (chain := pair.chained)
            or not chain.token_embedding
            or pair.document.document.schema_version == "v1"
        ):
            continue
        graph = pair.document.graphs.get(chain.token_embedding.component)
        real = factor(graph, chain.token_embedding.table) if graph else None
        said = chain.token_embedding.scale if chain.token_embedding.scale is not None else 1.0
        if real is not None and abs(said - real) > SCALE_CLOSE * abs(real):
            at = pair.at("proposal_execution.token_embedding.scale")
            yield Found(at, f"{said}", f"{real}, the constant after the look-up")
