"""Answers on states of one's own, with and without speculation, and proposers good and bad."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cabochon.runtime import Eviction, Session, State
from cabochon.runtime.draft_length import Fixed
from cabochon.runtime.flow import Stops
from cabochon.runtime.generation import Row, answer
from cabochon.runtime.proposers import Guess, Proposer
from cabochon.runtime.sampling import Sampler, Sampling
from cabochon.runtime.speculation import speculate


class Foreseeing:
    """Knows the answers [prompt and tokens]; each proposal is right with probability `right`."""

    name, reads_hidden = "foreseeing", False

    def __init__(self, texts: Sequence[Sequence[int]], right: float, vocabulary: int = 512) -> None:
        self.texts, self.right, self.vocabulary = texts, right, vocabulary
        self._random = np.random.default_rng(0)

    def propose(
        self, state: State, ids: Sequence[int], hidden: Any, count: int, guess: Guess
    ) -> Sequence[int]:
        text = next((t for t in self.texts if list(t[: len(ids)]) == list(ids)), ids)
        ahead = list(text[len(ids) : len(ids) + count])
        return [t if self._random.random() < self.right else (t + 1) % self.vocabulary for t in ahead]


def row(prompt: Sequence[int], limit: int, how: Sampling | None = None, **options: Any) -> Row:
    """A row without a tokenizer."""
    given = {
        "sampler": Sampler(how or Sampling()),
        "eos": frozenset[int](),
        "tokens": None,
        "stops": Stops(()),
    }
    return Row(prompt=list(prompt), limit=limit, **{**given, **options})


def plainly(session: Session, one: Row, **options: Any) -> list[int]:
    """The tokens of plain decoding."""
    list(answer(State(session, **options), one))
    return one.ids


def speculatively(
    session: Session,
    one: Row,
    proposer: Proposer,
    count: int,
    eviction: Eviction | None = None,
    **options: Any,
) -> list[int]:
    """The tokens of speculative decoding; what must hold of the state at the end is checked."""
    state = State(session, eviction, **options)
    list(speculate(state, one, proposer, Fixed(count)))
    assert state.tokens == [(one.prompt + one.ids)[:-1]]
    return one.ids
