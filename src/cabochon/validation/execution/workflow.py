"""A workflow carried out as its steps say: the names of values, and what each step makes of them."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import numpy as np

from cabochon.errors import PackageError
from cabochon.metadata.document import Branch, BranchOutput, Emit, Invoke, Loop, Sequence, Step, Workflow

__all__ = ["Execution", "Runs"]

_REMEDY = "correct the steps of the document"


class Runs(Protocol):
    """A graph that can be run."""

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name."""
        ...


class Execution:
    """`components`: what runs each component; `inputs`: a value for each input of the workflow.

    `emitted` holds for each output its value (mode replace), a list of the parts of each row (append), or a list
    (event). A loop may make `turns` turns.
    """

    def __init__(
        self,
        workflow: Workflow,
        components: Mapping[str, Runs],
        inputs: Mapping[str, np.ndarray],
        at: str,
        turns: int = 64,
    ) -> None:
        self.workflow, self.components = workflow, components
        self.values = dict(inputs)
        self.emitted: dict[str, Any] = {}
        self._at, self._turns = at, turns

    def run(self) -> dict[str, Any]:
        """Carry out all steps. Raises PackageError, with the step's address, for one that cannot be."""
        self._steps(self.workflow.steps, f"{self._at}.steps")
        return self.emitted

    def _steps(self, steps: Iterable[Step], at: str) -> None:
        for i, step in enumerate(steps):
            self._step(step, f"{at}[{i}]")

    def _step(self, step: Step, at: str) -> None:
        match step:
            case Sequence():
                self._steps(step.steps, f"{at}.steps")
            case Invoke():
                self._invoke(step, at)
            case Loop():
                self._loop(step, at)
            case Branch():
                self._branch(step, at)
            case Emit():
                self._emit(step, at)

    def value(self, name: str, at: str) -> np.ndarray:
        """A value by its name; a cell that nothing carries is what it began with."""
        if name in self.values:
            return self.values[name]
        cell = self.workflow.state.get(name)
        if cell is None or cell.initializer not in self.values:
            raise PackageError(f"{name!r} has no value yet; expected one made before", at=at, remedy=_REMEDY)
        return self.values[cell.initializer]

    def _invoke(self, step: Invoke, at: str) -> None:
        component = self.components.get(step.component)
        if component is None:
            raise PackageError(
                f"component {step.component!r} has no graph; expected one", at=at, remedy=_REMEDY
            )
        feeds = {port: self.value(name, f"{at}.inputs.{port}") for port, name in step.inputs.items()}
        try:
            made = component.run(feeds)
        except PackageError as error:
            raise PackageError(error.message, at=at, remedy=error.remedy) from None
        for port, name in step.outputs.items():
            if port not in made:
                raise PackageError(f"no output {port!r} was made", at=at, remedy=_REMEDY)
            self.values[name] = made[port]

    def _loop(self, step: Loop, at: str) -> None:
        """The condition is looked at before each turn; all cells change at once, after it."""
        self._steps(step.setup, f"{at}.setup")
        for carry in step.carried:
            cell = self.workflow.state.get(carry.cell)
            first = carry.initial or (cell.initializer if cell else "")
            self.values[carry.cell] = self.value(first, f"{at}.carried.{carry.cell}")
        for turn in range(self._whole(step.max_iterations, f"{at}.max_iterations")):
            if step.iteration:
                rank = step.iteration.contract.shape or ()
                self.values[step.iteration.value] = np.full((1,) * len(rank), turn, np.int64)
            if not self.value(step.continue_when, f"{at}.continue_when").any():
                break
            if turn >= self._turns:
                raise PackageError(f"more than {self._turns} turns; expected an end", at=at, remedy=_REMEDY)
            self._steps(step.steps, f"{at}.steps")
            following = {c.cell: self.value(c.next, f"{at}.carried.{c.cell}") for c in step.carried}
            self.values.update(following)

    def _branch(self, step: Branch, at: str) -> None:
        case = self._case(step.predicate, at)
        taken = step.cases.get(case, step.default)
        if taken is None:
            raise PackageError(f"no case {case!r} and no default", at=at, remedy=_REMEDY)
        self._step(taken, f"{at}.cases.{case}" if case in step.cases else f"{at}.default")
        for name, output in step.outputs.items():
            self.values[name] = self.value(self._phi(output, case), f"{at}.outputs.{name}")

    def _phi(self, output: BranchOutput, case: str) -> str:
        return output.cases.get(case) or output.default or ""

    def _case(self, name: str, at: str) -> str:
        """A predicate's value as a case is spelled: "true", "false", or a whole number."""
        value = self.value(name, f"{at}.predicate").reshape(-1)[:1]
        return str(bool(value[0])).lower() if value.dtype == bool else str(int(value[0]))

    def _whole(self, name: str, at: str) -> int:
        value = self.value(name, at).reshape(-1)
        if value.size != 1:
            raise PackageError(
                f"{name!r} has {value.size} values; expected one number", at=at, remedy=_REMEDY
            )
        return int(value[0])

    def _emit(self, step: Emit, at: str) -> None:
        value = self.value(step.value, f"{at}.value")
        when = None if step.when is None else self.value(step.when, f"{at}.when")
        if step.mode == "append":
            self._append(step, value, when, at)
        elif when is None or when.all():
            if step.mode == "replace":
                self.emitted[step.output] = value
            else:
                self.emitted.setdefault(step.output, []).append(value)

    def _append(self, step: Emit, value: np.ndarray, when: np.ndarray | None, at: str) -> None:
        """Row by row: rows that `when` leaves out get nothing, others their first `valid_length` entries."""
        axis = (1 if step.axis is None else step.axis) - 1
        lengths = None if step.valid_length is None else self.value(step.valid_length, f"{at}.valid_length")
        rows = self.emitted.setdefault(step.output, [[] for _ in value])
        for row, part in enumerate(value):
            if when is None or _of_row(when, row):
                count = part.shape[axis] if lengths is None else int(_of_row(lengths, row))
                rows[row].append(part[(slice(None),) * axis + (slice(count),)])


def _of_row(value: np.ndarray, row: int) -> Any:
    flat = value.reshape(-1)
    return flat[row if flat.size > 1 else 0]
