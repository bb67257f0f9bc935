"""What a text says of the weights of a model."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

__all__ = ["Statistics"]


@dataclass(frozen=True, eq=False)
class Statistics:
    """What weights are multiplied with, for the search of their scales: see `Precision.importance`.

    `mean_squares`: by name of the weight, f32 [input channels]. A table that is the head too has those of the last
    hidden state, under `lm_head.weight` as well; one that is only looked up has none, and neither have encoders and
    drafters. `text`, `sha256`: name and digest of the file that was read; `tokens` of it were fed, in `windows` behind
    <bos> each.
    """

    mean_squares: Mapping[str, np.ndarray]
    text: str
    sha256: str
    tokens: int
    windows: int
