"""The workflow followed step by step: which values exist where, of which kind, and what does not fit on the way."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cabochon.metadata.document import (
    DTYPES,
    Branch,
    Carry,
    Cell,
    Component,
    Document,
    Emit,
    Invoke,
    Loop,
    Step,
    TensorContract,
    Workflow,
)
from cabochon.metadata.document import Sequence as Steps
from cabochon.metadata.ports import Port
from cabochon.validation.graph import Graph
from cabochon.validation.rules import Found

if TYPE_CHECKING:
    from cabochon.validation.opened import Opened

__all__ = ["Flow", "Kind", "clash", "flows", "kind", "portion", "ports"]


@dataclass(frozen=True)
class Kind:
    """Element type (numpy's name, "" where nothing says it), rank and shape of a value (None where not said)."""

    dtype: str
    rank: int | None
    shape: tuple[int | str, ...] | None
    optional: bool = False

    def __str__(self) -> str:
        if self.shape is None:
            return self.dtype if self.rank is None else f"{self.dtype} of rank {self.rank}"
        return f"{self.dtype} [{', '.join(str(d) or '?' for d in self.shape)}]"

    @property
    def scalar(self) -> bool:
        """One value: [] or [1]."""
        return self.rank in (None, 0) or (self.rank == 1 and (self.shape is None or self.shape[0] == 1))

    def where(self, said: Mapping[str, int | str]) -> "Kind":
        """The same with the dimensions that its symbols stand for, of those that are said."""
        if self.shape is None:
            return self
        return replace(self, shape=tuple(said.get(d, d) if isinstance(d, str) else d for d in self.shape))


Scope = dict[str, Kind]
Ends = tuple[Mapping[str, Kind], Mapping[str, Kind]]


def kind(contract: TensorContract) -> Kind:
    """What a contract says."""
    rank = contract.rank if contract.shape is None else len(contract.shape)
    return Kind(DTYPES.get(contract.dtype, contract.dtype), rank, contract.shape, contract.optional)


def _of_port(port: Port) -> Kind:
    return Kind(port.dtype, len(port.shape), port.shape, port.optional)


def clash(a: Kind, b: Kind, free: int | None = None) -> bool:
    """The two cannot be the same value: type, rank or a fixed dimension differs. Dimension `free` may differ."""
    if not a.dtype or not b.dtype:
        return False
    if a.dtype != b.dtype or (a.rank is not None and b.rank is not None and a.rank != b.rank):
        return True
    if a.shape is None or b.shape is None:
        return False
    dims = zip(a.shape, b.shape, strict=True)
    return any(
        isinstance(m, int) and isinstance(n, int) and m != n and i != free for i, (m, n) in enumerate(dims)
    )


def ports(component: Component, graph: Graph | None) -> Ends | None:
    """Inputs and outputs of a component: as declared, else its graph's; None where nothing says."""
    said = component.ports
    if said.inputs or said.outputs:
        inputs = {name: kind(contract) for name, contract in said.inputs.items()}
        return inputs, {name: kind(contract) for name, contract in said.outputs.items()}
    if graph is None:
        return None
    found = graph.ports
    return {n: _of_port(p) for n, p in found.inputs.items()}, {
        n: _of_port(p) for n, p in found.outputs.items()
    }


@dataclass
class Flow:
    """What following a document's workflow gave.

    `values`: every value that is made, with its kind; `read`: the names of those that something reads; `advanced`: the
    cells that a loop carries; `emitted`: the outputs that something emits; `faults`: what does not fit, by rule.
    """

    at: str
    workflow: Workflow
    ends: Mapping[str, Ends | None]
    values: Scope = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    advanced: set[str] = field(default_factory=set)
    emitted: set[str] = field(default_factory=set)
    faults: dict[str, list[Found]] = field(default_factory=dict)

    def follow(self) -> "Flow":
        """Follow it from its inputs to its last step."""
        scope: Scope = {}
        for name, given in self.workflow.inputs.items():
            self._make(scope, name, kind(given.contract), f"inputs.{name}")
            if given.present_as:
                self._make(scope, given.present_as, Kind("bool", None, None), f"inputs.{name}.present_as")
        self._steps(self.workflow.steps, scope, "steps")
        for name, cell in self.workflow.state.items():
            self.read.add(cell.initializer)
            if cell.initializer not in self.values and cell.initializer not in self.workflow.state:
                self._unmade(f"state.{name}.initializer", cell.initializer)
        return self

    def _fault(self, code: str, at: str, found: str, expected: str) -> None:
        where = f"{self.at}: pipeline.workflow.{at}"
        self.faults.setdefault(code, []).append(Found(where, found, expected))

    def _unmade(self, at: str, name: str) -> None:
        late = ", which is made later or elsewhere" if name in self.values else ""
        self._fault("REF002", at, f"the value {name!r}{late}", "a value that is made before it is read")

    def _make(self, scope: Scope, name: str, made: Kind, at: str) -> None:
        if name in self.values or name in self.workflow.state:
            self._fault("REF003", at, f"{name!r} once more", "a name that no other value has")
        self.values[name] = scope[name] = made

    def _take(self, scope: Scope, name: str, at: str) -> Kind | None:
        self.read.add(name)
        if name in scope:
            return scope[name]
        self._unmade(at, name)
        return None

    def _fits(self, at: str, name: str, value: Kind | None, wanted: Kind, free: int | None = None) -> None:
        if value is not None and clash(value, wanted, free):
            self._fault("REF007", at, f"{name}, {value}", str(wanted))

    def _steps(self, steps: Sequence[Step], scope: Scope, at: str) -> None:
        for i, step in enumerate(steps):
            self._step(step, scope, f"{at}[{i}]")

    def _step(self, step: Step, scope: Scope, at: str) -> None:
        if isinstance(step, Invoke):
            self._invoke(step, scope, at)
        elif isinstance(step, Emit):
            self._emit(step, scope, at)
        elif isinstance(step, Loop):
            self._loop(step, scope, at)
        elif isinstance(step, Branch):
            self._branch(step, scope, at)
        else:
            self._sequence(step, scope, at)

    def _sequence(self, step: Steps, scope: Scope, at: str) -> None:
        if not step.steps:
            self._fault("REF018", f"{at}.steps", "no step", "at least one")
        self._steps(step.steps, scope, f"{at}.steps")

    def _invoke(self, step: Invoke, scope: Scope, at: str) -> None:
        if step.component not in self.workflow.components:
            self._fault("REF004", f"{at}.component", repr(step.component), "a component of this workflow")
        ends = self.ends.get(step.component)
        said: dict[str, int | str] = {}
        for port, name in step.inputs.items():
            where = f"{at}.inputs.{port}"
            value = self._take(scope, name, where)
            if ends and self._known(port, ends[0], step.component, where):
                self._fits(where, name, value, ends[0][port])
                said = dict(_meanings(value, ends[0][port])) | said
        for port in [p for p, wanted in ends[0].items() if not wanted.optional] if ends else []:
            if port not in step.inputs:
                self._fault(
                    "REF006",
                    f"{at}.inputs",
                    f"nothing for {step.component}.{port}",
                    "a value, or an optional port",
                )
        for port, name in step.outputs.items():
            where = f"{at}.outputs.{port}"
            known = ends and self._known(port, ends[1], step.component, where)
            made = ends[1][port].where(said) if ends and known else Kind("", None, None)
            self._make(scope, name, made, where)

    def _known(self, port: str, known: Mapping[str, Kind], component: str, at: str) -> bool:
        if port not in known:
            self._fault("REF005", at, f"the port {port!r}", f"a port of {component}: {portion(known)}")
        return port in known

    def _emit(self, step: Emit, scope: Scope, at: str) -> None:
        value = self._take(scope, step.value, f"{at}.value")
        if step.when:
            self._control(step.when, scope, f"{at}.when", "bool", False)
        if step.valid_length:
            self._control(step.valid_length, scope, f"{at}.valid_length", "int", False)
        if step.output not in self.workflow.outputs:
            expected = f"an output of this workflow: {portion(self.workflow.outputs)}"
            self._fault("REF008", f"{at}.output", repr(step.output), expected)
            return
        self.emitted.add(step.output)
        growing = step.axis if step.mode == "append" else None
        self._fits(
            f"{at}.value", step.value, value, kind(self.workflow.outputs[step.output].contract), growing
        )

    def _control(self, name: str, scope: Scope, at: str, family: str, single: bool = True) -> None:
        """A value that steers: of type bool or an integer type, and one value where rows do not each have their own."""
        found = self._take(scope, name, at)
        if found is None or not found.dtype:
            return
        fits = family in found.dtype if family == "int" else found.dtype == family
        rank = found.scalar if single else (found.rank or 0) <= 1
        if not fits or not rank:
            what = {"int": "an integer type", "bool": "bool"}[family]
            self._fault("REF016", at, f"{name}, {found}", f"{what}, {'one value' if single else 'one a row'}")

    def _loop(self, step: Loop, scope: Scope, at: str) -> None:
        inner = dict(scope)
        self._steps(step.setup, inner, f"{at}.setup")
        self._control(step.max_iterations, inner, f"{at}.max_iterations", "int")
        cells = dict(self._carried(step.carried, inner, f"{at}.carried"))
        inner |= {name: kind(cell.contract) for name, cell in cells.items()}
        if step.iteration:
            self._make(inner, step.iteration.value, kind(step.iteration.contract), f"{at}.iteration")
            self._control(step.iteration.value, inner, f"{at}.iteration.contract", "int", False)
        self._control(step.continue_when, inner, f"{at}.continue_when", "bool", False)
        self._steps(step.steps, inner, f"{at}.steps")
        for i, carry in enumerate(step.carried):
            value = self._take(inner, carry.next, f"{at}.carried[{i}].next")
            if cell := cells.get(carry.cell):
                self._fits(f"{at}.carried[{i}].next", carry.next, value, kind(cell.contract), _axis(cell))
        scope |= {name: kind(cell.contract) for name, cell in cells.items()}

    def _carried(self, carried: Sequence[Carry], scope: Scope, at: str) -> Iterator[tuple[str, Cell]]:
        """The cells that a loop carries; each begins with a value that exists before the first turn."""
        for i, carry in enumerate(carried):
            cell = self.workflow.state.get(carry.cell)
            if cell is None:
                self._fault("REF010", f"{at}[{i}].cell", repr(carry.cell), "a state cell of this workflow")
                continue
            self.advanced.add(carry.cell)
            initial, where = (
                (carry.initial, f"{at}[{i}].initial") if carry.initial else (cell.initializer, "")
            )
            value = self._take(scope, initial, where or f"state.{carry.cell}.initializer")
            self._fits(where or f"state.{carry.cell}", initial, value, kind(cell.contract), _axis(cell))
            yield carry.cell, cell

    def _branch(self, step: Branch, scope: Scope, at: str) -> None:
        found = self._take(scope, step.predicate, f"{at}.predicate")
        if found and found.dtype and not (found.scalar and (found.dtype == "bool" or "int" in found.dtype)):
            self._fault(
                "REF016",
                f"{at}.predicate",
                f"{step.predicate}, {found}",
                "bool or an integer type, one value",
            )
        cases = {**step.cases} | ({"default": step.default} if step.default else {})
        if not step.cases:
            self._fault("REF017", f"{at}.cases", "no case", "at least one")
        inside = dict[str, Scope]()
        for name, case in cases.items():
            inside[name] = dict(scope)
            where = f"{at}.default" if case is step.default else f"{at}.cases.{name}"
            self._step(case, inside[name], where)
        for name, output in step.outputs.items():
            given = {**output.cases} | ({"default": output.default} if output.default else {})
            where = f"{at}.outputs.{name}"
            if given.keys() != cases.keys():
                self._fault("REF017", where, f"a value in {portion(given)}", f"one in {portion(cases)}")
            kinds = [
                self._take(inside.get(c, scope), value, f"{where}.cases.{c}") for c, value in given.items()
            ]
            made = [one for one in kinds if one is not None]
            for one in made[1:]:
                self._fits(where, name, one, made[0])
            self._make(scope, name, made[0] if made else Kind("", None, None), where)


def _meanings(value: Kind | None, port: Kind) -> Iterator[tuple[str, int | str]]:
    """What the symbols of a port stand for, given this value."""
    for symbol, dimension in zip(port.shape or (), (value and value.shape) or (), strict=False):
        if isinstance(symbol, str) and symbol and dimension:
            yield symbol, dimension


def _axis(cell: Cell) -> int | None:
    """The axis on which a cell may be longer than its contract says."""
    return getattr(cell.recurrence, "axis", None)


def portion(names: Mapping[str, object]) -> str:
    """The first few names of many."""
    shown = list(names)[:8]
    return ", ".join(shown) + (f" and {len(names) - 8} more" if len(names) > 8 else "") or "none"


def flows(package: "Opened") -> tuple[Flow, ...]:
    """The flow of every document but the annotated copy, followed once."""
    if package.kept.get("flows") is None:
        package.kept["flows"] = tuple(
            _flow(package, name, document)
            for name, document in package.documents.items()
            if document.pipeline and "annotated" not in name
        )
    return package.kept["flows"]


def _flow(package: "Opened", name: str, document: Document) -> Flow:
    assert document.pipeline is not None
    workflow, graphs = document.pipeline.workflow, package.components_of(document)
    ends = {component: ports(said, graphs.get(component)) for component, said in workflow.components.items()}
    return Flow(name, workflow, ends).follow()
