"""How far two runs are apart, and how far they may be."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

__all__ = ["EXACT", "HALF_LEAST", "HALF_MOST", "ROUNDED_LEAST", "ROUNDED_MOST", "Gap", "gap"]

EXACT = 1e-4  # of f32: sums in another order differ by less, faults by far more
HALF_LEAST, HALF_MOST = (
    2**-9,
    2**-4,
)  # of f16: what is always granted (half a dozen roundings), and never exceeded
ROUNDED_LEAST, ROUNDED_MOST = 2**-5, 2**-3  # the same where activations are rounded to 8 bits


class Gap(NamedTuple):
    """The largest difference relative to the largest value of the same result, and the name of that result."""

    size: float
    where: str


def gap(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> Gap:
    """The worst of the results that both have. Columns (axis 1) are counted from the end: a run may keep fewer."""
    found = [Gap(_relative(*_tails(one[name], other[name])), name) for name in one.keys() & other.keys()]
    return max(found, default=Gap(0.0, ""))


def _tails(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if one.ndim < 2 or other.ndim < 2:
        return one, other
    count = min(one.shape[1], other.shape[1])
    return one[:, one.shape[1] - count :], other[:, other.shape[1] - count :]


def _relative(one: np.ndarray, other: np.ndarray) -> float:
    if one.shape != other.shape:
        return float("inf")
    if not one.size:
        return 0.0
    one, other = one.astype(np.float64), other.astype(np.float64)
    largest = max(np.abs(one).max(), np.abs(other).max())
    apart = np.abs(one - other).max()
    return float("inf") if not np.isfinite(apart) else float(apart / largest) if largest else 0.0
