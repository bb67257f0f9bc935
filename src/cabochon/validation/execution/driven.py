"""A decoder under test: how long its runs are, what it is fed, how exact its results must be."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cabochon.validation.blocks import rounds
from cabochon.validation.execution.agreement import (
    EXACT,
    HALF_LEAST,
    HALF_MOST,
    ROUNDED_LEAST,
    ROUNDED_MOST,
    gap,
)
from cabochon.validation.execution.decoder import Decoder, Held, Step
from cabochon.validation.execution.runner import UNDRIVEN

__all__ = ["AHEAD", "MOST", "SEED", "Driven"]

SEED = 20261129  # of every random number that is fed
MOST = 1056  # tokens of a run, however small the model: enough to cross a window of 512 twice
AHEAD = 4  # tokens that are fed behind a run, to see what it left
_SHORT = 48  # tokens of a run that cannot cross the window


@dataclass
class Driven:
    """A decoder, and lengths of runs that cross its window as far as they are affordable."""

    decoder: Decoder
    window: int | None
    most: int  # tokens of one run

    @property
    def wanted(self) -> tuple[int, ...]:
        """Lengths around the window; without one, two of which the second is cut otherwise."""
        w = self.window
        return (5, 12) if w is None else tuple(n for n in (w - 1, w, w + 1, 2 * w + 3) if n > 1)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Those of them that are affordable; a single short one where none is."""
        return tuple(n for n in self.wanted if n + AHEAD <= self.most) or (min(self.most - AHEAD, _SHORT),)

    @property
    def unreached(self) -> tuple[int, ...]:
        """Those that are not."""
        return tuple(n for n in self.wanted if n + AHEAD > self.most)

    def ids(self, count: int, rows: int = 1, turn: int = 0) -> np.ndarray:
        """Random ids [rows, count], of words alone: the same for the same arguments."""
        rng = np.random.default_rng((SEED, turn))
        ids = rng.integers(0, self.decoder.vocabulary, (rows, MOST))[:, :count]
        return np.ascontiguousarray(np.where(np.isin(ids, self.decoder.placeholders), 0, ids))

    @cached_property
    def half(self) -> bool:
        """Some result is f16."""
        return any(port.dtype == "float16" for port in self.decoder.runner.graph.ports.outputs.values())

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Between which bounds runs differ by rounding alone; None in f32.

        Wider where activations are rounded to 8 bits before they meet weights in blocks: a value close to the middle
        between two steps is now the one and now the other, whatever else is f32.
        """
        if rounds(self.decoder.runner.graph):
            return ROUNDED_LEAST, ROUNDED_MOST
        return (HALF_LEAST, HALF_MOST) if self.half else None

    @cached_property
    def tolerance(self) -> float:
        """How far two runs may be apart. In f32 1e-4.

        In rougher numbers four times what the same tokens differ by when they are fed whole and in other chunks
        (halves, thirds, and the last one alone): rounding, not the claim under test. It is at least 2^-9 in f16, and
        2^-5 where activations are rounded to 8 bits; at most 2^-4, or 2^-3, so that a faulty graph cannot excuse
        itself.
        """
        if self.bounds is None:
            return EXACT
        ids, n = self.ids(self.lengths[-1]), self.lengths[-1]
        whole = self.decoder.fed([ids]).results
        cuts = ([n // 2], [n // 3, 2 * n // 3], [n - 1])
        noise = max(self._apart(whole, np.split(ids, cut, axis=1)) for cut in cuts)
        return float(np.clip(4 * noise, *self.bounds))

    def _apart(self, whole: Mapping[str, np.ndarray], chunks: list[np.ndarray]) -> float:
        return gap(whole, self.decoder.fed([c for c in chunks if c.size]).results).size

    def beyond(self, one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> str:
        """How far two runs are apart, in words; "" where they agree."""
        apart = gap(one, other)
        if apart.size <= self.tolerance:
            return ""
        return (
            f"{apart.where} differs by {apart.size:.2g} of its largest value, more than {self.tolerance:.2g}"
        )

    def rows_aligned(self) -> bool:
        """The document says that the first axis of tokens, caches and results are independent rows."""
        ports = self.decoder.component.ports
        said = [*ports.inputs.values(), *ports.outputs.values()]
        axes = {
            getattr(c.batch_layout, "axis", None) for c in said if c.batch_layout.kind == "request_aligned"
        }
        roles = [ports.inputs.get(n) or ports.outputs.get(n) for n in ports.roles]
        return axes == {0} and all(c is None or c.batch_layout.kind == "request_aligned" for c in roles)

    @cached_property
    def batches(self) -> bool:
        """Two rows run at all, and the document says that they are independent; whether they are is a rule's matter."""
        try:
            self.decoder.fed([self.ids(self.lengths[-1], rows=2), self.ids(1, rows=2)])
        except UNDRIVEN:
            return False
        return self.rows_aligned()

    def cut(self, held: Held, value: np.ndarray, keep: slice) -> np.ndarray:
        """Some columns of a cell, a new array."""
        axis = self.decoder.axis(held)
        assert axis is not None
        return value[(slice(None),) * axis + (keep,)].copy()

    def run(self, chunks: list[np.ndarray]) -> Step:
        """Several steps from nothing."""
        return self.decoder.fed(chunks)
