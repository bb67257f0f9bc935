"""The rules on speculation: proposer and target against their graphs, the cells that must roll back, the carry."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cabochon.metadata.document import Alias, Chained, Speculative, ValueRef
from cabochon.metadata.ports import Port
from cabochon.validate.described import Described, described
from cabochon.validate.findings import Severity
from cabochon.validate.graph import Graph
from cabochon.validate.opened import Opened
from cabochon.validate.rules import Found, rule

__all__: list[str] = []

NEEDS = ("document", "graphs")
SCALE_CLOSE = 1e-3  # relative: the scale may be rounded to bf16, the constant to f16


@dataclass(frozen=True)
class Pair:
    """The speculative section of a document with the graphs of proposer and target, where they could be read."""

    document: Described
    said: Speculative
    proposer: Graph | None
    target: Graph | None

    def at(self, *path: str) -> str:
        """The address of a place in the section."""
        return ".".join((f"{self.document.name}: speculative", *path))

    @property
    def chained(self) -> Chained | None:
        """How proposals are chained; None for another kind."""
        return self.said.proposal_execution if isinstance(self.said.proposal_execution, Chained) else None

    def output(self, reference: ValueRef | None) -> Port | None:
        """The port that a reference names."""
        graph = self.document.graphs.get(reference.component) if reference else None
        return graph.ports.outputs.get(reference.output) if graph and reference else None


def pairs(package: Opened) -> Iterator[Pair]:
    """Every speculative section."""
    for document in described(package):
        if said := document.document.speculative:
            graphs = document.graphs
            yield Pair(document, said, graphs.get(said.proposer), graphs.get(said.target))


def last(port: Port | None) -> int | None:
    """The last dimension, where it is a number."""
    size = port.shape[-1] if port and port.shape else None
    return size if isinstance(size, int) else None


@rule("SPC001", Severity.ERROR, NEEDS)
def component_unknown(package: Opened) -> Iterator[Found]:
    """Proposer or target is no component of the workflow.

    Causes: a component was renamed.
    Remedy: name two components that are graphs.
    """
    for pair in pairs(package):
        for role, name in (("proposer", pair.said.proposer), ("target", pair.said.target)):
            if name not in pair.document.workflow.components:
                yield Found(
                    pair.at(role), f"{name!r}", "one of " + ", ".join(pair.document.workflow.components)
                )
        if pair.said.proposer == pair.said.target:
            yield Found(
                pair.at("proposer"), f"{pair.said.proposer!r}, which is the target", "another component"
            )


@rule("SPC002", Severity.ERROR, NEEDS)
def port_unknown(package: Opened) -> Iterator[Found]:
    """The section names a port that the graph does not have.

    Causes: a port was renamed; the section was written for another proposer.
    Remedy: name ports of the proposer's and the target's graph.
    """
    for pair in pairs(package):
        for where, port, graph, side in _named_ports(pair):
            real = (graph.ports.inputs if side == "input" else graph.ports.outputs) if graph else None
            if real is not None and graph and port not in real:
                yield Found(pair.at(where), f"{port!r}", f"an {side} of {graph.path}")


def _named_ports(pair: Pair) -> Iterator[tuple[str, str, Graph | None, str]]:
    """Where a port is named, its name, the graph that must have it, and on which side."""
    for role, port in pair.said.port_bindings.items():
        yield f"port_bindings.{role}", port, pair.proposer, "input"
    if chain := pair.chained:
        here = "proposal_execution"
        yield f"{here}.token_embedding_input", chain.token_embedding_input, pair.proposer, "input"
        yield f"{here}.logits_output", chain.logits_output, pair.proposer, "output"
        if chain.folded_carry_output:
            yield f"{here}.folded_carry_output", chain.folded_carry_output, pair.proposer, "output"
        if seed := chain.folded_carry_seed:
            yield f"{here}.folded_carry_seed", seed.output, pair.document.graphs.get(seed.component), "output"
    if said := pair.said.verification:
        graph = pair.document.graphs.get(said.target_output.component)
        yield "verification.target_output", said.target_output.output, graph, "output"


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
        elif part.component != target:
            yield Found(f"{at}.{name}.component", repr(part.component), repr(target))


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
            yield from _table(at, chain.token_embedding.table, graph)


def _table(at: str, name: str, graph: Graph) -> Iterator[Found]:
    weight, vocabulary = graph.initializers.get(name), last(graph.ports.outputs.get("logits"))
    if weight is None:
        yield Found(at, repr(name), f"an initializer of {graph.path}")
    elif len(weight.shape) != 2 or vocabulary not in (None, weight.shape[0]):
        yield Found(at, f"{name!r} of shape {list(weight.shape)}", f"[{vocabulary or 'vocabulary'}, hidden]")
    elif not any(node.op_type.startswith("Gather") for node in graph.consumers.get(name, ())):
        yield Found(at, f"{name!r}, in which {graph.path} looks nothing up", "the table of the token ids")


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
        table = _weight(pair, chain)
        if port and carry and table and (hidden := last(carry)) and last(port) != table[1] + hidden:
            expected = f"{table[1] + hidden}: a row of {table[1]} and a carry of {hidden}"
            yield Found(at, f"{port.name!r}, {last(port)} wide", expected)
        if port and table and table[2] != port.dtype:
            yield Found(at, f"{port.name!r} of {port.dtype}", f"{table[2]}, the type of the table")


def _weight(pair: Pair, chain: Chained) -> tuple[str, int, str] | None:
    """Name, width and type of the table."""
    said = chain.token_embedding
    graph = pair.document.graphs.get(said.component) if said else None
    weight = graph.initializers.get(said.table) if graph and said else None
    return (weight.name, weight.shape[1], weight.dtype) if weight and len(weight.shape) == 2 else None


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


def factor(graph: Graph, table: str) -> float | None:
    """The constant that rows of a table are multiplied by."""
    rows = [node.output[0] for node in graph.consumers.get(table, ()) if node.op_type == "Gather"]
    products = [node for name in rows for node in graph.consumers.get(name, ()) if node.op_type == "Mul"]
    values = (graph.inline(name) for node in products for name in node.input)
    found = [value for value in values if value is not None and value.size == 1]
    return float(np.asarray(found[0]).astype(np.float64).reshape(-1)[0]) if found else None


@rule("SPC008", Severity.ERROR, NEEDS)
def rollback_incomplete(package: Opened) -> Iterator[Found]:
    """rollback_state does not name exactly the cells that the target advances.

    Causes: a cell was forgotten: rejected tokens then stay in it; a cell of the proposer or of nobody was listed.
    Remedy: list every cell that the target advances, and those that the proposer carries itself.
    """
    for pair in pairs(package):
        chain = pair.chained
        advanced = {
            served.cell
            for served in pair.document.served
            if served.component == pair.said.target and served.alias.access == "read_write"
        }
        expected = advanced | {binding.state for binding in (chain.recurrent if chain else ())}
        if missing := sorted(expected - set(pair.said.rollback_state)):
            found = f"{len(missing)} cells are not named, such as {missing[0]!r}"
            yield Found(pair.at("rollback_state"), found, f"all {len(expected)} cells that are advanced")
        for cell in sorted(set(pair.said.rollback_state) - expected):
            yield Found(pair.at("rollback_state"), f"{cell!r}", "cells that the target advances")


@rule("SPC009", Severity.ERROR, NEEDS)
def rollback_too_short(package: Opened) -> Iterator[Found]:
    """A group cannot be rolled back as far as proposals reach.

    Causes: rollback_positions was left out of the capabilities of a group, or is smaller than max_proposal_width.
    Remedy: every group with a cell in rollback_state needs rollback_positions of at least max_proposal_width.
    """
    for pair in pairs(package):
        width = pair.said.max_proposal_width
        for name, group in pair.document.groups.items():
            cells = {cell for ports in group.ports.values() for cell in ports}
            depth = group.capabilities.rollback_positions or 0
            if cells & set(pair.said.rollback_state) and depth < width:
                at = pair.document.at("serving.state_service.groups", name, "capabilities.rollback_positions")
                yield Found(at, str(depth), f"at least {width}, max_proposal_width")


@rule("SPC010", Severity.ERROR, NEEDS)
def shared_state_differs(package: Opened) -> Iterator[Found]:
    """shared_state does not name exactly the groups that the proposer borrows from.

    Causes: a group was renamed; the list was left empty.
    Remedy: list every group with a read_only alias of the proposer.
    """
    for pair in pairs(package):
        borrowed = {
            served.group
            for served in pair.document.served
            if served.component == pair.said.proposer and served.alias.access == "read_only"
        }
        for name in sorted(set(pair.said.shared_state) - borrowed):
            known = "a group that" if name in pair.document.groups else "no group, and nothing that"
            yield Found(
                pair.at("shared_state"), f"{name!r}, {known} the proposer does not read", _list(borrowed)
            )
        for name in sorted(borrowed - set(pair.said.shared_state)):
            yield Found(pair.at("shared_state"), f"nothing of {name!r}", _list(borrowed))


def _list(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


@rule("SPC011", Severity.ERROR, NEEDS)
def shared_weight_unknown(package: Opened) -> Iterator[Found]:
    """shared_weights names what is no initializer.

    Causes: the name of the checkpoint's tensor instead of the graph's; a weight that only one of both has.
    Remedy: name an initializer of the component; without a component, one that target and proposer both have.
    """
    for pair in pairs(package):
        for i, said in enumerate(pair.said.shared_weights):
            at = pair.at(f"shared_weights[{i}]")
            if isinstance(said, str):
                graphs = [graph for graph in (pair.target, pair.proposer) if graph]
                name = said
            else:
                graphs = [graph for graph in [pair.document.graphs.get(said.component)] if graph]
                name = said.initializer
            if lacking := [graph.path for graph in graphs if name not in graph.initializers]:
                yield Found(at, repr(name), f"an initializer of {' and '.join(lacking)}")


@rule("SPC012", Severity.ERROR, NEEDS)
def vocabularies_differ(package: Opened) -> Iterator[Found]:
    """The vocabularies are not as stated.

    Causes: `identical` was said of a proposer with a pruned head, or `subset` of one that has every token.
    Remedy: compare the last dimensions of both logits: identical if they are equal, subset with the proposer's size if
    it is smaller, mapped with a file if the tokens are others.
    """
    for pair in pairs(package):
        sizes = _sizes(pair)
        if sizes is None:
            continue
        own, targets, said = *sizes, pair.said.vocabulary
        if said.kind == "identical" and own != targets:
            yield Found(
                pair.at("vocabulary"), f"identical, with {own} tokens", f"{targets}, as the target has"
            )
        elif said.kind == "subset" and (said.proposer_vocab_size != own or own >= targets):
            found = f"subset of {said.proposer_vocab_size}; the proposer has {own} and the target {targets}"
            yield Found(pair.at("vocabulary"), found, "identical" if own == targets else f"a subset of {own}")


def _sizes(pair: Pair) -> tuple[int, int] | None:
    """The number of logits of proposer and target."""
    name = pair.chained.logits_output if pair.chained else "logits"
    own = last(pair.proposer.ports.outputs.get(name)) if pair.proposer else None
    verified = pair.said.verification.target_output.output if pair.said.verification else "logits"
    targets = last(pair.target.ports.outputs.get(verified)) if pair.target else None
    return (own, targets) if own is not None and targets is not None else None


@rule("SPC013", Severity.ERROR, NEEDS)
def map_missing(package: Opened) -> Iterator[Found]:
    """The file that maps the proposer's tokens is not in the package.

    Causes: it was not copied; its name was changed.
    Remedy: put the file into the package, or state another kind of vocabulary.
    """
    for pair in pairs(package):
        said = pair.said.vocabulary
        if said.kind == "mapped" and said.artifact not in package.files:
            yield Found(pair.at("vocabulary.artifact"), repr(said.artifact), "a file of the package")


@rule("SPC014", Severity.ERROR, NEEDS)
def effect_not_undoable(package: Opened) -> Iterator[Found]:
    """A component that speculation runs has an effect that cannot be undone as far as proposals reach.

    Causes: the effect was declared for plain generation.
    Remedy: declare it rewindable with max_depth of at least max_proposal_width, or clonable, or keep it out of it.
    """
    for pair in pairs(package):
        workflow, width = pair.document.workflow, pair.said.max_proposal_width
        for name in (pair.said.proposer, pair.said.target):
            component = workflow.components.get(name)
            for domain in component.effects if component else ():
                safety = workflow.effects[domain].speculation_safety if domain in workflow.effects else None
                if safety and (
                    safety.kind == "none" or (safety.kind == "rewindable" and safety.max_depth < width)
                ):
                    at = pair.document.at("effects", domain, "speculation_safety")
                    yield Found(at, safety.kind, f"clonable, or rewindable by {width}")


@rule("SPC015", Severity.ERROR, NEEDS)
def recurrence_differs(package: Opened) -> Iterator[Found]:
    """A cell that the proposer carries is not one that it advances.

    Causes: the ports of the binding are not those of the cell's alias; a cell is bound twice.
    Remedy: bind each cell once, to the ports of its read_write alias.
    """
    for pair in pairs(package):
        aliases = {s.cell: s.alias for s in pair.document.served if s.component == pair.said.proposer}
        seen = set[str]()
        for i, binding in enumerate(pair.chained.recurrent if pair.chained else ()):
            at, alias = pair.at(f"proposal_execution.recurrent[{i}]"), aliases.get(binding.state)
            if binding.state in seen:
                yield Found(f"{at}.state", f"{binding.state!r} again", "each cell once")
            elif alias is None or (alias.input, alias.output) != (binding.input, binding.output):
                yield Found(
                    at, f"{binding.input!r} and {binding.output!r} for {binding.state!r}", _ports(alias)
                )
            seen.add(binding.state)


def _ports(alias: Alias | None) -> str:
    return f"{alias.input!r} and {alias.output!r}" if alias else "a cell that the proposer advances"
