"""Sound for the audio encoder, as transformers' feature extractors of Gemma 4 prepare it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cabochon.errors import RequestError
from cabochon.media.audio_file import Audio, load_audio
from cabochon.media.log_mel import LogMel
from cabochon.media.raw_frames import RawFrames

__all__ = ["Audio", "AudioProcessor", "Clips", "load_audio"]


@dataclass(frozen=True)
class Clips:
    """What the audio encoder takes, and how many rows it gives for each clip.

    `input_features` f32 [clips, time, width], zeros where padded; `input_features_mask` bool [clips, time]; `tokens`
    per clip; `remarks`: what was left out, and of which clip.
    """

    input_features: np.ndarray
    input_features_mask: np.ndarray
    tokens: tuple[int, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class AudioProcessor:
    """The feature_extractor of processor_config.json: what makes numbers of a clip, and batches of that."""

    features: LogMel | RawFrames

    @property
    def sampling_rate(self) -> int:
        """Samples per second that the encoder knows; everything is resampled to it."""
        return self.features.sampling_rate

    def tokens(self, samples: int) -> int:
        """Soft tokens of a clip of that many samples at `sampling_rate`: frames over `reduction`, rounded up."""
        longest = self.features.longest or samples
        return -(-self.features.frames(min(samples, longest)) // self.features.reduction)

    def __call__(self, clips: Audio | Sequence[Audio], *, truncate: bool = True) -> Clips:
        """Prepare clips of any lengths; each is what `load_audio` takes.

        A clip beyond the longest that `features` takes loses its end, as with transformers, and `remarks` says so;
        with `truncate=False` it is refused. Raises RequestError, with the number of the clip, for that, and for clips
        that are too short for one frame.
        """
        items = list(clips) if isinstance(clips, list) else [clips]
        if not items:
            raise RequestError("no audio; expected at least one clip", at="audio")
        loaded = [self._loaded(item, number) for number, item in enumerate(items)]
        remarks = [self._too_long(samples) for samples in loaded]
        for number, remark in enumerate(remarks):
            if remark and not truncate:
                raise RequestError(remark, at=f"audio[{number}]", remedy="cut it into clips of that length")
        kept = [samples[: self.features.longest] for samples in loaded]
        features, mask = self._stacked(kept)
        said = tuple(f"audio[{i}]: {text}; the rest is left out" for i, text in enumerate(remarks) if text)
        return Clips(features, mask, tuple(self.tokens(len(samples)) for samples in kept), said)

    def _loaded(self, item: Any, number: int) -> np.ndarray:
        try:
            samples = load_audio(item, self.sampling_rate)
        except RequestError as error:
            at = f"audio[{number}] {error.at if error.at != 'audio' else ''}".strip()
            raise RequestError(error.message, at=at, remedy=error.remedy) from error
        if len(samples) < self.features.shortest:
            what = (
                f"{len(samples)} samples at {self.sampling_rate} Hz; one frame needs {self.features.shortest}"
            )
            raise RequestError(what, at=f"audio[{number}]", remedy="give a longer clip")
        return samples

    def _stacked(self, clips: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Frames of all clips, padded with zeros to the frames of the longest, and which of them are real."""
        multiple = self.features.multiple
        length = self.features.frames(-(-max(map(len, clips)) // multiple) * multiple)
        made = [self.features(samples) for samples in clips]
        mask = np.arange(length) < np.array([[len(frames)] for frames in made])
        return np.stack([np.pad(frames, ((0, length - len(frames)), (0, 0))) for frames in made]), mask

    def _too_long(self, samples: np.ndarray) -> str:
        """What is wrong with the length of a clip; "" where nothing is."""
        longest, rate = self.features.longest, self.sampling_rate
        if longest is None or len(samples) <= longest:
            return ""
        return f"{len(samples) / rate:.2f} s at {rate} Hz; a clip has {longest / rate:g} s at most"
