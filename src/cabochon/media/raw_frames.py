"""A clip as it is, cut into frames, as transformers' Gemma4UnifiedAudioFeatureExtractor cuts it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

__all__ = ["RawFrames"]


@dataclass(frozen=True)
class RawFrames:
    """Samples to frames of `width` samples, the last one filled up with zeros. `sampling_rate` in Hz."""

    width: int
    sampling_rate: int

    reduction: ClassVar[int] = 1
    """Frames that become one soft token."""
    shortest: ClassVar[int] = 1
    """Samples of a clip that gives a frame."""
    longest: ClassVar[None] = None
    """There is no limit."""

    @property
    def multiple(self) -> int:
        """The samples of a call are padded to a multiple of this: to whole frames."""
        return self.width

    def frames(self, samples: int) -> int:
        """Frames of that many samples."""
        return -(-samples // self.width)

    def __call__(self, samples: np.ndarray) -> np.ndarray:
        """f32 [n] -> f32 [T, width]."""
        count = self.frames(len(samples))
        padded = np.pad(samples.astype(np.float32, copy=False), (0, count * self.width - len(samples)))
        return padded.reshape(count, self.width)
