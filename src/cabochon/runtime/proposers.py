"""Who proposes the tokens that a target verifies: the drafter of a pair, or the text so far."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from cabochon.errors import RequestError
from cabochon.runtime.drafter import Drafter
from cabochon.runtime.kinds import checked
from cabochon.runtime.state import State

Guess = Callable[[int, np.ndarray], int]
"""(how many tokens ahead, logits [V]) -> the token that would be drawn there from these logits (`Sampler.guess`)."""


class Proposer(Protocol):
    """Anything that guesses the next tokens. What it proposes decides how fast an answer comes, never what it is."""

    name: str
    reads_hidden: bool
    """True where `propose` needs the target's hidden state."""

    def propose(
        self, state: State, ids: Sequence[int], hidden: np.ndarray | None, count: int, guess: Guess
    ) -> Sequence[int]:
        """At most `count` tokens to follow `ids`, the prompt and what was generated.

        `state` is the target's, of one row; it holds all of `ids` but the newest. `hidden` [D] is the target's hidden
        state that the newest token was drawn from, None unless `reads_hidden`.
        """
        ...


def named_proposer(proposer: Any, hidden: bool = True) -> Proposer:
    """The proposer itself, or that of a name; raise RequestError for anything else.

    `hidden` says whether the target gives its hidden state to a proposer that reads it.
    """
    checked({"proposer": proposer}, ["proposer"])
    chosen: Proposer = PromptLookup() if proposer == PromptLookup.name else proposer
    if chosen.reads_hidden and not hidden:
        raise RequestError(
            f"{chosen.name} reads the target's hidden state, and this package does not give it",
            at="proposer",
            remedy="build the package again with this version of cabochon, or take another proposer",
        )
    return chosen


class DrafterProposer:
    """The drafter of a pair, one token after the other from the place behind the newest."""

    name, reads_hidden = "drafter", True

    def __init__(self, drafter: Drafter) -> None:
        """`drafter` fits the target whose states it will be shown."""
        self._drafter = drafter

    def propose(
        self, state: State, ids: Sequence[int], hidden: np.ndarray | None, count: int, guess: Guess
    ) -> Sequence[int]:
        """See Proposer. The state that a step gives stands in for the target's hidden state in the next."""
        assert hidden is not None
        token, drafts = ids[-1], list[int]()
        view = self._drafter.view(state)
        for ahead in range(count):
            logits, hidden = self._drafter.step(token, hidden, view)
            token = guess(ahead, logits)
            drafts.append(token)
        return drafts


class PromptLookup:
    """What followed the last time that the newest tokens stood there (Saxena 2023). Needs no drafter."""

    name, reads_hidden = "prompt-lookup", False

    def __init__(self, max_ngram_size: int = 3) -> None:
        """Looks for the last `max_ngram_size` tokens, then for fewer, down to one."""
        self._longest = max_ngram_size

    def propose(
        self, state: State, ids: Sequence[int], hidden: np.ndarray | None, count: int, guess: Guess
    ) -> Sequence[int]:
        """See Proposer."""
        text = np.asarray(ids)
        for size in range(min(self._longest, len(text) - 1), 0, -1):
            windows = np.lib.stride_tricks.sliding_window_view(text[:-1], size)
            places = np.flatnonzero((windows == text[-size:]).all(1))
            if len(places):
                start = int(places[-1]) + size
                return text[start : start + count].tolist()
        return []
