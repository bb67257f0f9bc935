"""The loop: feed, draw, say. Rows of a batch go on together and leave it as they finish."""

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from cabochon.runtime.flow import Detokenizer, Stops
from cabochon.runtime.sampling import Sampler
from cabochon.runtime.soft import counted, remarks
from cabochon.runtime.state import State
from cabochon.runtime.tally import Speculation, Tally
from cabochon.runtime.tokens import Tokens


@dataclass(frozen=True)
class Timings:
    """Seconds and tokens of one answer. `reused` prompt tokens were in the cache already and cost nothing."""

    prompt_tokens: int
    reused: int
    new_tokens: int
    prefill_seconds: float
    decode_seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Decoding speed: tokens after the first by the seconds they took; 0.0 for fewer than two."""
        return (self.new_tokens - 1) / self.decode_seconds if self.new_tokens > 1 else 0.0


@dataclass(frozen=True)
class Generation:
    """One answer. `ids` are all tokens drawn, an end-of-sequence token included; `text` holds neither it nor a stop.

    `finish_reason` is "eos", "stop" (a stop string), "length", or "closed" where the caller went away.
    """

    text: str
    ids: list[int]
    finish_reason: str
    prompt_ids: list[int]
    timings: Timings
    speculation: Speculation | None = None
    """None where the answer was decoded plainly."""
    remarks: tuple[str, ...] = ()
    """What a user should know of how it was made."""
    media_tokens: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many tokens of the prompt are images, frames of video, or sound, by "image", "video" and "audio"."""


@dataclass
class Row:
    """One answer in the making."""

    prompt: list[int]
    sampler: Sampler
    limit: int
    eos: frozenset[int]
    tokens: Tokens | None
    stops: Stops
    ids: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: str = ""
    reused: int = 0
    prefilled: float = 0.0
    began: float = field(default_factory=time.perf_counter)
    ended: float = 0.0
    tally: Tally | None = None

    def __post_init__(self) -> None:
        self._flow = None if self.tokens is None else Detokenizer(self.tokens)
        self.so_far = [int(token) for token in self.prompt]

    def take(self, logits: np.ndarray) -> str:
        """Draw the next token from logits [V]; the text that became certain."""
        return self.commit(self.scores(logits))

    def scores(self, logits: np.ndarray) -> np.ndarray:
        """What the next token is drawn from: the logits [V] after penalty and hooks."""
        return self.sampler.scores(self.so_far, logits)

    def commit(self, scores: np.ndarray) -> str:
        """Draw the next token from its scores [V]; the text that became certain."""
        token = self.sampler.draw(scores)
        self.so_far.append(token)
        self.ids.append(token)
        if token in self.eos:
            return self._finish("eos")
        piece = self._say(self._flow.add(token) if self._flow else "")
        if self.stops.found:
            return piece + self._finish("stop")
        return piece + self._finish("length") if len(self.ids) >= self.limit else piece

    def _say(self, piece: str) -> str:
        piece = self.stops.add(piece)
        self.text += piece
        return piece

    def _finish(self, reason: str) -> str:
        piece = self._say(self._flow.finish() if self._flow else "")
        rest = self.stops.finish()
        self.text += rest
        self.finish_reason = "stop" if self.stops.found else reason
        self.ended = time.perf_counter()
        return piece + rest

    def generation(self) -> Generation:
        """The answer as far as it came."""
        ended = self.ended or time.perf_counter()
        prefill = (self.prefilled or ended) - self.began
        timings = Timings(len(self.prompt), self.reused, len(self.ids), prefill, ended - self.began - prefill)
        did = self.tally.figures(len(self.ids)) if self.tally else None
        return Generation(
            text=self.text,
            ids=list(self.ids),
            finish_reason=self.finish_reason or "closed",
            prompt_ids=[int(token) for token in self.prompt],
            timings=timings,
            speculation=did,
            remarks=(*(did.remarks if did else ()), *remarks(self.prompt)),
            media_tokens=counted(self.prompt),
        )


def answer(state: State, row: Row) -> Generator[str, None, None]:
    """Fill the state with what it lacks of the row's prompt and decode; yields text as it becomes certain."""
    row.began = time.perf_counter()
    logits = state.prefill(row.prompt[state.length :])
    row.prefilled = time.perf_counter()
    while True:
        yield row.take(logits)
        if row.finish_reason:
            return
        logits = _logits(state, [row])[0]


def answer_all(state: State, logits: Sequence[np.ndarray], rows: Sequence[Row]) -> None:
    """Decode filled rows together until each has finished; a finished row leaves the batch."""
    rows = list(rows)
    while True:
        for row, its in zip(rows, logits, strict=True):
            row.take(its)
        going = [n for n, row in enumerate(rows) if not row.finish_reason]
        if not going:
            return
        if len(going) < len(rows):
            state.select(going)
            rows = [rows[n] for n in going]
        logits = list(_logits(state, rows))


def _logits(state: State, rows: Sequence[Row]) -> np.ndarray:
    logits = state.step([[row.ids[-1]] for row in rows]).logits
    assert logits is not None
    return logits[:, -1]
