"""The log-mel spectrogram of a clip, as transformers' Gemma4AudioFeatureExtractor computes it.

Legend: n samples, T frames, F = fft_length / 2 + 1 frequencies, M mel bands.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

__all__ = ["LogMel"]


@dataclass(frozen=True)
class LogMel:
    """Frames of samples to log-mel bands. Lengths in samples, frequencies in Hz, `preemphasis` 0 for none.

    `mean`, `stddev`: of each band, subtracted and divided by; None for none.
    """

    bands: int
    sampling_rate: int
    frame_length: int
    hop_length: int
    fft_length: int
    min_frequency: float
    max_frequency: float
    mel_floor: float
    preemphasis: float = 0.0
    htk_preemphasis: bool = True
    scale: float = 1.0
    mean: tuple[float, ...] | None = None
    stddev: tuple[float, ...] | None = None

    reduction: ClassVar[int] = 4
    """Frames that become one soft token: the encoder halves them twice."""
    longest: ClassVar[int] = 480_000
    """Samples of a clip that are taken: 30 s at 16 kHz; transformers' `max_length`, which no file says."""
    multiple: ClassVar[int] = 128
    """The samples of a call are padded to a multiple of this, by transformers too."""

    @property
    def width(self) -> int:
        """Numbers of a frame."""
        return self.bands

    @property
    def shortest(self) -> int:
        """Samples of a clip that gives a frame."""
        return self.frame_length + 1 - self.lead

    @property
    def lead(self) -> int:
        """Zeros in front of the samples, so that the first frame is centred on the first sample."""
        return self.frame_length // 2

    def frames(self, samples: int) -> int:
        """Frames of that many samples. Each reads one sample more than it is long, of which the last is not used."""
        return max((samples + self.lead - self.frame_length - 1) // self.hop_length + 1, 0)

    def __call__(self, samples: np.ndarray) -> np.ndarray:
        """f32 [n] -> f32 [T, M]."""
        count = self.frames(len(samples))
        if not count:
            return np.zeros((0, self.bands), np.float32)
        if self.scale != 1.0:
            samples = samples * np.float32(self.scale)
        padded = np.pad(samples.astype(np.float32, copy=False), (self.lead, 0))
        windows = np.lib.stride_tricks.sliding_window_view(padded, self.frame_length + 1)
        framed = self._emphasised(windows[:: self.hop_length][:count]) * _hann(self.frame_length)
        magnitude = np.abs(np.fft.rfft(framed, n=self.fft_length, axis=-1))  # [T, F]
        return self._normalised(np.log(magnitude @ _bank(self) + self.mel_floor)).astype(np.float32)

    def _emphasised(self, windows: np.ndarray) -> np.ndarray:
        """Frames [T, frame_length] of windows one sample longer: less the sample before, times `preemphasis`.

        In HTK's flavour a frame knows no sample before its first, which is scaled instead.
        """
        weight = np.float32(self.preemphasis)
        if not weight:
            return windows[:, :-1]
        if self.htk_preemphasis:
            return np.hstack([windows[:, :1] * (1 - weight), windows[:, 1:-1] - weight * windows[:, :-2]])
        return windows[:, 1:] - weight * windows[:, :-1]

    def _normalised(self, bands: np.ndarray) -> np.ndarray:
        bands = bands if self.mean is None else bands - np.array(self.mean)
        return bands if self.stddev is None else bands / np.array(self.stddev)


@lru_cache(maxsize=4)
def _hann(length: int) -> np.ndarray:
    """The periodic Hann window."""
    return (0.5 - 0.5 * np.cos(2 * math.pi * np.arange(length) / length)).astype(np.float32)


@lru_cache(maxsize=4)
def _bank(mel: LogMel) -> np.ndarray:
    """Triangular filters [F, M], evenly spaced on HTK's mel scale, straight in Hz, not normalised by their area.

    A band narrower than the distance of two frequencies may have no weight at all: its log is that of the floor.
    """
    evenly = np.linspace(_mel(mel.min_frequency), _mel(mel.max_frequency), mel.bands + 2)
    corners = 700.0 * (10.0 ** (evenly / 2595.0) - 1.0)
    bins = np.linspace(0, mel.sampling_rate // 2, mel.fft_length // 2 + 1)[:, None]
    width = np.diff(corners)
    rising, falling = (bins - corners[:-2]) / width[:-1], (corners[2:] - bins) / width[1:]
    return np.maximum(0.0, np.minimum(rising, falling))


def _mel(hertz: float) -> float:
    """HTK's mel scale."""
    return 2595.0 * math.log10(1.0 + hertz / 700.0)
