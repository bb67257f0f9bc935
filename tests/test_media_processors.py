"""Configuration files: what published ones say, what transformers' defaults are, and what is not understood."""

import json
from pathlib import Path
from typing import Any

import pytest

from cabochon.errors import ConfigError
from cabochon.media import AudioProcessor, ImageProcessor, Processors, VideoProcessor, read_processors
from cabochon.media.log_mel import LogMel
from cabochon.media.patches import Normalization, Patching
from cabochon.media.raw_frames import RawFrames
from pictures import REAL, TARGET
from test_media_log_mel import REAL as LOG_MEL
from test_media_log_mel import with_

IDENTITY = Normalization((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
SECTIONS = ("image_processor", "feature_extractor", "video_processor")
TINY = json.loads((TARGET / "processor_config.json").read_text())


def read(folder: Path, name: str = "processor_config.json", /, **values: Any) -> Processors:
    (folder / name).write_text(json.dumps(values))
    return read_processors(folder)


def test_the_tiny_checkpoint():
    factor = TINY["image_processor"]["rescale_factor"]
    assert read_processors(TARGET) == Processors(
        ImageProcessor(Patching(4, 3, 70, factor)),
        AudioProcessor(with_(bands=16)),
        VideoProcessor(Patching(4, 3, 70, factor, IDENTITY), 2),
    )


def test_defaults_are_those_of_transformers(tmp_path: Path):
    image, audio, video = ImageProcessor(REAL), AudioProcessor(LOG_MEL), VideoProcessor(
        Patching(16, 3, 70, 1 / 255, IDENTITY), 32
    )  # fmt: skip
    assert read(tmp_path, **{section: {} for section in SECTIONS}) == Processors(image, audio, video)
    assert read(tmp_path, image_processor={}) == Processors(image, None, None)
    assert read(tmp_path, image_processor=None, audio_seq_length=750) == Processors(None, None, None)
    nulls = {section: dict.fromkeys(TINY[section]) for section in SECTIONS}
    assert read(tmp_path, **nulls) == Processors(image, audio, video)


def test_no_files(tmp_path: Path):
    assert read_processors(tmp_path) == Processors(None, None, None)


def test_older_files(tmp_path: Path):
    """One processor in a file of its own, before transformers 5."""
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(TINY["image_processor"]))
    (tmp_path / "video_preprocessor_config.json").write_text(json.dumps(TINY["video_processor"]))
    older = read(tmp_path, processor_class="Gemma4Processor", image_seq_length=70)
    assert older == Processors(read_processors(TARGET).image, None, read_processors(TARGET).video)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(TINY["feature_extractor"]))
    assert read_processors(tmp_path).audio == read_processors(TARGET).audio


def test_files_that_agree_and_files_that_do_not(tmp_path: Path):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(TINY["image_processor"]))
    assert read(tmp_path, **TINY) == read_processors(TARGET)
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({**TINY["image_processor"], "patch_size": 8})
    )
    with pytest.raises(
        ConfigError, match=r"^preprocessor_config.json: differs from processor_config.json: image_proc"
    ):
        read_processors(tmp_path)


def test_features_of_every_key(tmp_path: Path):
    audio = read(
        tmp_path,
        feature_extractor={
            "feature_size": 4,
            "sampling_rate": 8000,
            "frame_length_ms": 32,
            "hop_length_ms": 12.5,
            "frame_length": 256,
            "hop_length": 100,
            "fft_length": 512,
            "fft_overdrive": True,
            "min_frequency": 50,
            "max_frequency": 3800.0,
            "mel_floor": 1e-5,
            "preemphasis": 0.97,
            "preemphasis_htk_flavor": False,
            "input_scale_factor": 2,
            "per_bin_mean": [1, 2, 3, 4.5],
            "per_bin_stddev": [1, 1, 2, 2],
        },
    ).audio
    assert audio is not None and audio.sampling_rate == 8000
    mel = audio.features
    assert isinstance(mel, LogMel)
    assert (mel.frame_length, mel.hop_length, mel.fft_length, mel.bands) == (256, 100, 512, 4)
    assert (mel.min_frequency, mel.max_frequency, mel.mel_floor, mel.scale) == (50.0, 3800.0, 1e-5, 2.0)
    assert (mel.preemphasis, mel.htk_preemphasis) == (0.97, False)
    assert (mel.mean, mel.stddev) == ((1.0, 2.0, 3.0, 4.5), (1.0, 1.0, 2.0, 2.0))


def test_every_frame(tmp_path: Path):
    video = read(tmp_path, video_processor={"do_sample_frames": False, "do_normalize": False}).video
    assert video == VideoProcessor(Patching(16, 3, 70), None)


IMAGE = "processor_config.json: image_processor"
AUDIO = "processor_config.json: feature_extractor"
VIDEO = "processor_config.json: video_processor"


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        (
            "image_processor",
            {"patch_sise": 4},
            rf"{IMAGE}: unknown key 'patch_sise' \(did you mean 'patch_size'\?\)",
        ),
        (
            "image_processor",
            {"a": 1, "b": 2},
            f"{IMAGE}: unknown keys 'a', 'b'; known keys: auto_map, crop_size",
        ),
        (
            "image_processor",
            {"patch_size": 0},
            f"{IMAGE}: patch_size: is 0; expected a whole number, 1 or more, 4096 at most",
        ),
        ("image_processor", {"patch_size": 4.0}, f"{IMAGE}: patch_size: is 4.0; expected a whole number"),
        (
            "image_processor",
            {"max_soft_tokens": 256},
            "is 256; expected 70 or 140 or 280 or 560 or 1120: Gemma 4 knows",
        ),
        (
            "image_processor",
            {"do_resize": False},
            "do_resize: is False; expected True: the encoder takes RGB",
        ),
        ("image_processor", {"do_convert_rgb": False}, "do_convert_rgb: is False; expected True"),
        ("image_processor", {"do_rescale": 1}, "do_rescale: is 1; expected True"),
        ("image_processor", {"resample": 2}, "resample: is 2; expected 3: no other filter than bicubic"),
        (
            "image_processor",
            {"size": {"height": 896}},
            r"size: is {'height': 896}; expected None: the patch budget says",
        ),
        (
            "image_processor",
            {"do_center_crop": True},
            "do_center_crop: is True; expected False: nothing is cropped",
        ),
        ("image_processor", {"rescale_factor": 0}, "rescale_factor: is 0; expected a number above 0 to 1"),
        ("image_processor", {"do_normalize": "no"}, "do_normalize: is 'no'; expected true or false"),
        (
            "image_processor",
            {"do_normalize": True, "image_mean": 0.5},
            "image_mean: is 0.5; expected 3 numbers",
        ),
        (
            "image_processor",
            {"do_normalize": True, "image_std": [1, 0, 1]},
            r"image_std: is \[1.0, 0.0, 1.0\]; expected n",
        ),
        (
            "image_processor",
            {"image_processor_type": "Gemma3ImageProcessor"},
            "expected .*: the results of no other class",
        ),
        (
            "image_processor",
            {"processor_class": "Gemma3Processor"},
            "expected 'Gemma4Processor' or 'Gemma4UnifiedProcessor': the results of no other",
        ),
        ("image_processor", [1], r"processor_config.json: image_processor: is \[1\]; expected an object"),
        ("video_processor", {"num_frames": 0}, f"{VIDEO}: num_frames: is 0; expected a whole number, 1"),
        (
            "video_processor",
            {"fps": 2},
            f"{VIDEO}: fps: is 2; expected None: checked to be absent or null: num_frames",
        ),
        ("video_processor", {"frames": 2}, f"{VIDEO}: unknown key 'frames'"),
        (
            "feature_extractor",
            {"dither": 1e-4},
            f"{AUDIO}: dither: is 0.0001; expected 0.0 or 0: noise would make",
        ),
        (
            "feature_extractor",
            {"padding_value": -1.0},
            "padding_value: is -1.0; expected 0.0 or 0: padding is silence",
        ),
        (
            "feature_extractor",
            {"padding_side": "left"},
            "padding_side: is 'left'; expected 'right': padding comes last",
        ),
        ("feature_extractor", {"frame_length": 512}, "frame_length: is 512; expected 320: 20 ms at 16000 Hz"),
        ("feature_extractor", {"hop_length": 161}, "hop_length: is 161; expected 160: 10 ms at 16000 Hz"),
        (
            "feature_extractor",
            {"fft_length": 1024},
            "fft_length: is 1024; expected 512: the power of two for frames of",
        ),
        (
            "feature_extractor",
            {"hop_length_ms": 0.01},
            "hop_length_ms: is 0.01, less than a sample at 16000 Hz",
        ),
        (
            "feature_extractor",
            {"max_frequency": 0.0},
            "max_frequency: is 0.0; expected a number above 0 to 1e\\+06",
        ),
        ("feature_extractor", {"mel_floor": 0.0}, "mel_floor: is 0.0; expected a number above 0"),
        ("feature_extractor", {"preemphasis": -0.5}, "preemphasis: is -0.5; expected a number from 0 to 1"),
        ("feature_extractor", {"per_bin_mean": [1.0]}, r"per_bin_mean: is \[1.0\]; expected 128 numbers"),
        ("feature_extractor", {"per_bin_stddev": [0.0] * 128}, "per_bin_stddev: holds a 0"),
        ("feature_extractor", {"n_fft": 512}, f"{AUDIO}: unknown key 'n_fft'"),
        (
            "feature_extractor",
            {"feature_extractor_type": "Gemma4AudioExtractor"},
            "is 'Gemma4AudioExtractor'; expected 'Gemma4AudioFeatureExtractor' or 'Gemma4UnifiedAudioFeatureExtractor'",
        ),
        ("tokenizer", {}, "processor_config.json: unknown key 'tokenizer'"),
        (
            "processor_class",
            "Gemma4AssistantProcessor",
            "processor_class: is 'Gemma4AssistantProcessor'; expected",
        ),
    ],
)
def test_what_is_not_understood(section: str, values: Any, message: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, **{section: values})


UNIFIED = {
    "image_processor": {"image_processor_type": "Gemma4UnifiedImageProcessor"},
    "feature_extractor": {"feature_extractor_type": "Gemma4UnifiedAudioFeatureExtractor"},
    "video_processor": {"video_processor_type": "Gemma4UnifiedVideoProcessor"},
}


def test_the_unified_models_defaults_are_those_of_transformers(tmp_path: Path):
    expected = Processors(
        ImageProcessor(Patching(48, 1, 280)),
        AudioProcessor(RawFrames(640, 16_000)),
        VideoProcessor(Patching(48, 1, 70, 1 / 255, IDENTITY), 32),
    )
    assert read(tmp_path, **UNIFIED) == expected
    bare = {section: {} for section in SECTIONS}
    assert read(tmp_path, processor_class="Gemma4UnifiedProcessor", **bare) == expected
    assert read(tmp_path, **{**bare, "video_processor": UNIFIED["video_processor"]}) == expected
    fast = {
        "image_processor_type": "Gemma4UnifiedImageProcessorFast",
        "processor_class": "Gemma4UnifiedProcessor",
    }
    assert read(tmp_path, image_processor=fast) == Processors(expected.image, None, None)


def test_what_the_unified_model_prepares_otherwise(tmp_path: Path):
    pixels = {"patch_size": 4, "pooling_kernel_size": 5, "max_soft_tokens": 140}
    said = {
        "image_processor": pixels | {"do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.25] * 3},
        "feature_extractor": {"audio_samples_per_token": 10, "feature_size": 10, "sampling_rate": 8000},
        "video_processor": pixels | {"do_normalize": False, "num_frames": 3},
    }
    found = read(tmp_path, **{name: UNIFIED[name] | values for name, values in said.items()})
    assert found.image == ImageProcessor(
        Patching(20, 1, 140, 1 / 255, Normalization((0.5,) * 3, (0.25,) * 3))
    )
    assert found.video == VideoProcessor(Patching(20, 1, 140), 3)
    assert found.audio == AudioProcessor(RawFrames(10, 8000)) and found.audio.sampling_rate == 8000


def test_an_older_file_of_the_unified_model(tmp_path: Path):
    """A file that is one section by itself decides what the others, which name no class, are."""
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(UNIFIED["feature_extractor"]))
    assert read(tmp_path, image_processor={}).image == ImageProcessor(Patching(48, 1, 280))


@pytest.mark.parametrize(
    ("section", "values", "message"),
    [
        (
            "feature_extractor",
            {"feature_extractor_type": "Gemma4AudioFeatureExtractor"},
            rf"^{AUDIO}: feature_extractor_type: is 'Gemma4AudioFeatureExtractor'; expected one that goes with "
            rf"image_processor_type 'Gemma4UnifiedImageProcessor' of {IMAGE}\n  -> take all of them",
        ),
        (
            "video_processor",
            {"video_processor_type": "Gemma4VideoProcessor"},
            f"^{VIDEO}: video_processor_type: is",
        ),
        ("image_processor", {"processor_class": "Gemma4Processor"}, f"^{IMAGE}: processor_class: is"),
        (
            "processor_class",
            "Gemma4Processor",
            "'; expected one that goes with processor_class 'Gemma4Processor'",
        ),
        (
            "feature_extractor",
            {"audio_samples_per_token": 0},
            "audio_samples_per_token: is 0; expected a whole",
        ),
        ("feature_extractor", {"audio_samples_per_token": 2**24}, "or more, 1000000 at most"),
        (
            "feature_extractor",
            {"audio_samples_per_token": 64.0},
            "audio_samples_per_token: is 64.0; expected a whole",
        ),
        ("feature_extractor", {"sampling_rate": 0}, f"{AUDIO}: sampling_rate: is 0; expected"),
        (
            "feature_extractor",
            {"feature_size": 128},
            f"{AUDIO}: feature_size: is 128; expected 640: checked to be audio_samples_per_token: transformers reads",
        ),
        (
            "feature_extractor",
            {"padding_value": 1.0},
            "padding_value: is 1.0; expected 0.0 or 0: padding is silence",
        ),
        ("feature_extractor", {"padding_side": "left"}, "padding_side: is 'left'; expected 'right'"),
        (
            "feature_extractor",
            {"hop_length": 160},
            f"{AUDIO}: unknown key 'hop_length'; known keys: audio_samples_per",
        ),
        ("feature_extractor", {"dither": 0.0}, f"{AUDIO}: unknown key 'dither'"),
        ("image_processor", {"max_soft_tokens": 256}, "max_soft_tokens: is 256; expected 70 or 140"),
        ("image_processor", {"model_patch_size": 48}, f"{IMAGE}: unknown key 'model_patch_size'"),
    ],
)
def test_what_is_not_understood_of_the_unified_model(section: str, values: Any, message: str, tmp_path: Path):
    given: Any = UNIFIED.get(section, {})
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, **{**UNIFIED, section: given | values if isinstance(values, dict) else values})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "processor_config.json: not JSON: "),
        (b"\xff", "processor_config.json: not UTF-8 text: byte 0"),
        (b'{"image_processor": {"rescale_factor": NaN}}', "not JSON: the value NaN"),
        (b"[]", "processor_config.json: the top is a list; expected a JSON object"),
        (b'{"image_processor": {}, "image_processor": {}}', "the key 'image_processor' is given twice"),
        (b"[" * 100_000, "processor_config.json: not usable JSON: nested too deeply"),
    ],
)
def test_files_that_are_not_json(text: bytes, message: str, tmp_path: Path):
    (tmp_path / "processor_config.json").write_bytes(text)
    with pytest.raises(ConfigError, match=message):
        read_processors(tmp_path)
