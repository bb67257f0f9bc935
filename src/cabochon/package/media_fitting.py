"""Whether processors prepare media as the encoders take them."""

from cabochon.errors import PackageError
from cabochon.gemma4 import FullConfig
from cabochon.gemma4.audio_config import AudioConfig
from cabochon.gemma4.embedder_config import AudioEmbedder, VisionEmbedder
from cabochon.gemma4.vision_config import VisionConfig
from cabochon.media import Patching, Processors
from cabochon.media.log_mel import LogMel
from cabochon.media.raw_frames import RawFrames

__all__ = ["require_fitting"]

_PIXELS = {True: "patches that are tokens", False: "patches for an encoder to pool"}
_REMEDY = "take processor_config.json and the weights from one checkpoint"
_SOUND = {True: "frames of samples", False: "a spectrogram"}


def require_fitting(given: Processors, config: FullConfig) -> None:
    """Raise PackageError where processors prepare media otherwise than the encoders of `config` take them."""
    for name, processor in (("image_processor", given.image), ("video_processor", given.video)):
        if processor and config.vision:
            _patches(name, processor.patching, config.vision)
    if given.audio and config.audio:
        _frames(given.audio.features, config.audio)


def _patches(name: str, made: Patching, taken: VisionConfig | VisionEmbedder) -> None:
    _positions(name, made, taken)
    if isinstance(taken, VisionConfig):
        for key in ("patch_size", "pooling_kernel_size"):
            _require(f"{name}.{key}", getattr(made, key), getattr(taken, key), "vision_config")
        return
    _require(name, _PIXELS[made.pooling_kernel_size == 1], _PIXELS[True], "a model without encoders")
    _require(
        f"{name}: patch_size times pooling_kernel_size", made.patch_size, taken.patch_size, "vision_config"
    )


def _positions(name: str, made: Patching, taken: VisionConfig | VisionEmbedder) -> None:
    """All tokens of a picture may stand in one row."""
    most = taken.position_embedding_size // taken.pooling_kernel_size
    if made.max_soft_tokens > most:
        raise PackageError(
            f"is {made.max_soft_tokens}; expected {most} at most: vision_config has "
            f"{taken.position_embedding_size} positions, and a picture may be one row of tokens",
            at=f"processor_config.json: {name}.max_soft_tokens",
            remedy=_REMEDY,
        )


def _frames(made: LogMel | RawFrames, taken: AudioConfig | AudioEmbedder) -> None:
    raw = isinstance(taken, AudioEmbedder)
    of = "audio_config" if raw else "the audio tower"
    _require("feature_extractor", _SOUND[isinstance(made, RawFrames)], _SOUND[raw], of)
    _require("feature_extractor.feature_size", made.width, taken.features, of)


def _require(key: str, found: int | str, expected: int | str, of: str) -> None:
    if found != expected:
        raise PackageError(
            f"is {found}; expected {expected}, as {of} has it",
            at=f"processor_config.json: {key}",
            remedy=_REMEDY,
        )
