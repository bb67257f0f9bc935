"""The processor files of onnxruntime-genai, and what its own processor does with them."""

import pytest

from cabochon.errors import TargetError
from cabochon.media import AudioProcessor, ImageProcessor, read_processors
from cabochon.media.genai import audio_feature_extraction_json, image_processor_json
from cabochon.media.patches import Normalization, Patching
from pictures import REAL, TARGET, UNIFIED
from test_media_log_mel import REAL as LOG_MEL
from test_media_log_mel import with_


def test_images():
    written = image_processor_json(ImageProcessor(REAL))
    decode, cut = (step["operation"] for step in written["processor"]["transforms"])
    assert decode == {"name": "decode_image", "type": "DecodeImage", "attrs": {"color_space": "RGB"}}
    assert cut["type"] == "Gemma4ImageTransform"
    assert cut["attrs"] == {"patch_size": 16, "max_soft_tokens": 280, "pooling_kernel_size": 3}


def test_the_tiny_checkpoint():
    processors = read_processors(TARGET)
    assert processors.image is not None and processors.audio is not None
    cut = image_processor_json(processors.image)["processor"]["transforms"][1]["operation"]["attrs"]
    mel = audio_feature_extraction_json(processors.audio)["feature_extraction"]["sequence"][1]["operation"][
        "attrs"
    ]
    assert cut == {"patch_size": 4, "max_soft_tokens": 70, "pooling_kernel_size": 3}
    assert mel["feature_size"] == 16


def test_audio():
    """The JSON types count: onnxruntime-extensions takes no 20 for 20.0, and no true for 1."""
    decode, mel = audio_feature_extraction_json(AudioProcessor(LOG_MEL))["feature_extraction"]["sequence"]
    assert decode == {"operation": {"name": "audio_decoder", "type": "AudioDecoder"}}
    assert mel["operation"]["type"] == "Gemma4LogMel"
    expected = {
        "feature_size": 128,
        "sampling_rate": 16_000,
        "frame_length_ms": 20.0,
        "hop_length_ms": 10.0,
        "min_frequency": 0.0,
        "max_frequency": 8000.0,
        "preemphasis": 0.0,
        "preemphasis_htk_flavor": 1,
        "fft_overdrive": 0,
        "mel_floor": 0.001,
    }
    attributes = mel["operation"]["attrs"]
    assert attributes == expected
    assert {key: type(value) for key, value in attributes.items()} == {
        k: type(v) for k, v in expected.items()
    }


def test_the_unified_model():
    """A patch is a token already; the operator for frames of samples is one operator of two types."""
    processors = read_processors(UNIFIED)
    assert processors.image is not None and processors.audio is not None
    cut = image_processor_json(processors.image)["processor"]["transforms"][1]["operation"]["attrs"]
    decode, frames = audio_feature_extraction_json(processors.audio)["feature_extraction"]["sequence"]
    assert cut == {"patch_size": 12, "max_soft_tokens": 70, "pooling_kernel_size": 1}
    assert decode == {"operation": {"name": "audio_decoder", "type": "AudioDecoder"}}
    assert frames["operation"]["type"] == "Gemma4Audio"
    assert frames["operation"]["attrs"] == {
        "type": "raw_frames",
        "audio_samples_per_token": 640,
        "sampling_rate": 16_000,
    }


def test_audio_with_everything():
    changes = {"fft_length": 1024, "htk_preemphasis": False, "hop_length": 200, "bands": 2}
    mel = with_(**changes, mean=(1.0, 2.0), stddev=(3.0, 4.0), preemphasis=0.5)
    attributes = audio_feature_extraction_json(AudioProcessor(mel))["feature_extraction"]["sequence"][1][
        "operation"
    ]["attrs"]
    assert (
        attributes["fft_overdrive"],
        attributes["preemphasis_htk_flavor"],
        attributes["hop_length_ms"],
    ) == (1, 0, 12.5)
    assert (attributes["per_bin_mean"], attributes["per_bin_stddev"]) == ([1.0, 2.0], [3.0, 4.0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: image_processor_json(
                ImageProcessor(Patching(16, 3, 280, 1 / 255, Normalization((0.5,) * 3, (0.5,) * 3)))
            ),
            "image_processor: pixels other than value / 255; Gemma4ImageTransform knows no others",
        ),
        (
            lambda: image_processor_json(ImageProcessor(Patching(16, 3, 280, 1 / 127.5))),
            "pixels other than value / 255",
        ),
        (
            lambda: audio_feature_extraction_json(AudioProcessor(with_(scale=2.0))),
            "feature_extractor: input_scale_factor is 2; Gemma4LogMel has no such attribute",
        ),
    ],
)
def test_what_it_cannot_say(make, message: str):
    with pytest.raises(TargetError, match=message):
        make()
