"""The processor files that onnxruntime-genai reads, derived from ours.

Its operators are those of onnxruntime-extensions. They refuse attributes they do not know and values of another JSON
type: whole numbers where they count, numbers with a point where they measure. What they cannot express is refused here.

What onnxruntime-genai 0.18 was seen to do with these files: log-mel features as ours within 5e-7 for 16 kHz, one or two
channels, raw frames to the bit; it resamples downwards only, another way than soxr, and two channels wrongly. It
resizes in floating point and leaves the overshoot of the filter in: pixels reach beyond [0, 1], by 28 / 255 on a
pattern with hard edges; on ramps, and on noise made small, they are 0.5 to 3.4 / 255 from ours. Positions and counts of
tokens are ours. It writes two line feeds before and behind each image and clip of a prompt, which transformers does
not.
"""

from typing import Any

from cabochon.errors import TargetError
from cabochon.media.audio import AudioProcessor
from cabochon.media.image import ImageProcessor
from cabochon.media.log_mel import LogMel
from cabochon.media.raw_frames import RawFrames

__all__ = ["AUDIO_FILE", "IMAGE_FILE", "audio_feature_extraction_json", "image_processor_json"]

IMAGE_FILE = "image_processor.json"
AUDIO_FILE = "audio_feature_extraction.json"
_REMEDY = "run the package with cabochon, which can"


def image_processor_json(processor: ImageProcessor) -> dict[str, Any]:
    """image_processor.json: decode to RGB, then resize, cut and count. Raises TargetError for what it cannot say."""
    patching = processor.patching
    if patching.normalization is not None or abs(patching.rescale_factor * 255 - 1) > 1e-6:
        what = "pixels other than value / 255; Gemma4ImageTransform knows no others"
        raise TargetError(what, at="processor_config.json: image_processor", remedy=_REMEDY)
    cut = {
        "patch_size": patching.patch_size,
        "max_soft_tokens": patching.max_soft_tokens,
        "pooling_kernel_size": patching.pooling_kernel_size,
    }
    transforms = [
        _operation("decode_image", "DecodeImage", {"color_space": "RGB"}),
        _operation("gemma4_image_transform", "Gemma4ImageTransform", cut),
    ]
    return {"processor": {"name": "gemma4_image_processing", "transforms": transforms}}


def audio_feature_extraction_json(processor: AudioProcessor) -> dict[str, Any]:
    """audio_feature_extraction.json: decode, then the features. Raises TargetError for what it cannot say."""
    features = processor.features
    made = _log_mel(features) if isinstance(features, LogMel) else _raw_frames(features)
    return {"feature_extraction": {"sequence": [_operation("audio_decoder", "AudioDecoder"), made]}}


def _raw_frames(frames: RawFrames) -> dict[str, Any]:
    """Its messages call the operation Gemma4UnifiedAudioFrames, a type that it refuses."""
    attributes = {
        "type": "raw_frames",
        "audio_samples_per_token": frames.width,
        "sampling_rate": frames.sampling_rate,
    }
    return _operation("gemma4_raw_frames", "Gemma4Audio", attributes)


def _log_mel(mel: LogMel) -> dict[str, Any]:
    if mel.scale != 1.0:
        what = f"input_scale_factor is {mel.scale:g}; Gemma4LogMel has no such attribute"
        raise TargetError(what, at="processor_config.json: feature_extractor", remedy=_REMEDY)
    attributes: dict[str, Any] = {
        "feature_size": mel.bands,
        "sampling_rate": mel.sampling_rate,
        "frame_length_ms": mel.frame_length * 1000 / mel.sampling_rate,
        "hop_length_ms": mel.hop_length * 1000 / mel.sampling_rate,
        "min_frequency": mel.min_frequency,
        "max_frequency": mel.max_frequency,
        "preemphasis": mel.preemphasis,
        "preemphasis_htk_flavor": int(mel.htk_preemphasis),
        "fft_overdrive": int(mel.fft_length >= 2 * mel.frame_length),
        "mel_floor": mel.mel_floor,
    }
    for key, values in (("per_bin_mean", mel.mean), ("per_bin_stddev", mel.stddev)):
        if values is not None:
            attributes[key] = list(values)
    return _operation("gemma4_log_mel", "Gemma4LogMel", attributes)


def _operation(name: str, kind: str, attributes: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"operation": {"name": name, "type": kind} | ({} if attributes is None else {"attrs": attributes})}
