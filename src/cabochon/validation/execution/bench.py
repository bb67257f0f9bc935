"""What the rules on behaviour share: the decoders of a package in sessions, what they are fed, how exact they are."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cabochon.errors import CabochonError, PackageError
from cabochon.metadata.document import Component, Document, Group, Workflow
from cabochon.metadata.ports import Port
from cabochon.validation.execution.decoder import Decoder
from cabochon.validation.execution.driven import AHEAD, MOST, Driven
from cabochon.validation.execution.runner import UNDRIVEN, Runner, natural, undriven, unfeedable
from cabochon.validation.graph import Graph
from cabochon.validation.opened import Opened

__all__ = ["WORK", "Bench", "bench", "constant"]

WORK = (
    250e9  # multiplications that one run may take: weights × tokens; E2B then runs about 50 tokens at a time
)
_LEAST = 24  # tokens of a run, however large the model


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
        _embedder(made, graph),
        _placeholders(made.package) if "inputs_embeds" in graph.ports.inputs else (),
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


def _embedder(made: Bench, graph: Graph) -> Callable[[np.ndarray], dict[str, np.ndarray]] | None:
    """What makes of ids the embeddings that a graph takes: a component that takes ids, and rows of features or none."""
    if "inputs_embeds" not in graph.ports.inputs:
        return None
    makers = (g for g in made.package.components.values() if "inputs_embeds" in g.ports.outputs)
    maker = next((g for g in makers if "input_ids" in g.ports.inputs), None)
    if maker is None:
        return None
    runner, others = (
        made.runner(maker),
        [port for name, port in maker.ports.inputs.items() if name != "input_ids"],
    )
    nothing = {port.name: _no_rows(port) for port in others}

    def embed(ids: np.ndarray) -> dict[str, np.ndarray]:
        found = runner.run({"input_ids": ids.astype(maker.ports.inputs["input_ids"].dtype), **nothing})
        return {name: value for name, value in found.items() if name in graph.ports.inputs}

    return embed


def _placeholders(package: Opened) -> tuple[int, ...]:
    """The tokens of config.json that stand for media."""
    said = package.json("config.json") or {}
    ids = (said.get(f"{medium}_token_id") for medium in ("image", "video", "audio"))
    return tuple(number for number in ids if isinstance(number, int))


def _no_rows(port: Port) -> np.ndarray:
    return np.zeros([d if isinstance(d, int) else 0 for d in port.shape], port.dtype)


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
    affordable = int(np.clip(WORK // max(weights, 1), _LEAST, MOST))
    return max(AHEAD + 2, min(affordable, limit or MOST))


def constant(said: Any, shape: Any, dtype: str, sizes: Callable[[str], int]) -> np.ndarray:
    """A default as the array of its contract: symbols by `sizes`, a scalar or a row repeated."""
    dims = tuple(d if isinstance(d, int) else sizes(d) for d in shape or ())
    value = np.asarray(said, dtype)
    return (
        value.reshape(dims).copy() if value.size == math.prod(dims) else np.broadcast_to(value, dims).copy()
    )
