"""Sound for the audio encoder, as transformers' Gemma4AudioFeatureExtractor prepares it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cabochon.errors import RequestError
from cabochon.media.audio_file import Audio, load_audio
from cabochon.media.log_mel import LogMel

__all__ = ["MAX_SAMPLES", "Audio", "AudioProcessor", "Clips", "load_audio"]

MAX_SAMPLES = 480_000  # of a clip: 30 s at 16 kHz; transformers' `max_length`, which no file says
MULTIPLE = 128  # transformers pads the samples of a call to a multiple of this


@dataclass(frozen=True)
class Clips:
    """What the audio encoder takes, and how many rows it gives for each clip.

    `input_features` f32 [clips, time, bands], zeros where padded; `input_features_mask` bool [clips, time]; `tokens`
    per clip; `remarks`: what was left out, and of which clip.
    """

    input_features: np.ndarray
    input_features_mask: np.ndarray
    tokens: tuple[int, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class AudioProcessor:
    """The feature_extractor of processor_config.json."""

    log_mel: LogMel

    @property
    def sampling_rate(self) -> int:
        """Samples per second that the encoder knows; everything is resampled to it."""
        return self.log_mel.sampling_rate

    def tokens(self, samples: int) -> int:
        """Soft tokens of a clip of that many samples at `sampling_rate`: a quarter of its frames, rounded up."""
        return -(-self.log_mel.frames(min(samples, MAX_SAMPLES)) // 4)

    def __call__(self, clips: Audio | Sequence[Audio], *, truncate: bool = True) -> Clips:
        """Prepare clips of any lengths; each is what `load_audio` takes.

        A clip of more than MAX_SAMPLES loses its end, as with transformers, and `remarks` says so; with
        `truncate=False` it is refused. Raises RequestError, with the number of the clip, for that, and for clips that
        are too short for one frame.
        """
        items = list(clips) if isinstance(clips, list) else [clips]
        if not items:
            raise RequestError("no audio; expected at least one clip", at="audio")
        loaded = [self._loaded(item, number) for number, item in enumerate(items)]
        remarks = [_too_long(samples, self.sampling_rate) for samples in loaded]
        for number, remark in enumerate(remarks):
            if remark and not truncate:
                raise RequestError(remark, at=f"audio[{number}]", remedy="cut it into clips of that length")
        kept = [samples[:MAX_SAMPLES] for samples in loaded]
        features, mask = self._features(kept)
        said = tuple(f"audio[{i}]: {text}; the rest is left out" for i, text in enumerate(remarks) if text)
        return Clips(features, mask, tuple(self.tokens(len(samples)) for samples in kept), said)

    def _loaded(self, item: Any, number: int) -> np.ndarray:
        try:
            samples = load_audio(item, self.sampling_rate)
        except RequestError as error:
            at = f"audio[{number}] {error.at if error.at != 'audio' else ''}".strip()
            raise RequestError(error.message, at=at, remedy=error.remedy) from error
        if not self.tokens(len(samples)):
            least = self.log_mel.frame_length + 1 - self.log_mel.lead
            what = f"{len(samples)} samples at {self.sampling_rate} Hz; one frame needs {least}"
            raise RequestError(what, at=f"audio[{number}]", remedy="give a longer clip")
        return samples

    def _features(self, clips: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        length = -(-max(map(len, clips)) // MULTIPLE) * MULTIPLE
        valid = np.array([self.log_mel.frames(len(samples)) for samples in clips])
        mask = np.arange(self.log_mel.frames(length)) < valid[:, None]
        features = np.stack([self.log_mel(np.pad(samples, (0, length - len(samples)))) for samples in clips])
        return features * mask[..., None], mask


def _too_long(samples: np.ndarray, rate: int) -> str:
    """What is wrong with the length of a clip; "" where nothing is."""
    if len(samples) <= MAX_SAMPLES:
        return ""
    return f"{len(samples) / rate:.2f} s at {rate} Hz; a clip has {MAX_SAMPLES / rate:g} s at most"
