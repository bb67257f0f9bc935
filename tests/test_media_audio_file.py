"""Sound of every kind, rate and number of channels, and what is no sound."""

import io
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from cabochon.errors import RequestError
from cabochon.media import load_audio
from cabochon.media.audio_file import MAX_VALUES
from pictures import tone

TONE = tone(8000)


def encoded(samples: np.ndarray, rate: int, kind: str, subtype: str | None = None) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()


@pytest.mark.parametrize(
    ("kind", "subtype", "step"),
    [
        ("WAV", "PCM_16", 2**-15),
        ("WAV", "PCM_24", 2**-23),
        ("WAV", "PCM_U8", 2**-7),
        ("WAV", "FLOAT", 1e-9),
        ("WAV", "DOUBLE", 1e-9),
        ("WAV", "ULAW", 0.02),
        ("FLAC", "PCM_16", 2**-15),
        ("FLAC", "PCM_24", 2**-23),
        ("AIFF", "PCM_16", 2**-15),
        ("OGG", "VORBIS", 0.2),
    ],
)
def test_kinds(kind: str, subtype: str, step: float, tmp_path: Path):
    data = encoded(TONE, 16_000, kind, subtype)
    (path := tmp_path / "sound").write_bytes(data)
    for source in (path, str(path), data, io.BytesIO(data)):
        samples = load_audio(source, 16_000)
        assert samples.dtype == np.float32 and samples.shape == (8000,)
        assert np.abs(samples - TONE).max() <= step
    assert np.corrcoef(samples, TONE)[0, 1] > 0.99


@pytest.mark.parametrize("rate", [8000, 11_025, 12_345, 22_050, 44_100, 48_000, 96_000, 7])
def test_rates(rate: int):
    """As librosa and transformers load them: soxr HQ, and a length that is rounded up."""
    samples = tone(rate, rate, 300.0) if rate > 1000 else np.ones(rate, np.float32)
    loaded = load_audio((samples, rate), 16_000)
    assert loaded.dtype == np.float32 and len(loaded) == 16_000
    expected = soxr.resample(samples, rate, 16_000, "HQ")
    np.testing.assert_array_equal(loaded[: len(expected)], expected[:16_000])
    if rate > 1000:
        middle = slice(2000, 14_000)
        assert np.abs(loaded[middle] - tone(16_000, 16_000, 300.0)[middle]).max() < 1e-3
    np.testing.assert_array_equal(load_audio(encoded(samples, rate, "WAV", "FLOAT"), 16_000), loaded)


@pytest.mark.parametrize(
    ("count", "rate", "length"), [(1001, 44_100, 364), (3, 48_000, 1), (100, 16_001, 100)]
)
def test_lengths_are_rounded_up(count: int, rate: int, length: int):
    assert len(load_audio((np.ones(count, np.float32), rate), 16_000)) == length


@pytest.mark.parametrize("channels", [1, 2, 3, 6])
def test_channels_are_averaged(channels: int):
    samples = np.stack([TONE * (i + 1) / 10 for i in range(channels)], 1)
    expected = TONE * (channels + 1) / 20
    np.testing.assert_allclose(load_audio(samples, 16_000), expected, atol=1e-6)
    np.testing.assert_allclose(
        load_audio(encoded(samples, 16_000, "WAV", "FLOAT"), 16_000), expected, atol=1e-6
    )


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([-(2**15), 0, 2**14], np.int16), [-1.0, 0.0, 0.5]),
        (np.array([-(2**31), 0, 2**30], np.int32), [-1.0, 0.0, 0.5]),
        (np.array([-128, 0, 64], np.int8), [-1.0, 0.0, 0.5]),
        (np.array([0, 128, 192], np.uint8), [-1.0, 0.0, 0.5]),
        (np.array([-1.0, 0.0, 0.5], np.float64), [-1.0, 0.0, 0.5]),
        (np.array([-1.0, 0.0, 0.5], np.float16), [-1.0, 0.0, 0.5]),
        (np.array([[-1.0, 1.0], [0.0, 0.5]]), [0.0, 0.25]),
    ],
)
def test_arrays(array: np.ndarray, expected: list[float]):
    samples = load_audio(array, 16_000)
    assert samples.dtype == np.float32 and samples.tolist() == expected


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.zeros(0, np.float32), "audio: holds no samples"),
        (encoded(TONE[:0], 16_000, "WAV"), r"audio of \d+ bytes: holds no samples"),
        (b"", "audio of 0 bytes: is empty: no bytes at all"),
        (
            b"hello, this is text",
            "audio of 19 bytes: is not sound of a known kind, or broken: .*\n  -> save it as WAV",
        ),
        (np.array([0.0, np.nan]), "audio: holds NaN or infinities\n  -> replace them with zeros"),
        (np.array([0.0, np.inf]), "audio: holds NaN or infinities"),
        (np.array([[np.inf, -np.inf]]), "audio: holds NaN or infinities"),
        (np.array([0.0, 1e300]), "audio: holds NaN or infinities"),
        (
            np.array([0.0, -20_000.0]),
            "audio: holds floating point up to 20000; full scale is 1\n  -> divide by 32768",
        ),
        (
            np.zeros((2, 5, 5)),
            r"audio: array of shape \[2, 5, 5\]; expected \[samples\] or \[samples, channels\]",
        ),
        (np.zeros((2, 16_000)), r"audio: array with 16000 channels; .* 64 at most\n  -> transpose it"),
        (
            np.zeros(4, np.int64),
            "audio: array of int64; expected int16, int32, int8, uint8 or floating point",
        ),
        (np.zeros(4, complex), "audio: array of complex128; expected int16"),
        (
            np.broadcast_to(np.int16(0), MAX_VALUES + 1),
            f"audio: holds {MAX_VALUES + 1} values .*; {MAX_VALUES} are",
        ),
        ((TONE, 0), "audio: 0 Hz; expected a rate above 0"),
        ((TONE, -8000), "audio: -8000 Hz; expected a rate above 0"),
        ((TONE, 8000.0), r"audio: a tuple of \(ndarray, float\); expected \(array, sampling rate\)"),
        ((8000, TONE), r"audio: a tuple of \(int, ndarray\); expected \(array, sampling rate\)"),
        (
            7,
            r"int cannot be read as audio; expected a path, bytes, an open file, an array or \(array, sampling rate\)",
        ),
    ],
)
def test_what_is_no_sound(source: object, message: str):
    with pytest.raises(RequestError, match=message):
        load_audio(source, 16_000)  # pyright: ignore[reportArgumentType]


def test_a_file_that_is_too_long_is_refused_before_it_is_decoded():
    """Silence packs well: a FLAC of a few KB can hold hours. Here its header says so; no more is looked at."""
    data = bytearray(encoded(np.zeros(4096, np.int16), 16_000, "FLAC"))
    data[21] |= (
        0x0F  # the upper bits of STREAMINFO's count of samples: 36 bits from the middle of this byte on
    )
    with pytest.raises(
        RequestError, match=r"holds \d{11} values .* -> cut out the part that is meant".replace(" -", "\n  -")
    ):
        load_audio(bytes(data), 16_000)
