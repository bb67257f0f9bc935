"""Scale and zero point of blocks, in numpy: lane by lane in f32, in the order in which kernel.c does it.

Letters: x numbers [block, lanes], w their weights, s scales, z zero points, d = code - zero point, r = 1 / s.
Everything per block is an array [lanes]; sums go through a block from its first number to its last, so that a
block's bytes depend on nothing else. Blocks are brought to about 1 by a power of two, which changes no digit.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .scheme import Scheme

__all__ = ["Fit", "deviations", "divided", "fit", "steps", "stored"]

# Steps by which a range may be cut to the codes: 15 + step levels over it, so that 15 codes cut its ends off; of the
# symmetric ones 8 + step levels over the larger half. Found by trial: more of them gain less than half a percent.
_STEPS = np.arange(-1, 5, 0.75, dtype=np.float32)
_SYMMETRIC_STEPS = np.arange(-2, 2, 0.5, dtype=np.float32)
_MARGIN = np.float32(1 - 2.0**-16)  # more than sums in f32 lose: what we call smaller is smaller
_Best = tuple[np.ndarray, ...]
_Turn = tuple[int, np.ndarray]  # sign of the scale, zero points
_ROUND = np.float32(1.5 * 2**23)  # adding and subtracting it rounds |x| < 2**22 to the nearest, ties to even
_F16_MAX = np.float32(65504)
_F16_NORMAL = np.float32(2.0**-14)


@dataclass(frozen=True)
class Fit:
    """What was found: scales as they are stored, zero points, code - zero point [block, lanes], all f32."""

    s: np.ndarray
    z: np.ndarray
    d: np.ndarray


def fit(values: np.ndarray, scheme: Scheme, importance: np.ndarray | None) -> Fit:
    """The best fit that is known; `values` and `importance` f32 [block, lanes]."""
    up, down = _powers(np.abs(values).max(axis=0))
    x = values * down
    low, high = np.minimum(x.min(axis=0), 0), np.maximum(x.max(axis=0), 0)
    s, z = _plain(low, high, scheme, up, down)
    d = deviations(x, s, z, scheme)
    if scheme.method == "k-quant":
        best_s, best_z = _search(x, _weights(x, importance), low, high, scheme)
        best_s = stored(best_s * up, scheme) * down
        best_d = deviations(x, best_s, best_z, scheme)
        better = _smaller(_errors(x, importance, best_s, best_d), _errors(x, importance, s, d))
        s, z, d = np.where(better, best_s, s), np.where(better, best_z, z), np.where(better, best_d, d)
    return Fit(s * up, z, d)


def steps(scheme: Scheme) -> np.ndarray:
    """f32: by how many levels more than there are codes a range is cut. Nothing is searched without any."""
    if scheme.method != "k-quant":
        return _STEPS[:0]
    return _SYMMETRIC_STEPS if scheme.symmetric else _STEPS


def deviations(x: np.ndarray, s: np.ndarray, z: np.ndarray, scheme: Scheme) -> np.ndarray:
    """code - zero point of the nearest codes, ties to even; 0 where the scale is 0."""
    return _nearest(divided(x, s), z, scheme)


def divided(x: np.ndarray, s: np.ndarray) -> np.ndarray:
    """x / s; 0 where s is 0."""
    return np.where(s == 0, np.float32(0), x / _or_one(s))


def stored(s: np.ndarray, scheme: Scheme) -> np.ndarray:
    """f32 rounded to the type of scales: 11 binary digits, none below 2**-24, nothing above 65504."""
    if scheme.scales == "f32":
        return s + np.float32(0)  # no -0
    size = np.abs(s)
    bits = size.view(np.uint32)
    normal = ((bits + 0xFFF + ((bits >> 13) & 1)) & 0xFFFFE000).astype(np.uint32).view(np.float32)
    small = (size + np.float32(0.5)) - np.float32(0.5)
    return np.copysign(np.minimum(np.where(size < _F16_NORMAL, small, normal), _F16_MAX), s) + np.float32(0)


def _powers(size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """2**e and 2**-e of the exponents of `size`; e from -126 to 126, so that both are normal numbers."""
    e = np.clip((size.view(np.int32) >> 23) - 127, -126, 126).astype(np.int32)
    return ((127 + e) << 23).view(np.float32), ((127 - e) << 23).view(np.float32)


def _plain(
    low: np.ndarray, high: np.ndarray, scheme: Scheme, up: np.ndarray, down: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """From the range alone. Symmetric: what is largest becomes the lowest code, which has one step more."""
    if scheme.symmetric:
        largest = np.where(high >= -low, high, low)
        return stored(largest / np.float32(-scheme.middle) * up, scheme) * down, _middles(low, scheme)
    s = stored((high - low) / np.float32(scheme.top) * up, scheme) * down
    z = _clipped(-low / _or_one(s), np.float32(0), np.float32(scheme.top))
    return s, np.where(s == 0, _middles(low, scheme), z)


def _middles(like: np.ndarray, scheme: Scheme) -> np.ndarray:
    return np.full_like(like, scheme.middle)


def _weights(x: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    """An output is off by Σ importance (sd - x)². Where that is not known large numbers count more, as in k-quants.

    The root is taken twice: of the weights tried, these have the least of both errors that `_errors` has.
    """
    return np.float32(2) * _root(x) + np.abs(x) if importance is None else importance


def _root(x: np.ndarray) -> np.ndarray:
    return np.sqrt(_sum(x * x) * np.float32(1 / len(x)))


def _search(
    x: np.ndarray, w: np.ndarray, low: np.ndarray, high: np.ndarray, scheme: Scheme
) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point with the least Σw(sd - x)²: of the codes of all candidates, each with its best scale.

    For given d the best s is Σwdx / Σwd², and the error then Σwx² - (Σwdx)² / Σwd².
    """
    best = np.zeros_like(low), np.zeros_like(low), _middles(low, scheme)
    for r, turns in _candidates(low, high, scheme):
        best = _try(x, w, r, turns, best, scheme)
    r = np.float32(1) / _or_one(best[1])
    _, s, z = _try(x, w, r, [(1, best[2])], best, scheme)
    return s, z


def _candidates(
    low: np.ndarray, high: np.ndarray, scheme: Scheme
) -> Iterator[tuple[np.ndarray, list[_Turn]]]:
    """r and what to try with it: both signs, or two zero points that share what is cut off between both ends."""
    one, half, top = np.float32(1), np.float32(0.5), np.float32(scheme.top)
    inverse = one / _or_one(np.maximum(high, -low) if scheme.symmetric else high - low)
    for step in steps(scheme):
        if scheme.symmetric:
            z = _middles(low, scheme)
            yield (np.float32(scheme.middle) + step) * inverse, [(1, z), (-1, z)]
            continue
        r = (top + step) * inverse
        below = _rounded(-low * r - (step * half + half))
        yield r, [(1, np.minimum(np.maximum(z, np.float32(0)), top)) for z in (below, below + one)]


def _try(
    x: np.ndarray, w: np.ndarray, r: np.ndarray, turns: list[_Turn], best: _Best, scheme: Scheme
) -> _Best:
    """`best` is the gain (Σwdx)² / Σwd², the scale and the zero point of what is best so far."""
    sums = [(sign, z, np.zeros_like(r), np.zeros_like(r)) for sign, z in turns]
    for row, weight in zip(x, w, strict=True):
        ratio = _rounded(row * r)
        for sign, z, wdx, wdd in sums:
            d = np.minimum(np.maximum(ratio if sign > 0 else -ratio, -z), np.float32(scheme.top) - z)
            wd = weight * d
            wdx += wd * row
            wdd += wd * d
    for _, z, wdx, wdd in sums:
        s = wdx / _or_one(wdd)
        better = wdx * s > best[0]
        best = tuple(np.where(better, *pair) for pair in zip((wdx * s, s, z), best, strict=True))
    return best


def _or_one(s: np.ndarray) -> np.ndarray:
    return np.where(s == 0, np.float32(1), s)


def _errors(
    x: np.ndarray, importance: np.ndarray | None, s: np.ndarray, d: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Squared errors none of which may grow: weighted by importance, or else by √(mean x²) + |x|, and plain."""
    off = x - s * d
    square = off * off
    if importance is not None:
        return (_sum(importance * square),)
    plain = _sum(square)
    return _root(x) * plain + _sum(np.abs(x) * square), plain


def _smaller(errors: tuple[np.ndarray, ...], limits: tuple[np.ndarray, ...]) -> np.ndarray:
    below = [error < limit * _MARGIN for error, limit in zip(errors, limits, strict=True)]
    return np.logical_and.reduce(below)


def _nearest(ratio: np.ndarray, z: np.ndarray, scheme: Scheme) -> np.ndarray:
    return _clipped(ratio, -z, np.float32(scheme.top) - z)


def _clipped(x: np.ndarray, low: np.ndarray | np.float32, high: np.ndarray | np.float32) -> np.ndarray:
    return _rounded(np.minimum(np.maximum(x, low), high))


def _rounded(x: np.ndarray) -> np.ndarray:
    return (x + _ROUND) - _ROUND


def _sum(terms: np.ndarray) -> np.ndarray:
    """Over a block, from its first number to its last: numpy's own sum has no order that it promises."""
    total = np.zeros_like(terms[0])
    for row in terms:
        total += row
    return total
