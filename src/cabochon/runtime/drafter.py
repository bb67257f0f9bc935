"""The drafter of a pair: a small graph that reads the caches of its target, and where its input rows come from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cabochon.errors import PackageError
from cabochon.runtime.folder import GRAPHS, graph_file
from cabochon.runtime.graph import Value, open_graph
from cabochon.runtime.pair import embedding_file
from cabochon.runtime.ports import DTYPES, REBUILD, Argument, Cache
from cabochon.runtime.session import Session
from cabochon.runtime.state import State

SHARED = "shared_kv."
KINDS = {"full_attention": False, "sliding_attention": True}  # by whether the target's cache slides
OUTPUTS = ("logits", "projected_state")


class View(NamedTuple):
    """What all steps of one round read of the target: which columns are tokens, and its caches where they lie."""

    mask: np.ndarray
    shared: Mapping[str, Value]


class Drafter:
    """Two graphs: the drafter, and the token embedding over the target's own table, scaled."""

    def __init__(self, pair: Path, target: Session, **options: Any) -> None:
        """Open the graphs of a pair, its own and the look-up of tokens; `options` are those of `open_graph`.

        Raises PackageError where they do not fit the target.
        """
        file = graph_file(pair) or pair / GRAPHS[0]
        embedding = embedding_file(file)
        self._graph, self._embedding = open_graph(file, **options), open_graph(embedding, **options)
        self._embedded = embedding.relative_to(pair).as_posix()
        self._dtype = target.ports.dtype
        self._ids = next(iter(self._embedding.inputs))
        self._rows = next(iter(self._embedding.outputs))
        self._caches = anchors(self._graph.inputs, target.ports.caches)
        self._check(target)

    def view(self, state: State) -> View:
        """A state of the target, as the steps of a round see it; nothing is copied."""
        shared = {name: state.values[cache.past] for name, cache in self._caches.items()}
        return View(state.mask.astype(np.int64), shared)

    def step(self, token: int, hidden: np.ndarray, view: View) -> tuple[np.ndarray, np.ndarray]:
        """Logits [V], float32, of the token after `token`, and the state [D] that stands in for the next `hidden`.

        `hidden` [D] is the target's hidden state that `token` was drawn from, or such a state.
        """
        rows, _ = self._embedding.run({self._ids: np.array([[token]])}, {}, [self._rows], {})
        inputs = np.concatenate([rows[self._rows][0, 0], hidden.astype(self._dtype)])
        arrays = {"inputs_embeds": inputs[None, None], "attention_mask": view.mask}
        made, _ = self._graph.run(arrays, view.shared, OUTPUTS, {})
        return made["logits"][0, 0].astype(np.float32), made["projected_state"][0, 0]

    def _check(self, target: Session) -> None:
        given, made = self._graph.inputs, self._graph.outputs
        for name, ports in {
            "inputs_embeds": given,
            "attention_mask": given,
            **dict.fromkeys(OUTPUTS, made),
        }.items():
            if name not in ports:
                raise _unfit(name, "is missing", "a drafter has it")
        if target.ports.hidden is None:
            raise _unfit("hidden_states", "is missing", "an output of the target that the drafter reads")
        hidden = target.outputs[target.ports.hidden].shape[-1]
        expected = {
            "logits": (made["logits"], target.ports.vocabulary, "the target's vocabulary"),
            "projected_state": (made["projected_state"], hidden, "the target's hidden size"),
            "inputs_embeds": (given["inputs_embeds"], _twice(hidden), "twice the target's hidden size"),
            self._embedded: (self._embedding.outputs[self._rows], hidden, "the target's hidden size"),
        }
        for name, (port, size, what) in expected.items():
            if port.shape[-1] != size:
                raise _unfit(name, f"is {port.shape[-1]} wide", f"{size}, {what}")
            if DTYPES.get(port.type) != self._dtype:
                raise _unfit(name, f"is {port.type}", f"{self._dtype}, as the target")


def anchors(inputs: Mapping[str, Argument], caches: tuple[Cache, ...]) -> dict[str, Cache]:
    """Which cache of the target each `shared_kv.{kind}.{key,value}` reads: that of the last layer of its kind.

    Raises PackageError where there is none of that kind or where it has other heads.
    """
    found: dict[str, Cache] = {}
    for name, port in inputs.items():
        if not name.startswith(SHARED):
            continue
        kind, part = name.removeprefix(SHARED).rsplit(".", 1)
        last = [c for c in caches if c.sliding is KINDS.get(kind) and c.past.endswith(f".{part}")][-1:]
        if not last:
            raise _unfit(name, "has no counterpart", f"caches of {kind} in the target")
        if (port.shape[1], port.shape[3]) != (last[0].heads, last[0].size):
            expected = f"{last[0].heads} heads of {last[0].size}, as {last[0].past} of the target"
            raise _unfit(name, f"has {port.shape[1]} heads of {port.shape[3]}", expected)
        found[name] = last[0]
    return found


def _twice(size: int | str | None) -> int | None:
    return 2 * size if isinstance(size, int) else None


def _unfit(name: str, found: str, expected: str) -> PackageError:
    return PackageError(f"{name} {found}; expected {expected}", at="drafter", remedy=REBUILD)
