"""What a text says of a package, and of what divides it from another. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.evaluation.scores import Scores
from cabochon.evaluation.text import Text
from cabochon.evaluation.weights import Weights

__all__ = ["PERCENTILES", "Divergence", "Evaluation", "Figures", "Place", "divergence"]

PERCENTILES = (50, 90, 99, 99.9)


@dataclass(frozen=True)
class Figures:
    """A package and how well it predicts: `loss` is the mean of -log p over all scored tokens, in nats."""

    package: Path
    target: str
    precision: str
    provider: str
    weights: Weights
    loss: float

    @property
    def perplexity(self) -> float:
        """exp(loss); infinite where that is no f64."""
        return math.exp(self.loss) if self.loss < 709 else math.inf

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "package": str(self.package),
            **self.described(),
        }

    def described(self) -> dict[str, Any]:
        """All but where it lies."""
        return {
            "target": self.target,
            "precision": self.precision,
            "provider": self.provider,
            "weight_bytes": self.weights.nbytes,
            "parameters": self.weights.parameters,
            "bits_per_weight": self.weights.bits,
            "loss": self.loss,
            "perplexity": self.perplexity,
        }


@dataclass(frozen=True)
class Place:
    """The token of the largest divergence: window and position count from 1, `before` is what stands before `token`."""

    divergence: float
    window: int
    position: int
    before: str
    token: str


@dataclass(frozen=True)
class Divergence:
    """What divides a package from a reference, token by token.

    `mean` and `percentiles` of KL(reference || package), in nats; `agreement`: the share of tokens where both find the
    same one likeliest; `log_ratio`: mean difference of losses, which is the logarithm of the ratio of perplexities, and
    `log_ratio_error`, the standard error of that mean.
    """

    mean: float
    percentiles: Mapping[str, float]
    worst: Place
    agreement: float
    log_ratio: float
    log_ratio_error: float

    def as_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "kl_mean": self.mean,
            "kl_percentiles": dict(self.percentiles),
            "kl_worst": vars(self.worst).copy(),
            "top1_agreement": self.agreement,
            "log_perplexity_ratio": self.log_ratio,
            "log_perplexity_ratio_error": self.log_ratio_error,
        }


def divergence(scores: Scores, worst: Place) -> Divergence:
    """The figures of all scored tokens."""
    apart = scores.losses - scores.reference
    return Divergence(
        mean=float(scores.divergence.mean()),
        percentiles={f"{p:g}": float(np.percentile(scores.divergence, p)) for p in PERCENTILES},
        worst=worst,
        agreement=float(scores.agrees.mean()),
        log_ratio=float(apart.mean()),
        log_ratio_error=float(apart.std() / math.sqrt(len(apart))),
    )


@dataclass(frozen=True)
class Evaluation:
    """A package, and where there is one a reference, on one text.

    `windows` windows, in each of which `window` tokens are scored (fewer where the text is shorter), behind <bos> if
    `bos`; `scored` tokens in all; `left_out` tokens of the text are in none.
    """

    text: Text
    window: int
    windows: int
    bos: bool
    scored: int
    left_out: int
    package: Figures
    against: Figures | None = None
    divergence: Divergence | None = None

    @property
    def protocol(self) -> str:
        """How it was measured, in a sentence."""
        size = min(self.window, self.scored)
        count = f"{self.windows:,} window{'' if self.windows == 1 else 's'} of {size:,} tokens"
        behind = "behind <bos>, all scored" if self.bos else "each behind one token more; there is no <bos>"
        rest = f"; the other {self.left_out:,} tokens of the text are left out" if self.left_out else ""
        return f"{count} {behind}: {self.scored:,} tokens{rest}"

    def as_json(self) -> dict[str, Any]:
        """As plain data, for `--json`."""
        return self._said(self.package.as_json(), self.against and self.against.as_json())

    def described(self) -> dict[str, Any]:
        """As plain data that does not say where packages lie, for evidence."""
        return self._said(self.package.described(), self.against and self.against.described())

    def _said(self, package: dict[str, Any], against: dict[str, Any] | None) -> dict[str, Any]:
        said = {
            "protocol": self.protocol,
            "text": {"name": self.text.name, "sha256": self.text.sha256},
            "window": self.window,
            "windows": self.windows,
            "bos": self.bos,
            "scored_tokens": self.scored,
            "left_out_tokens": self.left_out,
            "package": package,
        }
        if against is not None and self.divergence is not None:
            said |= {"against": against, "divergence": self.divergence.as_json()}
        return said
