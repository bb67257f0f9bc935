"""Rules on what the graphs do when they run: each claim of the document is tried on small random inputs.

Nothing is checked that the document does not claim. Ids are random with a fixed seed (`execution.driven.SEED`), runs
are as long as the model's size makes affordable (`execution.bench.WORK`). Results may differ by 1e-4 of the largest
value in f32, in f16 by what `execution.driven.Driven.tolerance` measures.
"""

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np

from cabochon.metadata.document import Group
from cabochon.validation.described import Described, described
from cabochon.validation.execution import claims, requests, rows, shapes, sharing
from cabochon.validation.execution.bench import Bench, bench, constant
from cabochon.validation.execution.decoder import Decoder
from cabochon.validation.execution.driven import Driven
from cabochon.validation.execution.runner import UNDRIVEN, undriven
from cabochon.validation.findings import Severity
from cabochon.validation.opened import CANONICAL, Opened
from cabochon.validation.rules import Found, Skipped, rule

__all__: list[str] = []

_NEEDS = ("document", "graphs", "execute")
_WORKFLOW = f"{CANONICAL}: pipeline.workflow"
_GROUPS = f"{_WORKFLOW}.serving.state_service.groups"


@rule("BEH001", Severity.NOTE, _NEEDS)
def reached(package: Opened) -> Iterator[Found]:
    """Some behaviour was checked elsewhere, or not as far as it goes.

    Causes: the execution provider of the target is not installed, so that the provider of the CPU ran the graphs; the
    model is so large that runs across its window would take too long; a workflow leaves a step to the runtime.
    Remedy: validate again where the provider is; what was not reached holds as far as the graphs' other rules say so.
    """
    made = feedable(package)
    for one in made.driven.values():
        at = one.decoder.runner.graph.path
        if made.elsewhere:
            yield Found(at, made.elsewhere, "the provider of the target")
        if one.unreached:
            found = f"runs of at most {one.most} tokens; not reached: {', '.join(map(str, one.unreached))}"
            yield Found(at, found, f"runs around the window of {one.window}")
    for one in described(package):
        if why := requests.impossible(one):
            yield Found(one.name, why, "steps that the package's own graphs carry out")


@rule("BEH002", Severity.ERROR, _NEEDS)
def runs(package: Opened) -> Iterator[Found]:
    """A component does not run on inputs that its contracts describe.

    Causes: an operator without a kernel, shapes that do not fit each other inside the graph, a port that the document
    does not describe as the graph needs it.
    Remedy: run the graph alone with onnxruntime, and build the package again.
    """
    for name, fault in feedable(package).faults.items():
        yield Found(f"{_WORKFLOW}.components.{name}", fault, "a prefill of three tokens and a step of one")


@rule("BEH003", Severity.ERROR, _NEEDS)
def declared_shapes(package: Opened) -> Iterator[Found]:
    """What goes in or comes out of a component is not as its contract says.

    Causes: a dimension or a type written down by hand; one symbol for two lengths that differ at run time.
    Remedy: derive the contracts from the ports of the graph; give lengths that may differ symbols of their own.
    """
    for one in driven(package):
        first = {port: what for port, what in reversed([*shapes.declared(one)])}
        for port, what in first.items():
            yield Found(f"{_component(one)}.ports.{port}", what, "the declared type, rank, sizes and symbols")


@rule("BEH004", Severity.ERROR, _NEEDS)
def optional_inputs(package: Opened) -> Iterator[Found]:
    """An input that may be left out cannot be, or is then not what the document says.

    Causes: the graph has no initializer of the input's name; the initializer has another value than the default that
    the workflow states.
    Remedy: declare the input as the graph has it, with the default of the graph.
    """
    made = feedable(package)
    for one in driven(package):
        for port, what in shapes.optional(one, _stated(made, one)):
            yield Found(f"{_component(one)}.ports.inputs.{port}", what, "the same result as with its default")


@rule("BEH005", Severity.ERROR, _NEEDS)
def appending(package: Opened) -> Iterator[Found]:
    """A group that appends changes what it held, or grows by something else than the new tokens.

    Causes: a graph that writes its caches anew, shifts them or drops entries; `update` should be another kind.
    Remedy: say `replace` or `indexed_scatter` where the graph does so, or append in the graph.
    """
    for one, name, group in served(package):
        if group.update is not None and group.update.kind == "append" and group.sequence_axis is not None:
            for what in tried(claims.appended, one, name):
                yield Found(
                    f"{_GROUPS}.{name}.update", what, "the old entries, and behind them one for each token"
                )


@rule("BEH006", Severity.ERROR, _NEEDS)
def reusable_prefix(package: Opened) -> Iterator[Found]:
    """A prefix computed once and continued gives something else than a cold run over the whole.

    Causes: positions or masks that begin anew with every call; state outside of the cells; a window or a causal mask
    that counts columns wrongly once there is a past.
    Remedy: say `prefix_reusable: false`, or correct how the graph counts positions.
    """
    for one in driven(package):
        names = [name for name, group in groups_of(one).items() if group.reuse.prefix_reusable]
        for what in tried(claims.reused, one) if names else ():
            at = f"{_GROUPS}.{names[0]}.reuse.prefix_reusable"
            yield Found(at, what, f"the results of a cold run, as {', '.join(names)} claim")


@rule("BEH007", Severity.ERROR, _NEEDS)
def evictable_prefix(package: Opened) -> Iterator[Found]:
    """Evicting what a group says may go changes the results.

    Causes: `evictable_prefix: true` for full attention; a mask that counts columns of the cache instead of positions; a
    window in the graph that is wider than the one the package states.
    Remedy: say `evictable_prefix: false`, or correct the window in the graph.
    """
    claiming = [found for found in served(package) if found[2].reuse.evictable_prefix]
    short = [one for one, _, _ in claiming if max(one.lengths) < (one.window or 0)]
    if claiming and len(short) == len(claiming):
        one = short[0]
        raise Skipped(
            f"a window of {one.window} needs longer runs than {one.most} tokens, the most of this size"
        )
    for one, name, group in claiming:
        if group.sequence_axis is None:
            continue
        window = one.window or max(one.lengths) // 2 + 1
        for what in tried(claims.evicted, one, name, window):
            at = f"{_GROUPS}.{name}.reuse.evictable_prefix"
            yield Found(at, what, f"no difference: the last {window - 1} entries are enough")


@rule("BEH008", Severity.ERROR, _NEEDS)
def rollback(package: Opened) -> Iterator[Found]:
    """Rolling back positions and going on is not as if they had never been.

    Causes: a state that sums up what it has seen; a graph that changes old entries when new ones come.
    Remedy: leave `rollback_positions` out, or keep one entry for each position in the graph.
    """
    for one, name, group in served(package):
        if (positions := group.capabilities.rollback_positions) and group.sequence_axis is not None:
            for what in tried(claims.rolled_back, one, name, positions):
                yield Found(
                    f"{_GROUPS}.{name}.capabilities.rollback_positions",
                    what,
                    "the results without the detour",
                )


@rule("BEH009", Severity.ERROR, _NEEDS)
def snapshot(package: Opened) -> Iterator[Found]:
    """A state that was put aside does not go on as it would have.

    Causes: state outside of the cells; random numbers inside of the graph; a run that writes into the past it reads.
    Remedy: leave `snapshot` out, or make all that the graph remembers a cell.
    """
    for one in driven(package):
        if names := [name for name, group in groups_of(one).items() if group.capabilities.snapshot]:
            for what in tried(claims.kept, one):
                yield Found(
                    f"{_GROUPS}.{names[0]}.capabilities.snapshot", what, "the results of going on at once"
                )


@rule("BEH010", Severity.ERROR, _NEEDS)
def fork(package: Opened) -> Iterator[Found]:
    """Two continuations of one state disturb each other.

    Causes: state outside of the cells; random numbers inside of the graph; a run that writes into the past it reads.
    Remedy: leave `fork` out, or make all that the graph remembers a cell.
    """
    for one in driven(package):
        if names := [name for name, group in groups_of(one).items() if group.capabilities.fork]:
            for what in tried(claims.forked, one):
                yield Found(f"{_GROUPS}.{names[0]}.capabilities.fork", what, "the results of each by itself")


@rule("BEH011", Severity.ERROR, _NEEDS)
def rows_apart(package: Opened) -> Iterator[Found]:
    """A row of a batch gives something else than the same row alone.

    Causes: a reduction over the batch axis; a position or length of one row taken for all; padding that is seen.
    Remedy: say `batch_layout: {kind: shared}` and run one request at a time, or keep rows apart in the graph.
    """
    for one in driven(package):
        for what in tried(rows.independent, one) if one.rows_aligned() else ():
            yield Found(
                f"{_component(one)}.ports", what, "rows that do not depend on each other (request_aligned)"
            )


@rule("BEH012", Severity.ERROR, _NEEDS)
def masked_entries(package: Opened) -> Iterator[Found]:
    """Something that the attention mask leaves out changes the results.

    Causes: a mask that one kind of layer does not look at; a causal mask alone, without the padding; positions that
    count padding.
    Remedy: let every layer see the mask.
    """
    found = [one for one in driven(package) if one.decoder.port("attention_mask")]
    able = [one for one in found if one.decoder.mask and one.batches]
    if found and not able:
        why = "two rows do not run" if found[0].decoder.mask else "the graph has no property cabochon.mask"
        raise Skipped(f"what the mask leaves out is seen in ragged rows: {why}")
    for one in able:
        for what in tried(rows.masked, one):
            yield Found(f"{_component(one)}.ports.roles", what, "no difference: the mask has zeros there")


@rule("BEH013", Severity.ERROR, _NEEDS)
def shared_buffer(package: Opened) -> Iterator[Found]:
    """Past and present in one buffer give something else than in two.

    Causes: `aliasing: permitted` for a graph that concatenates; a graph that takes the capacity of a buffer for the
    number of its tokens.
    Remedy: say `aliasing: forbidden`; only graphs that update in place may say otherwise.
    """
    for one in driven(package):
        if cells := sharing.aliased(one):
            for what in tried(sharing.in_place, one):
                yield Found(f"{_GROUPS}.{cells[0].group}.aliasing", what, "the results of two buffers")


@rule("BEH014", Severity.ERROR, _NEEDS)
def borrowed_cells(package: Opened) -> Iterator[Found]:
    """A component that only reads a cell changes it.

    Causes: an alias that is `read_only` but names an output which a runtime binds to the same buffer, in a group whose
    buffers may be shared.
    Remedy: take `output` out of the alias, or say `access: read_write`.
    """
    made = feedable(package)
    for one in driven(package):
        state, n = None, one.lengths[0]
        for reader in _readers(made, one):
            state = state or one.run([one.ids(n)]).state
            for what in tried(sharing.borrowed, reader, state.cells, n):
                yield Found(f"{_WORKFLOW}.components.{reader.name}", what, "the source bit for bit as it was")


@rule("BEH015", Severity.ERROR, _NEEDS)
def workflow(package: Opened) -> Iterator[Found]:
    """The steps of a document do not do what its decoder does.

    Causes: ports wired to the wrong values, a cell carried from the wrong one, a condition or a length that belongs to
    another turn, a policy graph that does something else than its name says.
    Remedy: derive the document from the graphs again.
    """
    made, able = feedable(package), list[Described]()
    reasons = list[str]()
    for one in described(package):
        why = requests.impossible(one)
        able, reasons = (able, [*reasons, why]) if why else ([*able, one], reasons)
    if not able:
        raise Skipped("; ".join(reasons))
    for one in driven(package):
        for document in able:
            seen = set[str]()
            for at, what, expected in requests.carried_out(made, document, one):
                if at not in seen:  # the same place for other lengths is the same fault
                    yield Found(at, what, expected)
                seen.add(at)


def feedable(package: Opened) -> Bench:
    """The bench of a package. Raises Skipped where its graphs cannot be fed."""
    if package.document is None or package.document.pipeline is None:
        raise Skipped("the document has no pipeline")
    made = bench(package)
    if made.unfeedable:
        raise Skipped(made.unfeedable)
    return made


def driven(package: Opened) -> list[Driven]:
    """The decoders of the canonical document. Raises Skipped where there are none that run."""
    made = feedable(package)
    if not made.driven:
        raise Skipped("no component runs (BEH002)" if made.faults else "no component remembers anything")
    return list(made.driven.values())


def served(package: Opened) -> list[tuple[Driven, str, Group]]:
    """Each decoder with each group that serves it."""
    return [(one, name, group) for one in driven(package) for name, group in groups_of(one).items()]


def groups_of(one: Driven) -> dict[str, Group]:
    """The groups that serve a decoder's own cells."""
    names = dict.fromkeys(held.group for held in one.decoder.held)
    return {name: one.decoder.groups[name] for name in names}


def tried(claim: Callable[..., Iterator[str]], *arguments: object) -> Iterator[str]:
    """The first contradiction to a claim; a run that fails is one."""
    try:
        yield from islice(claim(*arguments), 1)
    except UNDRIVEN as error:
        yield undriven(error)


def _component(one: Driven) -> str:
    return f"{_WORKFLOW}.components.{one.decoder.name}"


def _readers(made: Bench, owner: Driven) -> Iterator[Decoder]:
    """The components that read the owner's cells and have none of their own there."""
    cells = {held.cell for held in owner.decoder.held}
    for name, graph in made.package.components.items():
        if name in made.faults:
            continue
        reader = Decoder(name, made.workflow.components[name], made.runner(graph), made.groups, "", 32, {})
        read = {cell for cell, _, _ in sharing.readings(reader)}
        if read and read <= cells:
            yield reader


def _stated(made: Bench, one: Driven) -> dict[str, np.ndarray]:
    """The defaults that the workflow states for the ports of a decoder; a literal is fed every time, and is none."""
    found = dict[str, np.ndarray]()
    for step in (step for d in described(made.package) for _, step in d.invocations if d.name == CANONICAL):
        for port, value in step.inputs.items() if step.component == one.decoder.name else ():
            given = made.workflow.inputs.get(value)
            if given and given.default is not None and given.source.kind != "literal":
                dtype = one.decoder.runner.graph.ports.inputs[port].dtype
                found[port] = constant(given.default, given.contract.shape, dtype, lambda _: 1)
    return found
