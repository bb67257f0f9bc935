"""What a workflow is fed, and what must come of it: the decoder driven directly is the measure."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cabochon.metadata.document import DTYPES, Input
from cabochon.metadata.vocabulary import end_tokens
from cabochon.validation.described import Described
from cabochon.validation.execution.bench import Bench, constant
from cabochon.validation.execution.decoder import State, Step
from cabochon.validation.execution.driven import Driven
from cabochon.validation.execution.runner import UNDRIVEN, undriven
from cabochon.validation.execution.workflow import Execution

__all__ = ["carried_out", "impossible"]

_NEW = 6  # tokens that a loop generates
_GREEDY = {
    "sampling_temperature": 0.0,
    "sampling_top_k": 1,
    "sampling_top_p": 1.0,
    "sampling_min_p": 0.0,
    "seed": 0,
}


def impossible(one: Described) -> str:
    """Why the steps of a document cannot be carried out here; "" where they can."""
    optional = {given.present_as for given in one.workflow.inputs.values() if given.present_as}
    brought = {name for name, c in one.workflow.components.items() if c.implementation.kind != "onnx"}
    others = [name for name in _run_without(one.workflow.steps, optional) if name in brought]
    if others:
        return f"{one.name}: the runtime brings {', '.join(others)}, not the package"
    roles = {role for c in one.workflow.components.values() for role in c.ports.roles.values()}
    makes_tokens = any(output.role == "tokens" for output in one.workflow.outputs.values())
    return f"{one.name}: no port has the role logits" if makes_tokens and "logits" not in roles else ""


def _run_without(steps: Iterable[Any], optional: Collection[str]) -> Iterator[str]:
    """The components that run where nothing of what is `optional` is present."""
    for step in steps:
        if step.kind == "invoke":
            yield step.component
        elif step.kind == "branch":
            taken = [] if step.predicate in optional else list(step.cases.values())
            yield from _run_without([*taken, *([step.default] if step.default else [])], optional)
        elif step.kind in ("sequence", "loop"):
            yield from _run_without([*getattr(step, "setup", ()), *step.steps], optional)


def carried_out(bench: Bench, one: Described, driven: Driven) -> Iterator[tuple[str, str, str]]:
    """(where, found, expected): the steps of a document against the decoder driven directly."""
    tokens = [name for name, output in one.workflow.outputs.items() if output.role == "tokens"]
    short, long = driven.lengths[0], max(1, driven.lengths[-1] - _NEW)
    sizes = [(1, short), (1, long), *([(2, short)] if driven.batches else [])]
    made = [Request(bench, one, driven, driven.ids(n, rows), driven.decoder.empty(rows)) for rows, n in sizes]
    for request in made:
        yield from request.generated(tokens) if tokens else request.passed()
    if tokens and made[-1].endable:
        yield from made[-1].ending().generated(tokens)


@dataclass(frozen=True)
class Request:
    """One request to a workflow: `ids` [B, S] after `state`. `end`: the id that ends it, in place of the package's."""

    bench: Bench
    document: Described
    driven: Driven
    ids: np.ndarray
    state: State
    end: int | None = None

    def run(self) -> dict[str, Any]:
        """What the steps emit. Raises PackageError for a step that cannot be carried out."""
        workflow = self.document.workflow
        runners = {name: self.bench.runner(graph) for name, graph in self.document.graphs.items()}
        given = {name: each for name, each in workflow.inputs.items() if not each.present_as}
        inputs = {name: self.value(name, each) for name, each in given.items()}
        inputs |= {each.present_as: np.array(False) for each in workflow.inputs.values() if each.present_as}
        return Execution(workflow, runners, inputs, self.document.at()).run()

    def value(self, name: str, given: Input) -> np.ndarray:
        """What this request says for an input of the workflow."""
        dtype = DTYPES[given.contract.dtype]
        for cell, its in self.document.workflow.state.items():
            if its.initializer == name and cell in self.state.cells:
                return self.state.cells[cell]
        said = self._said(name, given)
        if isinstance(said, np.ndarray):
            return said.astype(dtype)
        return constant(said, given.contract.shape, dtype, self._size)

    def _said(self, name: str, given: Input) -> Any:
        role = getattr(given.role, "role", None)
        if role == "prompt_tokens" or self._takes(name) == "token_ids":
            return self.ids
        if role in ("max_iterations", "max_output_tokens"):
            return _NEW
        if role == "eos_token_ids":
            return np.tile(np.array(sorted(self.ends) or [-1]), (len(self.ids), 1))
        if role == "eos_token_lengths":
            return len(self.ends)
        if self.end is not None and self._states_ends(given):
            return self.end
        if role in _GREEDY:
            return _GREEDY[role]
        if given.default is not None:
            return given.default
        if self._takes(name) == "attention_mask":
            own = np.ones(self.ids.shape, bool)
            return np.concatenate([self.state.mask, own], 1) if self._feeds(name) else self.state.mask
        if self._takes(name) == "position_ids":
            start = self.state.mask.shape[1]
            return np.tile(np.arange(start, start + self.ids.shape[1]), (len(self.ids), 1))
        serving = self.document.workflow.serving
        return bool(serving and name == serving.active)

    def _feeds(self, name: str) -> bool:
        """Whether an input of the workflow goes to the decoder, and not only to what reads its cells."""
        steps = [step for _, step in self.document.invocations if name in step.inputs.values()]
        return any(step.component == self.driven.decoder.name for step in steps)

    def _takes(self, name: str) -> str | None:
        """The role of the port that an input of the workflow goes to."""
        for _, step in self.document.invocations:
            roles = self.document.workflow.components[step.component].ports.roles
            for port, value in step.inputs.items():
                if value == name and port in roles:
                    return roles[port]
        return None

    def _size(self, symbol: str) -> int:
        return len(self.ids) if symbol == "batch" else 1

    @property
    def ends(self) -> set[int]:
        """The ids that end an answer."""
        return self._own_ends if self.end is None else {self.end}

    @property
    def _own_ends(self) -> set[int]:
        files = (self.bench.package.json(name) or {} for name in ("generation_config.json", "config.json"))
        return {token for file in files for token in end_tokens(file)}

    def _states_ends(self, given: Input) -> bool:
        """The input's default is the ids that end an answer."""
        said = given.default if isinstance(given.default, tuple) else (given.default,)
        return set(said) == self._own_ends

    @property
    def endable(self) -> bool:
        """The workflow takes the ids that end an answer from an input."""
        given = self.document.workflow.inputs.values()
        roles = {getattr(one.role, "role", None) for one in given}
        return "eos_token_ids" in roles or any(self._states_ends(one) for one in given)

    def ending(self) -> "Request":
        """The same request, ended by the third token that the first row gives."""
        ids, _ = greedy(self.driven, self.ids, 3)
        return replace(self, end=ids[0][2])

    def generated(self, outputs: list[str]) -> Iterator[tuple[str, str, str]]:
        """The ids of a loop against the greedy ones of the decoder, up to the first that ends."""
        wanted, clear = greedy(self.driven, self.ids, _NEW)
        try:
            emitted = self.run()
        except UNDRIVEN as error:
            yield self._stuck(error)
            return
        for output in outputs:
            rows = [
                np.concatenate([np.ravel(p) for p in parts] or [np.empty(0)])
                for parts in emitted.get(output, [])
            ]
            for row, expected in enumerate(wanted):
                got = [int(token) for token in rows[row]] if row < len(rows) else []
                if self._other(got, expected, clear[row]):
                    what = f"row {row + 1} of {len(wanted)} after {self.ids.shape[1]} tokens: {got}"
                    yield (
                        self.document.at("outputs", output),
                        what,
                        f"the decoder's own greedy ids {expected}",
                    )

    def _stuck(self, error: Exception) -> tuple[str, str, str]:
        at = getattr(error, "at", "") or self.document.at("steps")
        return at, undriven(error), "steps that can be carried out"

    def _other(self, got: list[int], expected: list[int], clear: list[bool]) -> bool:
        """Not the same ids up to the end, which may be emitted or not. A choice too close to call ends the question."""
        last = next((i for i, token in enumerate(expected) if token in self.ends), len(expected))
        for a, b, sure in zip(got, expected[: last + 1], clear, strict=False):
            if a != b:
                return sure
        return len(got) not in (last, min(last + 1, len(expected)))

    def passed(self) -> Iterator[tuple[str, str, str]]:
        """What one pass emits, from nothing and from a state, against the decoder's own results.

        A component that only reads what another remembers begins when there is something to read.
        """
        first = self.driven.decoder.step(self.state, self.ids)
        then = Request(
            self.bench, self.document, self.driven, self.driven.ids(1, len(self.ids), 1), first.state
        )
        second = self.driven.decoder.step(first.state, then.ids)
        turns = ((self, first), (then, second))
        for request, step in turns[1:] if self._reads else turns:
            try:
                emitted = request.run()
            except UNDRIVEN as error:
                yield self._stuck(error)
                return
            yield from request.compared(emitted, step)

    @property
    def _reads(self) -> bool:
        return any(served.alias.access == "read_only" for served in self.document.served)

    def compared(self, emitted: Mapping[str, Any], step: Step) -> Iterator[tuple[str, str, str]]:
        """Each emitted value that is a result of the decoder, against that."""
        for value, output in _emits(self.document):
            port = self._port(value)
            if port not in step.outputs or not isinstance(emitted.get(output), np.ndarray):
                continue
            if apart := self.driven.beyond({port: step.outputs[port]}, {port: emitted[output]}):
                when = f"{self.ids.shape[1]} tokens after {self.state.mask.shape[1]}: {apart}"
                yield self.document.at("outputs", output), when, "what the decoder gives with its aliases fed"

    def _port(self, value: str) -> str:
        """The decoder's output that is called `value`."""
        steps = (step for _, step in self.document.invocations if step.component == self.driven.decoder.name)
        return next((port for step in steps for port, name in step.outputs.items() if name == value), "")


def _emits(one: Described) -> Iterator[tuple[str, str]]:
    return ((step.value, step.output) for step in one.workflow.steps if step.kind == "emit")


def greedy(one: Driven, ids: np.ndarray, count: int) -> tuple[list[list[int]], list[list[bool]]]:
    """The likeliest ids of each row, one after the other, and whether each was clearly so."""
    name = next(port for port, role in one.decoder.roles.items() if role == "logits")
    step, tokens, clear = one.run([ids]), list[np.ndarray](), list[np.ndarray]()
    for turn in range(count):
        logits = step.outputs[name][:, -1].astype(np.float32)
        two = np.sort(logits, axis=-1)[:, -2:]
        tokens.append(logits.argmax(-1))
        clear.append(two[:, -1] - two[:, 0] > 2 * one.tolerance * np.abs(logits).max(-1))
        if turn < count - 1:
            step = one.decoder.step(step.state, tokens[-1][:, None])
    return np.stack(tokens, 1).tolist(), np.stack(clear, 1).tolist()
