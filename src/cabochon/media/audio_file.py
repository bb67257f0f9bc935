"""Sound files, bytes and arrays to one channel of samples at the encoder's rate.

The channels' mean first, then soxr in its quality HQ: the way of librosa and of transformers' soundfile backend.
"""

import math
from typing import Any

import numpy as np

from cabochon.errors import RequestError
from cabochon.media.extras import require
from cabochon.media.source import Source, name_of, opened

__all__ = ["MAX_CHANNELS", "MAX_PEAK", "MAX_VALUES", "Audio", "load_audio"]

Audio = Source | np.ndarray | tuple[np.ndarray, int]

MAX_VALUES = 2**27  # samples times channels decoded at once, 512 MB: 23 minutes of stereo at 48 kHz
MAX_PEAK = 100.0  # 40 dB above full scale: no recording, but integers that were never scaled
MAX_CHANNELS = 64  # more is an array laid the other way round
_RATES = (1, 2**31 - 1)


def load_audio(source: Audio, sampling_rate: int) -> np.ndarray:
    """Sound as f32 [samples] at `sampling_rate` Hz, in [-1, 1] where it was integers.

    `source`: a path, bytes or an open file that libsndfile reads (WAV, FLAC, OGG, MP3 ...); a pair of an array and its
    rate; or an array, taken to be at `sampling_rate` as transformers takes it. Arrays are [samples] or
    [samples, channels]: int16, int32, uint8 and int8 at full scale, or floating point. Raises RequestError for
    anything else, for no samples at all, for NaN, infinities and peaks above MAX_PEAK, and for more than MAX_VALUES.
    """
    at, rate = "audio", sampling_rate
    if isinstance(source, tuple):
        samples, rate = _pair(source)
    elif isinstance(source, np.ndarray):
        samples = _floats(source, at)
    else:
        at = name_of(source, "audio")
        samples, rate = _decoded(source, at)
    if not samples.size:
        raise RequestError("holds no samples", at=at)
    with np.errstate(over="ignore", invalid="ignore"):  # of what is refused just below
        mono = (samples.mean(axis=1) if samples.ndim == 2 else samples).astype(np.float32, copy=False)
    _check_range(mono, at)
    return _resampled(mono, rate, sampling_rate)


def _check_range(samples: np.ndarray, at: str) -> None:
    if not np.isfinite(samples).all():
        raise RequestError(
            "holds NaN or infinities", at=at, remedy="replace them with zeros if they are gaps"
        )
    if (peak := float(np.abs(samples).max())) > MAX_PEAK:
        what = f"holds floating point up to {peak:g}; full scale is 1"
        raise RequestError(what, at=at, remedy="divide by 32768 what was 16 bits, or give it as int16")


def _pair(source: tuple[Any, ...]) -> tuple[np.ndarray, int]:
    if (
        len(source) != 2
        or not isinstance(source[0], np.ndarray)
        or not isinstance(source[1], int | np.integer)
    ):
        found = ", ".join(type(part).__name__ for part in source)
        raise RequestError(f"a tuple of ({found}); expected (array, sampling rate)", at="audio")
    rate = int(source[1])
    if not _RATES[0] <= rate <= _RATES[1]:
        raise RequestError(f"{rate} Hz; expected a rate above 0", at="audio")
    return _floats(source[0], "audio"), rate


def _floats(array: np.ndarray, at: str) -> np.ndarray:
    """Samples as floating point; integers are divided by their full scale."""
    if array.ndim not in (1, 2):
        raise RequestError(
            f"array of shape {list(array.shape)}; expected [samples] or [samples, channels]", at=at
        )
    if array.ndim == 2 and array.shape[1] > MAX_CHANNELS:
        what = (
            f"array with {array.shape[1]} channels; expected [samples, channels] with {MAX_CHANNELS} at most"
        )
        raise RequestError(what, at=at, remedy="transpose it, if channels come first")
    _check_values(array.size, at)
    if array.dtype.kind == "f":
        return array
    if array.dtype.name not in ("int8", "int16", "int32", "uint8"):
        what = f"array of {array.dtype}; expected int16, int32, int8, uint8 or floating point"
        raise RequestError(what, at=at, remedy="bring it to floating point in [-1, 1]")
    half = 2.0 ** (8 * array.dtype.itemsize - 1)
    centred = array.astype(np.float64) - (half if array.dtype.kind == "u" else 0.0)
    return (centred / half).astype(np.float32)


class _Patient:
    """A file without a name, whose ending would be believed, and where seeking before the start is the start."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.read, self.readinto, self.tell = file.read, file.readinto, file.tell

    def seek(self, offset: int, whence: int = 0) -> int:
        """As io.IOBase.seek."""
        try:
            return self._file.seek(offset, whence)
        except (OSError, ValueError):
            return self._file.seek(0)


def _decoded(source: Any, at: str) -> tuple[np.ndarray, int]:
    library = require("soundfile", "reading sound")
    with opened(source, "audio", "an array or (array, sampling rate)") as file:
        try:
            with library.SoundFile(_Patient(file)) as sound:
                _check_values(sound.frames * sound.channels, at)
                return sound.read(dtype="float32", always_2d=True), sound.samplerate
        except library.LibsndfileError as error:
            what = f"is not sound of a known kind, or broken: {error.error_string.rstrip('.')}"
            raise RequestError(what, at=at, remedy="save it as WAV or FLAC") from error


def _check_values(count: int, at: str) -> None:
    if count > MAX_VALUES:
        what = f"holds {count} values (samples times channels); {MAX_VALUES} are taken"
        raise RequestError(what, at=at, remedy="cut out the part that is meant")


def _resampled(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """As long as librosa makes it: the last fraction of a sample counts."""
    if rate == wanted:
        return samples
    made: np.ndarray = require("soxr", f"resampling from {rate} to {wanted} Hz").resample(
        samples, rate, wanted, "HQ"
    )
    length = math.ceil(len(samples) * wanted / rate)
    return np.pad(made[:length], (0, max(length - len(made), 0)))
