"""A full package at work: our processors and our runtime, from text and media to tokens."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cabochon.parity.exhibits import RATE, played
from cabochon.parity.prompts import Prompt
from cabochon.parity.subject import runtime_of
from cabochon.parity.widened import ACCURACY, exactly
from cabochon.runtime.folder import decoder_file
from cabochon.runtime.properties import IR

if TYPE_CHECKING:
    from cabochon.runtime import Model

__all__ = ["Whole", "tokens"]


def tokens(model: "Model", prompt: Prompt) -> list[int]:
    """The ids of a prompt where it has no exhibits, else what the package makes of its text and of them."""
    if prompt.exhibits is None:
        return list(prompt.ids)
    shows = prompt.exhibits
    return model.prompt_ids(
        prompt.text or "",
        parse_special=True,
        images=list(shows.images),
        audio=[(sound, RATE) for sound in shows.sounds],
        videos=[played(frames) for frames in shows.films],
    )


class Whole:
    """A package in the runtime. Ids are those it makes itself, with features in the place of placeholders."""

    def __init__(
        self,
        package: Path,
        *,
        threads: int | None = None,
        settings: Mapping[str, str] | None = None,
        exact: bool = False,
    ) -> None:
        """`settings`, `exact`: see `Subject.open`. Raises what `cabochon.load` raises."""
        from cabochon.runtime import load

        graph = decoder_file(package)
        if graph is not None and graph.suffix == IR:
            from cabochon.runtime.openvino_graph import EXACT

            options: dict[str, Any] = {"provider_options": EXACT if settings is None else settings}
        else:
            options = {
                "provider": "cpu",
                "session_options": (exactly(graph) if graph else {}) | ({ACCURACY: "0"} if exact else {}),
            }
        self._model: Model = load(package, threads=threads, **options)

    @property
    def how(self) -> str:
        """What runs it, and what it was asked for."""
        return runtime_of(self._model.session.provider, self._model.session.settings)

    @property
    def vocabulary(self) -> int:
        """The last dimension of the logits."""
        return self._model.session.ports.vocabulary

    def ids(self, prompt: Prompt) -> list[int]:
        """The tokens of a prompt: its ids where it has no exhibits, else what the package makes of its text."""
        return tokens(self._model, prompt)

    def forward(self, ids: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Logits [S, V] and hidden states after the final norm [S, H]."""
        logits, hidden = self._model.forward(ids)
        assert hidden is not None
        return logits, hidden

    def greedy(self, ids: Sequence[int], n: int) -> list[int]:
        """The `n` likeliest tokens, one after the other; no end token stops it."""
        return self.together([ids], n)[0]

    def together(self, rows: Sequence[Sequence[int]], n: int) -> list[list[int]]:
        """The same of several rows at once."""
        self._model.forget()
        made = self._model.generate(
            [list(ids) for ids in rows], greedy=True, ignore_eos=True, max_new_tokens=n, speculation=False
        )
        return [one.ids for one in made]

    def along(self, ids: Sequence[int], tokens: Sequence[int]) -> Iterator[np.ndarray]:
        """The logits [V] from which each of `tokens` would be chosen, when all before it were fed."""
        state = self._model.state()
        yield state.prefill(ids)
        for token in tokens[:-1]:
            yield state.prefill([token])
