"""Processors spelled out as processor_config.json has them: every key that counts, defaults too."""

from typing import Any

from cabochon.media.log_mel import LogMel
from cabochon.media.patches import Patching
from cabochon.media.processors import Processors
from cabochon.media.raw_frames import RawFrames

__all__ = ["spelled"]

_BICUBIC = 3  # Pillow's number


def spelled(processors: Processors) -> dict[str, dict[str, Any]]:
    """Sections of processor_config.json, of those that `processors` has.

    What a file leaves to transformers' defaults, says as null or in older words, is here under its usual key. Patches
    are those that the encoder takes.
    """
    found = dict[str, dict[str, Any]]()
    if processors.image:
        found["image_processor"] = _pixels(processors.image.patching)
    if processors.audio:
        found["feature_extractor"] = _sound(processors.audio.features)
    if processors.video:
        found["video_processor"] = _pixels(processors.video.patching)
    return found


def _pixels(patching: Patching) -> dict[str, Any]:
    said = patching.normalization
    return {
        "do_resize": True,
        "resample": _BICUBIC,
        "patch_size": patching.patch_size,
        "pooling_kernel_size": patching.pooling_kernel_size,
        "max_soft_tokens": patching.max_soft_tokens,
        "do_rescale": True,
        "rescale_factor": patching.rescale_factor,
        "do_normalize": said is not None,
        "image_mean": list(said.mean) if said else None,
        "image_std": list(said.std) if said else None,
    }


def _sound(features: LogMel | RawFrames) -> dict[str, Any]:
    if isinstance(features, LogMel):
        return _mel(features)
    return {
        "feature_size": features.width,
        "sampling_rate": features.sampling_rate,
        "audio_samples_per_token": features.width,
    }


def _mel(mel: LogMel) -> dict[str, Any]:
    return {
        "feature_size": mel.bands,
        "sampling_rate": mel.sampling_rate,
        "frame_length": mel.frame_length,
        "hop_length": mel.hop_length,
        "fft_length": mel.fft_length,
        "min_frequency": mel.min_frequency,
        "max_frequency": mel.max_frequency,
        "mel_floor": mel.mel_floor,
        "preemphasis": mel.preemphasis,
    }
