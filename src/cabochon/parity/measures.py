"""The figures two sets of logits are compared by, and what they may be. Pure arithmetic.

Legend: S positions, V values (vocabulary or hidden size). `a` is what is tested, `b` the reference.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Difference", "Threshold", "apart", "difference", "top_two_margin", "widest"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Difference:
    """How far `a` [S, V] is from `b` [S, V].

    relative: max|a - b| / max|b| over all positions. cosines, agrees, margins, each: one per position; agrees tells
    whether the largest value stands in the same place, margins is the distance of b's two largest values
    divided by max|b|, each is the share of the position in `relative`.
    """

    relative: float
    cosines: tuple[float, ...]
    agrees: tuple[bool, ...]
    margins: tuple[float, ...]
    each: tuple[float, ...] = ()

    @property
    def angle(self) -> float:
        """The widest angle between a[s] and b[s], in radians."""
        return float(np.arccos(np.clip(min(self.cosines), -1, 1)))

    @property
    def agreement(self) -> float:
        """The share of positions where the largest value stands in the same place."""
        return float(np.mean(self.agrees))

    def lost_margin(self) -> float:
        """The reference's widest relative margin among positions that disagree; 0 where none does."""
        return max((m for m, same in zip(self.margins, self.agrees, strict=True) if not same), default=0.0)

    def described(self) -> dict[str, Any]:
        """The figures as an evidence file states them."""
        return {
            "max_relative_difference": self.relative,
            "min_cosine": min(self.cosines),
            "mean_cosine": float(np.mean(self.cosines)),
            "cosine_per_position": [round(c, 8) for c in self.cosines],
        }


@dataclass(frozen=True)
class Threshold:
    """What a difference may be: its relative size, its cosine, and how both limits were chosen."""

    relative: float
    cosine: float
    chosen: str

    def admits(self, found: Difference) -> bool:
        """True when both limits hold. NaN and infinity never do."""
        return bool(found.relative <= self.relative and min(found.cosines) >= self.cosine)

    def within(self, found: Difference) -> np.ndarray:
        """At which positions both limits hold.   bool [S]"""
        each = np.asarray(found.each or (found.relative,) * len(found.cosines))
        return np.asarray((each <= self.relative) & (np.asarray(found.cosines) >= self.cosine))

    def described(self) -> dict[str, Any]:
        """The limits as an evidence file states them."""
        return {"max_relative_difference": self.relative, "min_cosine": self.cosine, "chosen": self.chosen}


def difference(a: Array, b: Array) -> Difference:
    """Compares [S, V] with [S, V] in float64, row by row, so that a large vocabulary needs no second copy."""
    if a.shape != b.shape:
        raise ValueError(f"compares shapes {a.shape} and {b.shape}; they must be equal")
    rows = [_row(x.astype(np.float64), y.astype(np.float64)) for x, y in zip(a, b, strict=True)]
    scale = max(r[1] for r in rows) or 1.0
    worst = float(np.max([r[0] for r in rows]))  # np.max, unlike max, lets NaN through
    return Difference(
        relative=worst / scale,
        cosines=tuple(r[2] for r in rows),
        agrees=tuple(r[3] for r in rows),
        margins=tuple(r[4] / scale for r in rows),
        each=tuple(r[0] / scale for r in rows),
    )


def apart(a: Array, b: Array) -> Difference:
    """The difference; of other shapes than `b`, or without a position, one that no limit admits."""
    if a.shape == b.shape and b.size:
        return difference(a, b)
    count = max(len(b), 1)
    return Difference(float("inf"), (0.0,) * count, (False,) * count, (0.0,) * count)


def _row(a: Array, b: Array) -> tuple[float, float, float, bool, float]:
    """max|a-b|, max|b|, cosine, same place of the largest value, margin of b."""
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    cosine = float(a @ b) / lengths if lengths else float(np.array_equal(a, b))
    return (
        float(np.abs(a - b).max()),
        float(np.abs(b).max()),
        cosine,
        bool(a.argmax() == b.argmax()),
        top_two_margin(b),
    )


def top_two_margin(row: Array) -> float:
    """The distance between the two largest values of a row."""
    second, first = np.partition(row, -2)[-2:]
    return float(first - second)


def widest(found: Iterable[Difference]) -> tuple[float, float]:
    """The largest relative difference and the widest angle (radians) among several."""
    found = list(found)
    return max(d.relative for d in found), max(d.angle for d in found)
