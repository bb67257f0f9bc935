"""The rules on speculation: proposer and target against their graphs, the cells that must roll back, the carry."""

from collections.abc import Iterator

from cabochon.metadata.document import Alias
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.opened import Opened
from cabochon.validation.pair import Pair, last, pairs
from cabochon.validation.rules import Found, rule

__all__: list[str] = []

NEEDS = ("document", "graphs")


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
