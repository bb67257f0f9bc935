"""What files leave unsaid is spelled out: transformers' defaults under their usual keys."""

import json
from pathlib import Path
from typing import Any

import pytest

from cabochon.media import read_processors, spelled
from packages import TINY


def written(folder: Path, **files: Any) -> Path:
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_what_a_file_says_stays_as_it_is() -> None:
    said = json.loads((TINY / "target" / "processor_config.json").read_text())
    found = spelled(read_processors(TINY / "target"))
    assert found.keys() == {"image_processor", "feature_extractor", "video_processor"}
    for name, section in found.items():
        normalized = {"image_mean", "image_std"} if not said[name].get("do_normalize") else set[str]()
        for key in section.keys() & said[name].keys() - normalized:
            assert section[key] == said[name][key], (name, key)


@pytest.mark.parametrize("said", [{}, {"do_resize": None, "rescale_factor": None, "resample": None}])
def test_defaults_of_images(tmp_path: Path, said: dict[str, Any]) -> None:
    found = spelled(read_processors(written(tmp_path, processor_config={"image_processor": said})))
    assert found == {
        "image_processor": {
            "do_resize": True, "resample": 3, "patch_size": 16, "pooling_kernel_size": 3, "max_soft_tokens": 280,
            "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": False, "image_mean": None, "image_std": None,
        }
    }  # fmt: skip


def test_the_unified_model_is_spelled_as_its_encoders_take_it() -> None:
    """Its patches are put together; a tool that reads them sees nothing to pool."""
    found = spelled(read_processors(TINY / "unified"))
    for name in ("image_processor", "video_processor"):
        assert (found[name]["patch_size"], found[name]["pooling_kernel_size"]) == (12, 1)
        assert found[name]["max_soft_tokens"] == 70
    assert found["feature_extractor"] == {
        "feature_size": 640, "sampling_rate": 16_000, "audio_samples_per_token": 640,
    }  # fmt: skip


def test_lengths_in_milliseconds_and_older_files(tmp_path: Path) -> None:
    sound = {
        "feature_extractor_type": "Gemma4AudioFeatureExtractor",
        "feature_size": 16,
        "frame_length_ms": 32.0,
    }
    found = spelled(read_processors(written(tmp_path, preprocessor_config=sound)))["feature_extractor"]
    assert (found["frame_length"], found["hop_length"], found["fft_length"]) == (512, 160, 512)
    assert found["mel_floor"] == 1e-3 and found["max_frequency"] == 8000.0
