"""What is tested: a decoder graph on onnxruntime's CPU provider, or on OpenVINO, driven through its ports alone."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from cabochon.errors import CabochonError, ParityError
from cabochon.parity.prompts import Prompt
from cabochon.parity.widened import ACCURACY, exactly
from cabochon.runtime.ports import PAST, present_of
from cabochon.runtime.properties import IR

__all__ = ["Compiled", "Subject", "runtime_of"]

KEEP = "logits_to_keep"
NUMPY = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


@dataclass(frozen=True)
class Subject:
    """A decoder that answers prompts, one row at a time, with plain feeds and caches that only grow."""

    session: Any

    @classmethod
    def open(
        cls,
        graph: Path,
        *,
        threads: int | None = None,
        settings: Mapping[str, str] | None = None,
        exact: bool = False,
    ) -> "Subject":
        """Loads a model.onnx, or an IR with `settings`, those that are exact where None.

        `exact`: onnxruntime is asked to round nothing in products that it fuses itself.

        Raises ParityError when it is refused.
        """
        if graph.suffix == IR:
            return cls(Compiled(graph, threads, settings))
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads or 0
        try:
            for key, value in (exactly(graph) | ({ACCURACY: "0"} if exact else {})).items():
                options.add_session_config_entry(key, value)
            return cls(ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"]))
        except Exception as error:  # onnxruntime's exceptions share no base class but Exception
            raise ParityError(f"onnxruntime refuses the graph: {error}", at=str(graph)) from error

    @property
    def how(self) -> str:
        """What runs it, and what it was asked for."""
        return self.session.how if isinstance(self.session, Compiled) else self.session.get_providers()[0]

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata properties of the graph."""
        return self.session.get_modelmeta().custom_metadata_map

    @property
    def ports(self) -> dict[str, tuple[str, tuple[Any, ...]]]:
        """Type and shape of every input and output by name; named dimensions are strings."""
        both = [*self.session.get_inputs(), *self.session.get_outputs()]
        return {port.name: (port.type, tuple(port.shape)) for port in both}

    @property
    def vocabulary(self) -> int:
        """The last dimension of the logits."""
        return int(self.ports["logits"][1][-1])

    def ids(self, prompt: Prompt) -> Sequence[int]:
        """The tokens of a prompt."""
        return prompt.ids

    def forward(self, ids: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Logits [S, V] and hidden states after the final norm [S, H] of one prompt, in the graph's dtype."""
        out = self._run(ids, len(ids), self._empty())
        (hidden,) = (out[name] for name in out if name.startswith("hidden_states."))
        return out["logits"][0], hidden[0]

    def steps(self, ids: Sequence[int]) -> Generator[np.ndarray, int, None]:
        """Decodes with caches: yields the logits [V] after all tokens so far, and is sent the next token."""
        feed, seen, caches = list(ids), 0, self._empty()
        while True:
            seen += len(feed)
            out = self._run(feed, seen, caches)
            caches = {name: out[name.replace("past_key_values", "present")] for name in caches}
            feed = [(yield out["logits"][0, -1])]

    def along(self, ids: Sequence[int], tokens: Sequence[int]) -> Iterator[np.ndarray]:
        """The logits [V] from which each of `tokens` would be chosen, when all before it were fed."""
        steps = self.steps(ids)
        yield next(steps)
        for token in tokens[:-1]:
            yield steps.send(token)

    def greedy(self, ids: Sequence[int], n: int) -> list[int]:
        """The `n` likeliest tokens, one after the other; no end token stops it."""
        steps = self.steps(ids)
        chosen = [int(next(steps).argmax())]
        while len(chosen) < n:
            chosen.append(int(steps.send(chosen[-1]).argmax()))
        return chosen

    def named(self, ids: Sequence[int], prefix: str) -> dict[str, np.ndarray]:
        """The outputs of one forward pass whose names start with `prefix`."""
        return {
            name: value
            for name, value in self._run(ids, len(ids), self._empty()).items()
            if name.startswith(prefix)
        }

    def _run(self, ids: Sequence[int], seen: int, caches: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        feeds = {
            "input_ids": np.array([ids], np.int64),
            "attention_mask": np.ones((1, seen), np.int64),
            **caches,
        }
        names = [port.name for port in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, feeds), strict=True))

    def _empty(self) -> dict[str, np.ndarray]:
        return {
            port.name: np.zeros((1, port.shape[1], 0, port.shape[3]), NUMPY[port.type])
            for port in self.session.get_inputs()
            if port.name.startswith("past_key_values.")
        }


class Compiled:
    """An IR behind the methods of onnxruntime's session that a comparison asks."""

    def __init__(self, graph: Path, threads: int | None, settings: Mapping[str, str] | None) -> None:
        """`settings`: OpenVINO's; None for those with which it computes as the graph says."""
        from cabochon.runtime.openvino_graph import EXACT, OpenVinoGraph

        options = EXACT if settings is None else settings
        try:
            self._graph = OpenVinoGraph(graph, threads=threads, provider_options=options)
        except CabochonError as error:
            raise ParityError(error.message, at=error.at, remedy=error.remedy) from error

    @property
    def how(self) -> str:
        """What runs it, and what it was asked for."""
        return runtime_of(self._graph.provider, self._graph.settings)

    def get_modelmeta(self) -> Any:
        """What holds the properties."""
        return SimpleNamespace(custom_metadata_map=dict(self._graph.metadata))

    def get_inputs(self) -> list[Any]:
        """The inputs that a comparison feeds."""
        return [port for name, port in self._graph.inputs.items() if name != KEEP]

    def get_outputs(self) -> list[Any]:
        """The outputs."""
        return list(self._graph.outputs.values())

    def run(self, names: Sequence[str] | None, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The outputs of these names, all where None; logits of all positions."""
        names = list(self._graph.outputs) if names is None else names
        arrays = {name: x for name, x in feeds.items() if not name.startswith(PAST)}
        if KEEP in self._graph.inputs:
            arrays.setdefault(KEEP, np.array(0, np.int64))
        caches = {name: self._graph.put(x) for name, x in feeds.items() if name.startswith(PAST)}
        fetched = [name for name in names if not name.startswith(present_of(PAST))]
        kept = dict.fromkeys(name for name in names if name not in fetched)
        made, held = self._graph.run(arrays, caches, fetched, kept)
        return [made[name] if name in made else np.array(held[name].numpy()) for name in names]


def runtime_of(provider: str, settings: Mapping[str, str]) -> str:
    """In words: "openvino 2026.4.1 CPU (INFERENCE_PRECISION_HINT f32, ...)"."""
    said = ", ".join(f"{name} {value}" for name, value in settings.items())
    return f"{provider} ({said})" if said else provider
