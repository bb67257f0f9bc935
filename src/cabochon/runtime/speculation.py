"""Speculative decoding: propose some tokens, let the target read them in one step, keep those it draws itself.

A round has the state of the target hold all tokens but the newest. The target reads the newest and the proposals, and
draws a token behind each, in order, until one is not what was proposed; whatever it read beyond is forgotten.

In float32 a step of several tokens gives other last bits than steps of one. A greedy choice that hangs on them is made
again as plain decoding makes it: on caches that were filled token by token since the prompt.
"""

import time
from collections.abc import Generator, Sequence

import numpy as np

from cabochon.runtime.acceptance import matching, too_close
from cabochon.runtime.draft_length import DraftLength, Round
from cabochon.runtime.generation import Row
from cabochon.runtime.proposers import Proposer
from cabochon.runtime.state import Output, State
from cabochon.runtime.tally import Tally


def speculate(state: State, row: Row, proposer: Proposer, length: DraftLength) -> Generator[str, None, None]:
    """Fill the state with what it lacks of the row's prompt and decode in rounds; yields text as it becomes certain."""
    row.began = time.perf_counter()
    read = state.feed(row.prompt[state.length :], hidden=proposer.reads_hidden)
    row.prefilled = time.perf_counter()
    row.tally = tally = Tally(proposer.name)
    yield row.take(_logits(read)[-1])
    rounds = Rounds(state, row, proposer, length, tally, _hidden(read, -1))
    while not row.finish_reason:
        yield from rounds.go_on()


class Rounds:
    """The rounds of one answer."""

    def __init__(
        self,
        state: State,
        row: Row,
        proposer: Proposer,
        length: DraftLength,
        tally: Tally,
        hidden: np.ndarray | None,
    ) -> None:
        """`state` holds the prompt, `row` one token more, drawn from `hidden` [D]."""
        self._state, self._row, self._proposer, self._length = state, row, proposer, length
        self._tally, self._hidden = tally, hidden
        self._plain = state.length  # tokens whose caches are those of plain decoding
        self._guarded = row.sampler.how.greedy and state.session.ports.dtype == np.float32

    def go_on(self) -> Generator[str, None, None]:
        """One round, of at least one token."""
        row, state = self._row, self._state
        before, start = len(row.ids), time.perf_counter()
        drafts = self._drafts()
        proposed = time.perf_counter()
        read = state.step([[row.so_far[-1], *drafts]], keep=0, hidden=self._proposer.reads_hidden)
        seconds = proposed - start, time.perf_counter() - proposed
        if not drafts and self._plain == state.length - 1:
            self._plain = state.length
        try:
            yield from self._draw(read, drafts)
        finally:
            state.rewind(min(state.length, len(row.so_far) - 1))
            drawn = row.ids[before:]
            made = Round(len(drafts), matching(drafts, drawn), min(len(drafts), len(drawn)), *seconds)
            self._length.observe(made)
            self._tally.rounds.append(made)

    def _drafts(self) -> Sequence[int]:
        row = self._row
        count = min(self._length.next(), row.limit - len(row.ids) - 1)
        if count < 1:
            return ()
        guess = row.sampler.guess
        return self._proposer.propose(self._state, row.so_far, self._hidden, count, guess)[:count]

    def _draw(self, read: Output, drafts: Sequence[int]) -> Generator[str, None, None]:
        row = self._row
        for n, logits in enumerate(_logits(read)):
            self._hidden, scores = _hidden(read, n), row.scores(logits)
            unsure = self._guarded and self._plain < len(row.so_far) and too_close(scores, logits)
            if unsure:
                again = self._read_plainly()
                self._hidden, scores = _hidden(again, -1), row.scores(_logits(again)[-1])
            yield row.commit(scores)
            if unsure or row.finish_reason or n == len(drafts) or row.ids[-1] != drafts[n]:
                return

    def _read_plainly(self) -> Output:
        """Feed what followed since caches were those of plain decoding again, token by token."""
        start = time.perf_counter()
        self._state.rewind(self._plain)
        *before, last = self._row.so_far[self._plain :]
        for token in before:
            self._state.step([[token]], keep=None)
        read = self._state.step([[last]], hidden=self._proposer.reads_hidden)
        self._plain = self._state.length
        self._tally.read_again += len(before) + 1
        self._tally.again_seconds += time.perf_counter() - start
        return read


def _logits(read: Output) -> np.ndarray:
    assert read.logits is not None
    return read.logits[0]


def _hidden(read: Output, place: int) -> np.ndarray | None:
    return None if read.hidden is None else read.hidden[0, place]
