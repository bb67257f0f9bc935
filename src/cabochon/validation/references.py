"""References inside a document: every name leads somewhere, every value is made once, before it is read, and fits."""

from collections.abc import Iterator, Mapping
from typing import Any

from cabochon.metadata.document import Document, TensorContract, Workflow
from cabochon.validation.findings import Severity
from cabochon.validation.flow import flows, portion
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, rule

_NEEDS = ("document",)


def workflows(package: Opened) -> Iterator[tuple[str, Document, Workflow]]:
    """The address and the workflow of every document but the annotated copy."""
    for name, document in package.documents.items():
        if document.pipeline and "annotated" not in name:
            yield f"{name}: pipeline.workflow", document, document.pipeline.workflow


def contracts(workflow: Workflow) -> Iterator[tuple[str, TensorContract]]:
    """Every contract that a workflow states outside of its steps, with its address."""
    for part in ("inputs", "outputs", "state"):
        named: Mapping[str, Any] = getattr(workflow, part)
        yield from ((f"{part}.{name}.contract", entry.contract) for name, entry in named.items())
    for name, component in workflow.components.items():
        at = f"components.{name}.ports"
        yield from ((f"{at}.inputs.{port}", contract) for port, contract in component.ports.inputs.items())
        yield from ((f"{at}.outputs.{port}", contract) for port, contract in component.ports.outputs.items())


def _faults(package: Opened, code: str) -> Iterator[Found]:
    for flow in flows(package):
        yield from flow.faults.get(code, ())


@rule("REF001", Severity.ERROR, _NEEDS)
def contradictory_contract(package: Opened) -> Iterator[Found]:
    """A contract contradicts itself.

    Causes: A rank that is not the number of dimensions, a batch axis beyond the last dimension, rows that are counted
    on a dimension of fixed size.
    Remedy: State the shape as the graph has it, and the axis on which the rows of a batch lie.
    """
    for at, _, workflow in workflows(package):
        for where, contract in contracts(workflow):
            dims = contract.shape
            if dims is not None and contract.rank not in (None, len(dims)):
                yield Found(
                    f"{at}.{where}",
                    f"rank {contract.rank} with {len(dims)} dimensions",
                    "as many as the rank",
                )
            axis = getattr(contract.batch_layout, "axis", None)
            rank = contract.rank if dims is None else len(dims)
            if axis is not None and rank is not None and axis >= rank:
                yield Found(
                    f"{at}.{where}.batch_layout", f"axis {axis}", f"an axis of the {rank} that there are"
                )
            elif axis is not None and dims is not None and isinstance(dims[axis], int) and dims[axis] != 1:
                found = f"axis {axis}, which is always {dims[axis]}"
                yield Found(f"{at}.{where}.batch_layout", found, "an axis whose size is a symbol")


@rule("REF002", Severity.ERROR, _NEEDS)
def unmade_value(package: Opened) -> Iterator[Found]:
    """A value is read that nothing has made yet.

    Causes: A name that was mistyped, steps in the wrong order, a value of the inside of a loop or of one case of a
    branch that is read outside.
    Remedy: Make the value first, or name the one that is meant.
    """
    yield from _faults(package, "REF002")


@rule("REF003", Severity.ERROR, _NEEDS)
def value_made_twice(package: Opened) -> Iterator[Found]:
    """A value is made twice.

    Causes: Two steps that write under one name, an output with the name of a state cell.
    Remedy: Give each value a name of its own.
    """
    yield from _faults(package, "REF003")


@rule("REF004", Severity.ERROR, _NEEDS)
def unknown_component(package: Opened) -> Iterator[Found]:
    """A component is named that the workflow does not have.

    Causes: A component was renamed or left out, and a step or a group still names it.
    Remedy: Name a component of the workflow, or declare it.
    """
    yield from _faults(package, "REF004")
    for at, _, workflow in workflows(package):
        for group, found in workflow.serving.state_service.groups.items() if workflow.serving else ():
            for name in found.ports.keys() - workflow.components.keys():
                where = f"{at}.serving.state_service.groups.{group}.ports"
                yield Found(where, repr(name), f"a component: {portion(workflow.components)}")


@rule("REF005", Severity.ERROR, _NEEDS)
def unknown_port(package: Opened) -> Iterator[Found]:
    """A step binds a port that the component does not have.

    Causes: A port was renamed in the graph and in the component's ports, but not in the step.
    Remedy: Name a port of the component.
    """
    yield from _faults(package, "REF005")


@rule("REF006", Severity.ERROR, _NEEDS)
def unbound_port(package: Opened) -> Iterator[Found]:
    """A step leaves an input of its component without a value.

    Causes: A port that was added to the component, but not to the step; a port that has a default in the graph, but is
    not declared as optional.
    Remedy: Bind a value to the port, or declare it optional where the graph has a default for it.
    """
    yield from _faults(package, "REF006")


@rule("REF007", Severity.ERROR, _NEEDS)
def clashing_ends(package: Opened) -> Iterator[Found]:
    """The two ends of a value do not fit together.

    Causes: A type, a rank or a fixed dimension that was changed at one end alone: at a port, at a state cell, at an
    output.
    Remedy: State both ends as the graphs have them.
    """
    yield from _faults(package, "REF007")


@rule("REF008", Severity.ERROR, _NEEDS)
def unknown_output(package: Opened) -> Iterator[Found]:
    """An output is named that the workflow does not have.

    Causes: An output was renamed or left out, and a step or a profile still names it.
    Remedy: Name an output of the workflow, or declare it.
    """
    yield from _faults(package, "REF008")
    for at, document, workflow in workflows(package):
        for profile, said in (document.profiles or {}).items():
            for role, output in said.outputs.items():
                if output not in workflow.outputs:
                    where = f"{at.partition(':')[0]}: profiles.{profile}.outputs.{role}"
                    yield Found(where, repr(output), f"an output: {portion(workflow.outputs)}")


@rule("REF009", Severity.ERROR, _NEEDS)
def silent_output(package: Opened) -> Iterator[Found]:
    """A declared output is never emitted.

    Causes: The step that emits it was left out, or emits another one.
    Remedy: Emit the output, or do not declare it.
    """
    for flow in flows(package):
        for name in flow.workflow.outputs.keys() - flow.emitted:
            yield Found(
                f"{flow.at}: pipeline.workflow.outputs.{name}", "no step that emits it", "an emit step"
            )


@rule("REF010", Severity.ERROR, _NEEDS)
def unknown_cell(package: Opened) -> Iterator[Found]:
    """A state cell is named that the workflow does not have.

    Causes: A cell was renamed or left out, and a loop, a group or a component still names it.
    Remedy: Name a cell of the workflow's state, or declare it.
    """
    yield from _faults(package, "REF010")
    for at, _, workflow in workflows(package):
        for where, name in _named_cells(workflow):
            if name not in workflow.state:
                yield Found(f"{at}.{where}", repr(name), f"a state cell: {portion(workflow.state)}")


def _named_cells(workflow: Workflow) -> Iterator[tuple[str, str]]:
    """The cells that groups and components name."""
    for name, component in workflow.components.items():
        yield from (
            (f"components.{name}.cache_affects_state", cell) for cell in component.cache_affects_state
        )
    for name, group in workflow.serving.state_service.groups.items() if workflow.serving else ():
        at = f"serving.state_service.groups.{name}"
        for component, aliases in group.ports.items():
            yield from ((f"{at}.ports.{component}", cell) for cell in aliases)
        for key in ("logical_lengths", "total_length"):
            if cell := getattr(group, key):
                yield f"{at}.{key}", cell
        if group.update and group.update.kind == "indexed_scatter":
            yield f"{at}.update.write_indices", group.update.write_indices


@rule("REF011", Severity.ERROR, _NEEDS)
def orphan_cell(package: Opened) -> Iterator[Found]:
    """A state cell is advanced by nothing.

    Causes: A layer that only borrows keys and values was given a cell, a cell was left behind by a change, or the group
    that serves it leaves it out.
    Remedy: Remove the cell, or name it where it is advanced: in a loop or in the ports of its group.
    """
    for flow in flows(package):
        used = {cell for _, cell in _named_cells(flow.workflow)}
        for name in flow.workflow.state.keys() - flow.advanced - used:
            yield Found(
                f"{flow.at}: pipeline.workflow.state.{name}", "no loop and no group that has it", "one"
            )


@rule("REF012", Severity.ERROR, _NEEDS)
def wrong_group(package: Opened) -> Iterator[Found]:
    """A group is named that does not exist, or that is not the cell's own.

    Causes: A group was renamed, or a cell moved from one group to another, in one of the two places alone.
    Remedy: Let a cell's service_group and the ports of that group agree.
    """
    for at, _, workflow in workflows(package):
        groups = workflow.serving.state_service.groups if workflow.serving else {}
        for name, cell in workflow.state.items():
            if cell.service_group and cell.service_group not in groups:
                where = f"{at}.state.{name}.service_group"
                yield Found(where, repr(cell.service_group), f"a group: {portion(groups)}")
        for group, said in groups.items():
            where = f"{at}.serving.state_service.groups.{group}"
            for name in set(said.capabilities.cascade) - groups.keys():
                yield Found(f"{where}.capabilities.cascade", repr(name), f"a group: {portion(groups)}")
            for component, aliases in said.ports.items():
                for cell in aliases.keys() & workflow.state.keys():
                    own = workflow.state[cell].service_group
                    if own != group:
                        yield Found(
                            f"{where}.ports.{component}.{cell}", f"a cell of {own}", f"a cell of {group}"
                        )


@rule("REF016", Severity.ERROR, _NEEDS)
def wrong_control(package: Opened) -> Iterator[Found]:
    """A value that steers the flow has the wrong type.

    Causes: A condition that is no bool, a length or a limit that is no integer, a value with several elements where one
    decides.
    Remedy: Name a value of the type that is expected.
    """
    yield from _faults(package, "REF016")


@rule("REF017", Severity.ERROR, _NEEDS)
def partial_branch(package: Opened) -> Iterator[Found]:
    """A branch does not cover its cases.

    Causes: A branch without cases, or whose output has no value in one of them, or one in a case that does not exist.
    Remedy: Give every output a value in each case, and in the default where there is one.
    """
    yield from _faults(package, "REF017")


@rule("REF018", Severity.ERROR, _NEEDS)
def empty_sequence(package: Opened) -> Iterator[Found]:
    """A workflow or a sequence has no steps.

    Causes: Steps that were removed or never written.
    Remedy: Remove the sequence, or give it a step.
    """
    yield from _faults(package, "REF018")
    for at, _, workflow in workflows(package):
        if not workflow.steps:
            yield Found(f"{at}.steps", "no step", "at least one")
