"""What happens in which order."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cabochon.metadata.parts.part import Axis, Part, Text, Tuple, empty
from cabochon.metadata.parts.tensors import TensorContract

__all__ = ["Branch", "BranchOutput", "Carry", "Emit", "Invoke", "Iteration", "Loop", "Sequence", "Step"]


class Sequence(Part):
    """One step after another."""

    kind: Literal["sequence"] = "sequence"
    steps: Tuple[Step]


class Invoke(Part):
    """Run a component: its ports -> names of values."""

    kind: Literal["invoke"] = "invoke"
    component: Text
    inputs: dict[str, str] = empty()
    outputs: dict[str, str] = empty()


class Iteration(Part):
    """The number of the turn as a value."""

    value: Text
    contract: TensorContract


class Carry(Part):
    """A cell of the loop: its value before it (the cell's initializer by default), and after each turn."""

    cell: Text
    initial: Text | None = None
    next: Text


class Loop(Part):
    """Repeat `steps` while `continue_when` holds; inside, a cell's name is its value of this turn."""

    kind: Literal["loop"] = "loop"
    setup: Tuple[Step] = ()
    steps: Tuple[Step]
    continue_when: Text
    max_iterations: Text
    termination: Literal["predicate", "generation_eos"] = "predicate"
    iteration: Iteration | None = None
    carried: Tuple[Carry] = ()


class BranchOutput(Part):
    """The name of a value in each case."""

    cases: dict[str, str]
    default: Text | None = None


class Branch(Part):
    """Take the case that `predicate` names."""

    kind: Literal["branch"] = "branch"
    predicate: Text
    cases: dict[str, Step]
    default: Step | None = None
    outputs: dict[str, BranchOutput] = empty()


class Emit(Part):
    """Let a value leave as an output; `stream` from v1.5 on."""

    kind: Literal["emit"] = "emit"
    value: Text
    when: Text | None = None
    valid_length: Text | None = None
    output: Text
    stream: Text | None = None
    mode: Literal["replace", "append", "event"]
    axis: Axis | None = None


Step = Annotated[Sequence | Invoke | Loop | Branch | Emit, Field(discriminator="kind")]

for part in (Sequence, Loop, Branch):
    part.model_rebuild()
