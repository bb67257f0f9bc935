"""Processors spelled out as processor_config.json has them: every key that counts, defaults too."""

from typing import Any

from cabochon.media.audio import AudioProcessor
from cabochon.media.patches import Patching
from cabochon.media.processors import Processors

__all__ = ["spelled"]

_BICUBIC = 3  # Pillow's number


def spelled(processors: Processors) -> dict[str, dict[str, Any]]:
    """Sections of processor_config.json, of those that `processors` has.

    What a file leaves to transformers' defaults, says as null or in older words, is here under its usual key.
    """
    found = dict[str, dict[str, Any]]()
    if processors.image:
        found["image_processor"] = _pixels(processors.image.patching)
    if processors.audio:
        found["feature_extractor"] = _sound(processors.audio)
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


def _sound(processor: AudioProcessor) -> dict[str, Any]:
    mel = processor.log_mel
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
