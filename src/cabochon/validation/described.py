"""The documents of a package beside the graphs that they describe."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from cabochon.metadata.document import (
    Alias,
    Branch,
    Component,
    ComponentPorts,
    Document,
    Group,
    Invoke,
    Loop,
    Sequence,
    Step,
    TensorContract,
    Workflow,
)
from cabochon.validation.graph import Graph
from cabochon.validation.opened import CANONICAL, DOCUMENTS, Opened

__all__ = ["Described", "Served", "described"]

ANNOTATED = DOCUMENTS[2]  # the canonical one with comments: a rule of its own holds them equal


@dataclass(frozen=True)
class Served:
    """An alias: `cell` of `group` lies behind ports of `component`."""

    group: str
    component: str
    cell: str
    alias: Alias
    at: str


@dataclass(frozen=True)
class Described:
    """A document and the graphs of its components, of those that could be read."""

    name: str
    document: Document
    workflow: Workflow
    graphs: Mapping[str, Graph]

    def at(self, *path: str) -> str:
        """The address of a place in the workflow."""
        return ".".join((f"{self.name}: pipeline.workflow", *path))

    @property
    def components(self) -> Iterator[tuple[str, Component, Graph]]:
        """The components that have a graph."""
        return ((name, self.workflow.components[name], graph) for name, graph in self.graphs.items())

    @cached_property
    def invocations(self) -> tuple[tuple[str, Invoke], ...]:
        """Every step that runs a component, with its address."""
        return tuple(_invocations(self.workflow.steps, self.at("steps")))

    @property
    def groups(self) -> Mapping[str, Group]:
        """The state groups by name."""
        serving = self.workflow.serving
        return serving.state_service.groups if serving else {}

    @cached_property
    def served(self) -> tuple[Served, ...]:
        """Every alias of every group."""
        where = self.at("serving.state_service.groups")
        return tuple(
            Served(group, component, cell, alias, f"{where}.{group}.ports.{component}.{cell}")
            for group, service in self.groups.items()
            for component, cells in service.ports.items()
            for cell, alias in cells.items()
        )


def described(package: Opened) -> Iterator[Described]:
    """The canonical document and the one with the loop."""
    for name, document in package.documents.items():
        if name != ANNOTATED and document.pipeline:
            yield Described(name, document, document.pipeline.workflow, package.components_of(document))


def canonical(package: Opened) -> Described | None:
    """The canonical document."""
    return next((found for found in described(package) if found.name == CANONICAL), None)


def contracts(ports: ComponentPorts) -> Iterator[tuple[str, str, TensorContract]]:
    """Every declared port: "inputs" or "outputs", its name, its contract."""
    for side, declared in (("inputs", ports.inputs), ("outputs", ports.outputs)):
        yield from ((side, name, contract) for name, contract in declared.items())


def _invocations(steps: Iterable[Step], at: str) -> Iterator[tuple[str, Invoke]]:
    for i, step in enumerate(steps):
        here = f"{at}[{i}]"
        match step:
            case Invoke():
                yield here, step
            case Sequence():
                yield from _invocations(step.steps, f"{here}.steps")
            case Loop():
                yield from _invocations(step.setup, f"{here}.setup")
                yield from _invocations(step.steps, f"{here}.steps")
            case Branch():
                for name, case in step.cases.items():
                    yield from _invocations([case], f"{here}.cases.{name}")
                if step.default:
                    yield from _invocations([step.default], f"{here}.default")
            case _:
                pass
