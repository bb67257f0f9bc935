"""What the rules on behaviour share: the decoders of a package in sessions, what they are fed, how exact they are."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cabochon.errors import CabochonError, PackageError
from cabochon.metadata.document import Component, Document, Group, Workflow
from cabochon.validate.execution.agreement import EXACT, HALF_LEAST, HALF_MOST, Gap, gap
from cabochon.validate.execution.decoder import Decoder, Held, Step
from cabochon.validate.execution.runner import UNDRIVEN, Runner, natural, undriven, unfeedable
from cabochon.validate.graph import Graph
from cabochon.validate.opened import Opened

__all__ = ["SEED", "WORK", "Bench", "Driven", "bench", "constant"]

SEED = 20261129  # of every random number that is fed
WORK = 250e9  # multiplications that one run may take: weights × tokens; E2B then runs 53 tokens at a time
_LEAST, _MOST = (
    24,
    1056,
)  # tokens of a run, whatever the model's size: the latter crosses a window of 512 twice
_SHORT = 48  # tokens of a run that cannot cross the window
_AHEAD = 4  # tokens that are fed behind a run, to see what it left


@dataclass
class Driven:
    """A decoder, and lengths of runs that cross its window as far as they are affordable."""

    decoder: Decoder
    window: int | None
    most: int  # tokens of one run

    @property
    def wanted(self) -> tuple[int, ...]:
        """Lengths around the window; without one, two of which the second is cut otherwise."""
        w = self.window
        return (5, 12) if w is None else tuple(n for n in (w - 1, w, w + 1, 2 * w + 3) if n > 1)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Those of them that are affordable; a single short one where none is."""
        return tuple(n for n in self.wanted if n + _AHEAD <= self.most) or (min(self.most - _AHEAD, _SHORT),)

    @property
    def unreached(self) -> tuple[int, ...]:
        """Those that are not."""
        return tuple(n for n in self.wanted if n + _AHEAD > self.most)

    def ids(self, count: int, rows: int = 1, turn: int = 0) -> np.ndarray:
        """Random ids [rows, count]: the same for the same arguments."""
        rng = np.random.default_rng((SEED, turn))
        return np.ascontiguousarray(rng.integers(0, self.decoder.vocabulary, (rows, _MOST))[:, :count])

    @cached_property
    def half(self) -> bool:
        """Some result is f16."""
        return any(port.dtype == "float16" for port in self.decoder.runner.graph.ports.outputs.values())

    @cached_property
    def tolerance(self) -> float:
        """How far two runs may be apart. In f32 1e-4.

        In f16 four times what the same tokens differ by when they are fed whole and in other chunks (halves, thirds,
        and the last one alone): rounding, not the claim under test. It is at least 2^-9, and at most 2^-4 so that a
        faulty graph cannot excuse itself.
        """
        if not self.half:
            return EXACT
        ids, n = self.ids(self.lengths[-1]), self.lengths[-1]
        whole = self.decoder.fed([ids]).results
        cuts = ([n // 2], [n // 3, 2 * n // 3], [n - 1])
        noise = max(self._apart(whole, np.split(ids, cut, axis=1)) for cut in cuts)
        return float(np.clip(4 * noise, HALF_LEAST, HALF_MOST))

    def _apart(self, whole: Mapping[str, np.ndarray], chunks: list[np.ndarray]) -> float:
        return gap(whole, self.decoder.fed([c for c in chunks if c.size]).results).size

    def beyond(self, one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> str:
        """How far two runs are apart, in words; "" where they agree."""
        apart: Gap = gap(one, other)
        if apart.size <= self.tolerance:
            return ""
        return (
            f"{apart.where} differs by {apart.size:.2g} of its largest value, more than {self.tolerance:.2g}"
        )

    def rows_aligned(self) -> bool:
        """The document says that the first axis of tokens, caches and results are independent rows."""
        ports = self.decoder.component.ports
        said = [*ports.inputs.values(), *ports.outputs.values()]
        axes = {
            getattr(c.batch_layout, "axis", None) for c in said if c.batch_layout.kind == "request_aligned"
        }
        roles = [ports.inputs.get(n) or ports.outputs.get(n) for n in ports.roles]
        return axes == {0} and all(c is None or c.batch_layout.kind == "request_aligned" for c in roles)

    @cached_property
    def batches(self) -> bool:
        """Two rows run at all, and the document says that they are independent; whether they are is a rule's matter."""
        try:
            self.decoder.fed([self.ids(self.lengths[-1], rows=2), self.ids(1, rows=2)])
        except UNDRIVEN:
            return False
        return self.rows_aligned()

    def cut(self, held: Held, value: np.ndarray, keep: slice) -> np.ndarray:
        """Some columns of a cell, a new array."""
        axis = self.decoder.axis(held)
        assert axis is not None
        return value[(slice(None),) * axis + (keep,)].copy()

    def run(self, chunks: list[np.ndarray]) -> Step:
        """Several steps from nothing."""
        return self.decoder.fed(chunks)


@dataclass
class Bench:
    """`workflow`: of the canonical document. `driven`: its decoders; `faults`: why a component cannot be run."""

    package: Opened
    document: Document
    workflow: Workflow
    driven: dict[str, Driven] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    _runners: dict[str, Runner | CabochonError] = field(default_factory=dict)

    def runner(self, graph: Graph) -> Runner:
        """The session of a graph, opened once. Raises PackageError where it does not open."""
        if graph.path not in self._runners:
            try:
                self._runners[graph.path] = Runner(graph)
            except CabochonError as error:
                self._runners[graph.path] = error
        opened = self._runners[graph.path]
        if isinstance(opened, CabochonError):
            raise opened
        return opened

    @property
    def groups(self) -> Mapping[str, Group]:
        """The state groups of the canonical document."""
        serving = self.workflow.serving
        return serving.state_service.groups if serving else {}

    @property
    def unfeedable(self) -> str:
        """Why the graphs of the canonical document cannot be fed; "" where they can."""
        return next((why for graph in self.package.components.values() if (why := unfeedable(graph))), "")

    @property
    def elsewhere(self) -> str:
        """Which provider runs the decoder in place of its target's; "" where it is the target's."""
        for one in self.driven.values():
            runner = one.decoder.runner
            if (own := natural(runner.graph)) != runner.provider:
                return f"{runner.provider} in place of {own}, which this onnxruntime does not have"
        return ""


def bench(package: Opened) -> Bench:
    """The bench of a package, set up once."""
    if "bench" not in package.kept:
        package.kept["bench"] = _set_up(package)
    return package.kept["bench"]


def _set_up(package: Opened) -> Bench:
    document = package.document
    assert document and document.pipeline  # rules need "document"
    made = Bench(package, document, document.pipeline.workflow)
    if made.unfeedable:
        return made
    for name, graph in package.components.items():
        try:
            _put(made, name, made.workflow.components[name], graph)
        except UNDRIVEN as error:
            made.faults[name] = undriven(error)
    return made


def _put(made: Bench, name: str, component: Component, graph: Graph) -> None:
    runner = made.runner(graph)
    decoder = Decoder(
        name,
        component,
        runner,
        made.groups,
        graph.properties.get("cabochon.mask", ""),
        _vocabulary(component, graph, made.document),
        {},
    )
    if not decoder.held or not (decoder.port("token_ids") or decoder.port("inputs_embeds")):
        return
    ports = graph.ports
    for held in decoder.held:
        if held.alias.input not in ports.inputs or held.alias.output not in ports.outputs:
            raise PackageError(
                f"the graph has no ports {held.alias.input!r} and {held.alias.output!r}", at=name
            )
    one = Driven(decoder, _window(made, graph), _affordable(graph, made.document))
    first = one.decoder.fed([one.ids(3), one.ids(1)])  # what cannot run at all is found here, once
    if first.outputs or first.state.cells:
        made.driven[name] = one


def _vocabulary(component: Component, graph: Graph, document: Document) -> int:
    name = next((n for n, role in component.ports.roles.items() if role == "logits"), "")
    port = graph.ports.outputs.get(name)
    size = port.shape[-1] if port and port.shape else None
    stated = document.model.vocab_size if document.model else None
    return size if isinstance(size, int) and size > 0 else stated or 32


def _window(made: Bench, graph: Graph) -> int | None:
    """Keys that a sliding layer sees, the token itself included: the graph says, or config.json."""
    said = graph.properties.get("cabochon.sliding_window", "")
    if said.isascii() and said.isdecimal() and len(said) < 10:
        return int(said)
    return made.package.config.window if made.package.config else None


def _affordable(graph: Graph, document: Document) -> int:
    weights = sum(math.prod(w.shape) for w in graph.initializers.values() if w.bits)
    limit = document.model.max_sequence_length if document.model else None
    affordable = int(np.clip(WORK // max(weights, 1), _LEAST, _MOST))
    return max(_AHEAD + 2, min(affordable, limit or _MOST))


def constant(said: Any, shape: Any, dtype: str, sizes: Callable[[str], int]) -> np.ndarray:
    """A default as the array of its contract: symbols by `sizes`, a scalar or a row repeated."""
    dims = tuple(d if isinstance(d, int) else sizes(d) for d in shape or ())
    value = np.asarray(said, dtype)
    return (
        value.reshape(dims).copy() if value.size == math.prod(dims) else np.broadcast_to(value, dims).copy()
    )
