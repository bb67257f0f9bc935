"""How much of the original a quantized package keeps: reported, and never judged. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from cabochon.parity.measures import Array

__all__ = ["Quality", "alike", "figures", "quality"]


@dataclass(frozen=True)
class Quality:
    """One prompt of S positions: largest and mean difference of logits, divergence [S] in nats, same likeliest [S]."""

    largest: float
    mean: float
    divergences: tuple[float, ...]
    agrees: tuple[bool, ...]

    def described(self) -> dict[str, float]:
        """The figures as an evidence file states them."""
        return figures([self])


def alike(ours: Array, original: Array) -> Quality | None:
    """The quality; None for logits of other shapes, where other tokens were asked."""
    return quality(ours, original) if ours.shape == original.shape else None


def quality(ours: Array, original: Array) -> Quality:
    """Compares logits [S, V] with the original's, row by row in float64."""
    rows = [_row(a.astype(np.float64), b.astype(np.float64)) for a, b in zip(ours, original, strict=True)]
    largest, mean, scale, divergences, agrees = zip(*rows, strict=True)
    size = max(scale) or 1.0
    return Quality(max(largest) / size, float(np.mean(mean)) / size, divergences, agrees)


def _row(ours: Array, original: Array) -> tuple[float, float, float, float, bool]:
    apart = np.abs(ours - original)
    log_p, log_q = _log_softmax(original), _log_softmax(ours)
    return (
        float(apart.max()),
        float(apart.mean()),
        float(np.abs(original).max()),
        float((np.exp(log_p) * (log_p - log_q)).sum()),
        bool(ours.argmax() == original.argmax()),
    )


def _log_softmax(row: Array) -> Array:
    shifted = row - row.max()
    return shifted - np.log(np.exp(shifted).sum())


def figures(found: Iterable[Quality]) -> dict[str, float]:
    """Several prompts together; each position counts once."""
    found = list(found)
    divergences = [x for one in found for x in one.divergences]
    return {
        "max_relative_difference": max(one.largest for one in found),
        "mean_relative_difference": float(
            np.average([one.mean for one in found], weights=[len(one.agrees) for one in found])
        ),
        "mean_kl_divergence": float(np.mean(divergences)),
        "max_kl_divergence": max(divergences),
        "top1_agreement": float(np.mean([same for one in found for same in one.agrees])),
    }
