"""What logits say of the tokens that came. Pure.

T positions · V vocabulary. Exponentials are taken in f32, a few rows at a time and always in the same memory, sums and
logarithms in f64: a logarithm of a probability is right to about 1e-7.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

__all__ = ["Scores", "scores", "unfit"]

BLOCK = 2**18  # numbers in each of the four arrays that are worked in
Block = tuple[np.ndarray, ...]


class Scores(NamedTuple):
    """Of T positions, f64: losses, -log p of what came, in nats; with a reference also its losses, the divergence
    KL(reference || package), and whether both find the same token likeliest (bool). Empty without one."""

    losses: np.ndarray
    reference: np.ndarray
    divergence: np.ndarray
    agrees: np.ndarray

    @classmethod
    def joined(cls, parts: "list[Scores]") -> "Scores":
        """Of the positions of all parts, in order."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def scores(logits: np.ndarray, ids: np.ndarray, reference: np.ndarray | None = None) -> Scores:
    """Score f32 logits [T, V] by the tokens `ids` [T] that came, and by the logits [T, V] of a reference."""
    return Scores.joined(list(_blocks(logits, ids, reference)))


def _blocks(logits: np.ndarray, ids: np.ndarray, reference: np.ndarray | None) -> Iterator[Scores]:
    rows = max(1, BLOCK // logits.shape[1])
    work = [np.empty((min(rows, len(ids)), logits.shape[1]), np.float32) for _ in range(4)]
    for start in range(0, len(ids), rows):
        part = slice(start, start + rows)
        x, e, y, f = (array[: len(ids[part])] for array in work)
        norm = _exponentials(logits[part], x, e)
        losses = norm - _of(x, ids[part])
        if reference is None:
            none = np.empty(0)
            yield Scores(losses, none, none, none.astype(bool))
            continue
        its = _exponentials(reference[part], y, f)
        theirs = its - _of(y, ids[part])
        agrees = logits[part].argmax(1) == reference[part].argmax(1)
        difference = np.subtract(y, x, out=x)
        divergence = np.vecdot(f, difference).astype(np.float64) / np.exp(its) - its + norm
        yield Scores(losses, theirs, np.maximum(divergence, 0), agrees)


def _exponentials(logits: np.ndarray, x: np.ndarray, e: np.ndarray) -> np.ndarray:
    """Fill x with the logits below their largest and e with exp(x); log(sum(e)), f64 [T]."""
    np.subtract(logits, logits.max(1, keepdims=True), out=x)
    return np.log(np.exp(x, out=e).sum(1, dtype=np.float64))


def _of(x: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return x[np.arange(len(ids)), ids].astype(np.float64)


def unfit(logits: np.ndarray) -> tuple[int, int] | None:
    """The first position whose logits are not all finite, and how many of them are not; None where all are."""
    fine = np.isfinite(logits.max(1)) & np.isfinite(logits.min(1))
    if fine.all():
        return None
    first = int(np.argmin(fine))
    return first, int((~np.isfinite(logits[first])).sum())
