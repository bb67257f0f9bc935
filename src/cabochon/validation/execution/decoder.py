"""A component that remembers, driven by what the document says: roles of ports, aliases of cells.

B rows · C columns fed so far (evicted ones included) · S new ones. States are values: a step makes a new one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cabochon.metadata.document import Alias, Component, Group
from cabochon.metadata.ports import Port
from cabochon.validation.execution.runner import Runner

__all__ = ["Decoder", "Held", "State", "Step"]

_TABLE = 512  # rows of the table that ids are looked up in where a component takes embeddings


class Held(NamedTuple):
    """A cell of the component: the group that serves it, and its ports."""

    cell: str
    group: str
    alias: Alias


@dataclass(frozen=True)
class State:
    """Values of the cells by name, and which columns fed so far are real, [B, C]."""

    cells: Mapping[str, np.ndarray]
    mask: np.ndarray


class Step(NamedTuple):
    """What a step gives. `outputs` by port, without the caches; `fresh`: what the caches got, columns on axis 1."""

    outputs: Mapping[str, np.ndarray]
    fresh: Mapping[str, np.ndarray]
    state: State

    @property
    def results(self) -> dict[str, np.ndarray]:
        """All that two runs are compared by."""
        return {**self.outputs, **self.fresh}


@dataclass(frozen=True)
class Decoder:
    """A component with cells of its own. `mask`: how real tokens may lie, "" where the graph does not say.

    `vocabulary` bounds the ids that are fed; `defaults` are values for inputs without a role, by port; `embed` makes of
    ids [B, S] what the graph takes for them where another component does that, and `placeholders` are the ids that need
    something there which is no word.
    """

    name: str
    component: Component
    runner: Runner
    groups: Mapping[str, Group]
    mask: str
    vocabulary: int
    defaults: Mapping[str, np.ndarray]
    embed: Callable[[np.ndarray], Mapping[str, np.ndarray]] | None = None
    placeholders: tuple[int, ...] = ()

    @cached_property
    def held(self) -> tuple[Held, ...]:
        """The cells it advances."""
        return tuple(
            Held(cell, name, alias)
            for name, group in self.groups.items()
            for cell, alias in group.ports.get(self.name, {}).items()
            if alias.access == "read_write" and alias.output
        )

    @property
    def roles(self) -> Mapping[str, str]:
        """The roles of its ports."""
        return self.component.ports.roles

    def port(self, role: str) -> Port | None:
        """The input that plays a role."""
        inputs = self.runner.graph.ports.inputs
        return next(
            (inputs[name] for name, its in self.roles.items() if its == role and name in inputs), None
        )

    def axis(self, held: Held) -> int | None:
        """The axis on which a cell grows."""
        return self.groups[held.group].sequence_axis

    def empty(self, rows: int = 1) -> State:
        """Nothing fed yet."""
        cells = {held.cell: self._nothing(held, rows) for held in self.held}
        return State(cells, np.zeros((rows, 0), bool))

    def _nothing(self, held: Held, rows: int) -> np.ndarray:
        port, axis = self.runner.graph.ports.inputs[held.alias.input], self.axis(held)
        sizes = [0 if i == axis else rows if i == 0 else d for i, d in enumerate(port.shape)]
        return np.zeros([d if isinstance(d, int) else 1 for d in sizes], port.dtype)

    def step(self, state: State, ids: np.ndarray, real: np.ndarray | None = None) -> Step:
        """Feed `ids` [B, S], of which `real` [B, S] are tokens (all where omitted).

        Raises PackageError where the graph fails, RequestError where the mask's kind does not allow it.
        """
        mask = self.extended(state.mask, np.ones(ids.shape, bool) if real is None else real)
        made = self.runner.run(self.feeds(state, ids, mask))
        cells = {held.cell: made.pop(held.alias.output or "") for held in self.held}
        return Step(made, self._fresh(cells, ids.shape[1]), State(cells, mask))

    def extended(self, mask: np.ndarray, real: np.ndarray) -> np.ndarray:
        """The mask after new columns."""
        from cabochon.runtime.columns import extended

        return extended(mask, real, self.mask == "left-justified")

    def _fresh(self, cells: Mapping[str, np.ndarray], new: int) -> dict[str, np.ndarray]:
        found = dict[str, np.ndarray]()
        for held in self.held:
            if (axis := self.axis(held)) is not None:
                columns = np.moveaxis(cells[held.cell], axis, 1)
                found[held.alias.output or ""] = columns[:, max(0, columns.shape[1] - new) :]
        return found

    def feeds(self, state: State, ids: np.ndarray, mask: np.ndarray) -> dict[str, np.ndarray]:
        """What the graph is fed. Optional inputs are left out."""
        given = {held.alias.input: state.cells[held.cell] for held in self.held} | dict(self.defaults)
        if self.embed:
            given |= self.embed(ids)
        for name, port in self.runner.graph.ports.inputs.items():
            if name not in given and not port.optional:
                given[name] = self._value(port, ids, mask)
        return given

    def _value(self, port: Port, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        match self.roles.get(port.name):
            case "token_ids":
                return ids.astype(port.dtype)
            case "inputs_embeds":
                return self._embedded(port, ids)
            case "attention_mask":
                return mask.astype(port.dtype)
            case "position_ids":
                return (mask.cumsum(1) - 1).clip(0)[:, mask.shape[1] - ids.shape[1] :].astype(port.dtype)
            case _:
                rows = len(ids)
                sizes = [d if isinstance(d, int) else rows if i == 0 else 1 for i, d in enumerate(port.shape)]
                return np.zeros(sizes, port.dtype)

    def _embedded(self, port: Port, ids: np.ndarray) -> np.ndarray:
        width = port.shape[-1]
        table = np.random.default_rng(0).standard_normal((_TABLE, width if isinstance(width, int) else 1))
        return table[ids % _TABLE].astype(port.dtype)

    def fed(self, chunks: Sequence[np.ndarray], state: State | None = None) -> Step:
        """Several steps; what the last gives."""
        assert chunks
        state = state or self.empty(len(chunks[0]))
        for chunk in chunks[:-1]:
            state = self.step(state, chunk).state
        return self.step(state, chunks[-1])

    def changed(self, state: State, how: Callable[[Held, np.ndarray], np.ndarray]) -> State:
        """A state with other values in its cells."""
        cells = {held.cell: np.ascontiguousarray(how(held, state.cells[held.cell])) for held in self.held}
        return replace(state, cells=cells)

    def ends(self, step: Step, real: np.ndarray) -> dict[str, np.ndarray]:
        """Of each output [B, K, ...] what belongs to each row's last real token, [B, ...]; `real` [B, S]."""
        last = real.shape[1] - 1 - real[:, ::-1].argmax(1)
        return {
            name: made[np.arange(len(made)), last if made.shape[1] == real.shape[1] else -1]
            for name, made in step.outputs.items()
            if made.ndim > 2
        }
