"""The spectrogram against direct formulas."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cabochon.media.log_mel import LogMel, _bank
from pictures import tone

REAL = LogMel(
    bands=128,
    sampling_rate=16_000,
    frame_length=320,
    hop_length=160,
    fft_length=512,
    min_frequency=0.0,
    max_frequency=8000.0,
    mel_floor=1e-3,
)


def with_(**changes: Any) -> LogMel:
    return replace(REAL, **changes)


def directly(samples: np.ndarray, mel: LogMel) -> np.ndarray:
    """Frame by frame, sample by sample, in float64: the transform is a sum, the filters are triangles in Hz."""
    padded = np.concatenate([np.zeros(mel.frame_length // 2), samples.astype(np.float64)])
    to_mel, to_hertz = (lambda f: 2595 * np.log10(1 + f / 700)), (lambda m: 700 * (10 ** (m / 2595) - 1))
    step = (to_mel(mel.max_frequency) - to_mel(mel.min_frequency)) / (mel.bands + 1)
    corners = [to_hertz(to_mel(mel.min_frequency) + i * step) for i in range(mel.bands + 2)]
    hertz = np.arange(mel.fft_length // 2 + 1) * mel.sampling_rate / mel.fft_length
    n = np.arange(mel.frame_length)
    wave = np.exp(-2j * np.pi * np.outer(np.arange(len(hertz)), n) / mel.fft_length)
    rows = []
    for start in range(0, len(padded) - mel.frame_length, mel.hop_length):
        frame = padded[start : start + mel.frame_length] * (
            0.5 - 0.5 * np.cos(2 * np.pi * n / mel.frame_length)
        )
        magnitude = np.abs(wave @ frame)
        bands = []
        for low, middle, high in zip(corners, corners[1:], corners[2:], strict=False):
            triangle = np.interp(hertz, [low, middle, high], [0.0, 1.0, 0.0], left=0.0, right=0.0)
            bands.append(np.log(magnitude @ triangle + mel.mel_floor))
        rows.append(bands)
    return np.array(rows)


@pytest.mark.parametrize(
    "mel", [REAL, with_(bands=16, min_frequency=125.0, max_frequency=7600.0, mel_floor=1e-5)]
)
def test_against_sums(mel: LogMel):
    samples = tone(3000) + 0.02 * tone(3000, hertz=3100.0)
    np.testing.assert_allclose(np.exp(mel(samples)), np.exp(directly(samples, mel)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("samples", "frames"),
    [(0, 0), (160, 0), (161, 1), (320, 1), (321, 2), (5000, 31), (16_000, 99), (480_000, 2999)],
)
def test_frames(samples: int, frames: int):
    assert REAL.frames(samples) == frames == len(REAL(np.zeros(samples, np.float32)))


def test_silence_is_the_floor():
    np.testing.assert_allclose(REAL(np.zeros(1600, np.float32)), np.log(1e-3), rtol=1e-6)


def test_a_tone_stands_in_its_band():
    """1000 Hz are 1000 mel, and corners lie 2840 / 129 mel apart: the 45th triangle is the nearest."""
    sine = np.sin(2 * np.pi * 1000 * np.arange(16_000) / 16_000).astype(np.float32)
    assert REAL(sine)[50].argmax() == round(1000 / (2840 / 129)) - 1


def test_scale_mean_and_deviation():
    samples, mean, deviation = tone(2000), tuple(np.linspace(-1, 1, 128)), tuple(np.linspace(1, 3, 128))
    plain = REAL(samples)
    np.testing.assert_allclose(
        with_(mean=mean, stddev=deviation)(samples), (plain - mean) / deviation, atol=1e-5
    )
    np.testing.assert_allclose(with_(scale=0.5)(samples), REAL(samples * np.float32(0.5)), atol=1e-6)


@pytest.mark.parametrize("htk", [True, False])
def test_preemphasis(htk: bool):
    """Less 0.9 of the sample before; in HTK's flavour the first sample of a frame has none, and is scaled by 0.1."""
    mel = with_(preemphasis=0.9, htk_preemphasis=htk)
    samples = tone(1000)
    padded = np.concatenate([np.zeros(160), samples])
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(320) / 320)
    start = 3 * 160  # the fourth frame
    frame = padded[start : start + 321]
    if htk:
        emphasised = np.concatenate([[frame[0] * 0.1], frame[1:320] - 0.9 * frame[:319]])
    else:
        emphasised = frame[1:] - 0.9 * frame[:-1]
    magnitude = np.abs(np.fft.rfft(emphasised * window, 512))
    np.testing.assert_allclose(np.exp(mel(samples)[3]), magnitude @ _bank(REAL) + 1e-3, rtol=1e-5, atol=1e-6)
