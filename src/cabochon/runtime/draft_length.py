"""How many tokens to propose in a round: always as many, or as many as pay by what was measured."""

from dataclasses import dataclass
from typing import Protocol

MOST = 8
FIRST = 4
PROBE_EVERY = 32
FORGET = 0.95
WIDEST_SURPRISE = 3.0
WORTHWHILE = 1.05  # what proposing must promise over plain decoding, as measured seconds waver


@dataclass(frozen=True)
class Round:
    """One round: tokens proposed, how many of them were kept, and the seconds that proposing and the target took.

    `verified` counts the proposals that were compared: behind the first that is not kept none is.
    """

    proposed: int
    accepted: int
    verified: int
    drafter_seconds: float
    target_seconds: float


class DraftLength(Protocol):
    """Says how many tokens a round proposes, and is told what came of it."""

    most: int

    def next(self) -> int:
        """Tokens to propose; 0 is a plain step."""
        ...

    def observe(self, made: Round) -> None:
        """What came of a round."""
        ...


class Fixed:
    """Always as many."""

    def __init__(self, most: int) -> None:
        """`most` tokens every round."""
        self.most = most

    def next(self) -> int:
        """See DraftLength."""
        return self.most

    def observe(self, made: Round) -> None:
        """See DraftLength."""


class Adaptive:
    """The length that promises most tokens a second.

    k proposals, each kept with probability a if all before it were, give (1 - a^(k+1)) / (1 - a) tokens and take
    T(k + 1) + k D seconds. a and D are means of what was seen lately, and T is the straight line through the target's
    steps seen lately. Now and then a round is of another length, so that the line stays known and a better time is
    noticed. Same observations, same lengths.
    """

    def __init__(self, most: int = MOST, first: int = FIRST) -> None:
        """At most `most` tokens a round, `first` of them before anything was measured."""
        self.most, self._first = most, min(first, most)
        self._rounds = 0
        self._kept, self._compared = 3.0, 4.0  # before anything was seen
        self._draft_seconds, self._drafted = 0.0, 0.0
        self._line = Line()

    def next(self) -> int:
        """See DraftLength."""
        if self._rounds < 3:
            return (self._first, 0, self.most)[self._rounds]
        best = self._best()
        return self._other_than(best) if self._rounds % PROBE_EVERY == 0 else best

    def observe(self, made: Round) -> None:
        """See DraftLength."""
        self._rounds += 1
        if made.proposed:
            self._kept = FORGET * self._kept + made.accepted
            self._compared = FORGET * self._compared + made.verified
            self._draft_seconds = FORGET * self._draft_seconds + made.drafter_seconds
            self._drafted = FORGET * self._drafted + made.proposed
        self._line.add(made.proposed + 1, made.target_seconds)

    @property
    def acceptance(self) -> float:
        """a: how often a proposal was kept lately if it was compared."""
        return min(self._kept / self._compared, 0.99)

    def speed(self, count: int) -> float:
        """Tokens a second that `count` proposals promise."""
        tokens = (1 - self.acceptance ** (count + 1)) / (1 - self.acceptance)
        draft = self._draft_seconds / self._drafted if self._drafted else 0.0
        return tokens / (self._line.at(count + 1) + count * draft)

    def _best(self) -> int:
        best = max(range(self.most + 1), key=self.speed)
        return best if self.speed(best) > WORTHWHILE * self.speed(0) else 0

    def _other_than(self, best: int) -> int:
        return 0 if best > self.most // 2 else min(best + 2, self.most)


class Line:
    """Seconds of a step over its tokens: a straight line through the steps seen lately, the last ones counting most."""

    def __init__(self) -> None:
        """Nothing is known."""
        self._n = self._x = self._y = self._xx = self._xy = 0.0

    @property
    def known(self) -> bool:
        """True once steps of two lengths were seen."""
        return self._n * self._xx - self._x**2 > 1e-6 * self._n**2

    def add(self, tokens: int, seconds: float) -> None:
        """A step. A much slower one than expected is most likely the machine's doing, and is cut short."""
        if self.known:
            seconds = min(seconds, WIDEST_SURPRISE * self.at(tokens))
        self._n, self._x, self._y = (FORGET * s for s in (self._n, self._x, self._y))
        self._xx, self._xy = FORGET * self._xx, FORGET * self._xy
        self._n, self._x, self._y = self._n + 1, self._x + tokens, self._y + seconds
        self._xx, self._xy = self._xx + tokens**2, self._xy + tokens * seconds

    def at(self, tokens: int) -> float:
        """Seconds of a step of so many tokens; a longer step is never the faster one."""
        slope = (
            (self._n * self._xy - self._x * self._y) / (self._n * self._xx - self._x**2)
            if self.known
            else 0.0
        )
        slope = max(slope, 0.0)
        return max(self._y / self._n + slope * (tokens - self._x / self._n), 1e-9)
