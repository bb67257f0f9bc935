"""References, third part: state cells, the groups that serve them, and what a server is told."""

from collections.abc import Iterator

from cabochon.metadata.document import Cell, Group, Workflow
from cabochon.validation.findings import Severity
from cabochon.validation.flow import Kind, flows, kind
from cabochon.validation.opened import Opened
from cabochon.validation.references import workflows
from cabochon.validation.rules import Found, rule

_NEEDS = ("document",)
_Fault = tuple[str, str, str]  # address, found, expected


def _groups(workflow: Workflow) -> dict[str, Group]:
    return workflow.serving.state_service.groups if workflow.serving else {}


@rule("REF023", Severity.ERROR, _NEEDS)
def contradictory_cell(package: Opened) -> Iterator[Found]:
    """A state cell contradicts itself or its group.

    Causes: An axis that the cell does not have; a cell that grows on another axis than its group says; a cell in a
    group that the workflow is said to manage, or one that the runtime manages without saying when it is released.
    Remedy: Let recurrence, management, release_boundary and scope say the same thing; see the group of the cell.
    """
    for at, _, workflow in workflows(package):
        for name, cell in workflow.state.items():
            for where, found, expected in (*_recurrence(cell, workflow), *_lifetime(cell)):
                yield Found(f"{at}.state.{name}.{where}", found, expected)


def _recurrence(cell: Cell, workflow: Workflow) -> Iterator[_Fault]:
    axis, rank = getattr(cell.recurrence, "axis", None), kind(cell.contract).rank
    if axis is not None and rank is not None and axis >= rank:
        yield "recurrence.axis", str(axis), f"an axis of the {rank} that there are"
    group = _groups(workflow).get(cell.service_group or "")
    if group is None:
        return
    if axis is not None and axis != group.sequence_axis:
        yield (
            "recurrence.axis",
            str(axis),
            f"{group.sequence_axis}, the sequence_axis of {cell.service_group}",
        )
    if cell.contract.batch_layout.kind not in ("request_aligned", "request_expanded"):
        yield "contract.batch_layout", cell.contract.batch_layout.kind, "rows that belong to requests"
    if (
        cell.recurrence.kind == "growing"
        and workflow.serving
        and cell.recurrence.increment != workflow.serving.accepted_len
    ):
        yield (
            "recurrence.increment",
            cell.recurrence.increment,
            f"serving.accepted_len: {workflow.serving.accepted_len}",
        )


def _lifetime(cell: Cell) -> Iterator[_Fault]:
    managed = cell.management != "workflow"
    if cell.service_group and cell.management != "runtime":
        yield "management", f"{cell.management}, in a group", "runtime"
    if managed != (cell.release_boundary is not None):
        said = cell.release_boundary or "nothing"
        yield (
            "release_boundary",
            f"{said}, with management {cell.management}",
            "a boundary where the workflow does not manage it, and only there",
        )
    if cell.release_boundary == "session" and cell.scope != "session":
        yield "release_boundary", f"session, with scope {cell.scope}", "scope session"
    if cell.session is not None and cell.scope != "session":
        yield "session", f"a lease, with scope {cell.scope}", "scope session"
    if cell.session is not None and (
        cell.session.policy != "exclusive" or cell.session.ttl_seconds is not None
    ):
        yield "session", "copies or a time to live", "an exclusive lease, which is all that runtimes grant"


@rule("REF024", Severity.ERROR, _NEEDS)
def contradictory_group(package: Opened) -> Iterator[Found]:
    """A group of state cells contradicts itself.

    Causes: An axis beyond the last dimension of its cells; positions that are appended without an axis, or replaced
    with one; lengths that are no integers; roll-back by 0 positions; an alias that writes and names no output, or only
    reads and names one.
    Remedy: Let update, sequence_axis, lengths and capabilities describe what the graph does.
    """
    for at, _, workflow in workflows(package):
        for name, group in _groups(workflow).items():
            for where, found, expected in (*_update(group, workflow), *_aliases(group, workflow)):
                yield Found(f"{at}.serving.state_service.groups.{name}.{where}", found, expected)


def _update(group: Group, workflow: Workflow) -> Iterator[_Fault]:
    update, axis = group.update.kind if group.update else None, group.sequence_axis
    if update in ("append", "indexed_scatter") and axis is None:
        yield "sequence_axis", f"none, with update {update}", "the axis on which positions lie"
    if update == "replace" and axis is not None:
        yield "sequence_axis", f"{axis}, with update replace", "none: there are no positions"
    if update == "indexed_scatter" and group.logical_lengths is None:
        yield "logical_lengths", "none, with update indexed_scatter", "the cell that counts the positions"
    if group.capabilities.rollback_positions == 0:
        yield "capabilities.rollback_positions", "0", "1 or more, or nothing"
    lengths = workflow.state.get(group.logical_lengths or "")
    if lengths and (
        not _integer(kind(lengths.contract))
        or kind(lengths.contract).rank != 1
        or lengths.class_ != "semantic"
    ):
        yield (
            "logical_lengths",
            f"{group.logical_lengths}, {kind(lengths.contract)}",
            "a semantic cell of integers, one a row",
        )


def _aliases(group: Group, workflow: Workflow) -> Iterator[_Fault]:
    for component, aliases in group.ports.items():
        said = workflow.components.get(component)
        for cell, alias in aliases.items():
            at = f"ports.{component}.{cell}"
            if (alias.access == "read_write") != (alias.output is not None):
                yield (
                    at,
                    f"output {alias.output}, with access {alias.access}",
                    "an output where it writes, and only there",
                )
            if said and said.ports.inputs and alias.input not in said.ports.inputs:
                yield f"{at}.input", repr(alias.input), f"a declared input of {component}"
            if said and said.ports.outputs and alias.output and alias.output not in said.ports.outputs:
                yield f"{at}.output", repr(alias.output), f"a declared output of {component}"
            rank = kind(workflow.state[cell].contract).rank if cell in workflow.state else None
            if rank is not None and group.sequence_axis is not None and group.sequence_axis >= rank:
                yield "sequence_axis", str(group.sequence_axis), f"an axis of the {rank} that {cell} has"
        yield from _layers(
            component, [(alias.role, alias.layer) for alias in aliases.values() if alias.output]
        )


def _layers(component: str, found: list[tuple[str | None, int | None]]) -> Iterator[_Fault]:
    """Aliases of one role are put in order by their layers."""
    for role in {role for role, _ in found if role}:
        layers = [layer for its, layer in found if its == role]
        if len(layers) > 1 and (None in layers or len(set(layers)) < len(layers)):
            yield (
                f"ports.{component}",
                f"{len(layers)} aliases of role {role} without a layer each",
                "a layer of its own for each",
            )


@rule("REF025", Severity.ERROR, _NEEDS)
def incomplete_serving(package: Opened) -> Iterator[Found]:
    """What a server is told is not enough, or not of the right type.

    Causes: serving without accepted_len or without groups; active or done that are no bool, accepted_len that is no
    integer, or names of values that do not exist.
    Remedy: Name values of the workflow: active and done, bool [batch], and accepted_len, an integer [batch].
    """
    for flow in flows(package):
        serving = flow.workflow.serving
        if serving is None:
            continue
        at = f"{flow.at}: pipeline.workflow.serving"
        if not serving.state_service.groups:
            yield Found(f"{at}.state_service.groups", "none", "at least one")
        cells = {name: kind(cell.contract) for name, cell in flow.workflow.state.items()}
        for key in ("active", "done", "accepted_len"):
            name = getattr(serving, key)
            found = {**flow.values, **cells}.get(name or "")
            fits = found is not None and (_integer(found) if key == "accepted_len" else found.dtype == "bool")
            if not fits or (found and (found.rank or 0) > 1):
                wanted = "an integer, one a row" if key == "accepted_len" else "bool, one a row"
                yield Found(f"{at}.{key}", f"{name}, {found or 'which no step makes'}", wanted)


@rule("REF026", Severity.ERROR, _NEEDS)
def published_state(package: Opened) -> Iterator[Found]:
    """A value that a server keeps is handed out.

    Causes: A cache was declared as an output and is emitted. Between two steps it belongs to the server, which may have
    moved or shared it.
    Remedy: Emit something else, or give the group a checkpoint through which it is written down.
    """
    for at, _, workflow in workflows(package):
        for name in workflow.outputs.keys() & workflow.state.keys():
            cell = workflow.state[name]
            group = _groups(workflow).get(cell.service_group or "")
            if cell.management != "workflow" and not (group and group.checkpoint):
                yield Found(
                    f"{at}.outputs.{name}", "a state cell that the runtime manages", "a value of its own"
                )


def _integer(found: Kind) -> bool:
    return "int" in found.dtype
