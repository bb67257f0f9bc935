"""What is tested: a decoder graph on onnxruntime's CPU provider, driven through its ports alone."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.errors import ParityError
from cabochon.parity.prompts import Prompt
from cabochon.parity.widened import exactly

__all__ = ["Subject"]

NUMPY = {"tensor(float)": np.float32, "tensor(float16)": np.float16}


@dataclass(frozen=True)
class Subject:
    """A decoder that answers prompts, one row at a time, with plain feeds and caches that only grow."""

    session: Any

    @classmethod
    def open(cls, graph: Path, *, threads: int | None = None) -> "Subject":
        """Loads a model.onnx. Raises ParityError when onnxruntime refuses it."""
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads or 0
        try:
            for key, value in exactly(graph).items():
                options.add_session_config_entry(key, value)
            return cls(ort.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"]))
        except Exception as error:  # onnxruntime's exceptions share no base class but Exception
            raise ParityError(f"onnxruntime refuses the graph: {error}", at=str(graph)) from error

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
