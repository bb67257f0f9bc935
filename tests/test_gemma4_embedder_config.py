import json
from typing import Any

import pytest

from cabochon.errors import ConfigError, UnsupportedError
from cabochon.gemma4 import read_full_config
from cabochon.gemma4.embedder_config import (
    AudioEmbedder,
    VisionEmbedder,
    read_audio_embedder,
    read_vision_embedder,
)
from packages import TINY

VISION: dict[str, Any] = {
    "model_type": "gemma4_unified_vision",
    "patch_size": 16,
    "pooling_kernel_size": 3,
    "mm_embed_dim": 3840,
    "mm_posemb_size": 1120,
    "output_proj_dims": 3840,
    "rms_norm_eps": 1e-6,
}
AUDIO: dict[str, Any] = {"model_type": "gemma4_unified_audio", "audio_embed_dim": 640, "rms_norm_eps": 1e-5}


def test_the_published_embedders() -> None:
    raw = {"vision_config": VISION, "audio_config": AUDIO}
    vision, audio = read_vision_embedder(raw), read_audio_embedder(raw)
    assert vision == VisionEmbedder(hidden=3840, patch_size=48, position_embedding_size=1120, eps=1e-6)
    assert vision.pooling_kernel_size == 1
    assert audio == AudioEmbedder(features=640, eps=1e-5) and audio.reduction == 1


@pytest.mark.parametrize("raw", [{}, {"vision_config": None, "audio_config": None}])
def test_a_model_may_have_neither(raw: dict[str, Any]) -> None:
    assert read_vision_embedder(raw) is None and read_audio_embedder(raw) is None


WRONG = {
    "a tower": ("vision_config", {"model_type": "gemma4_vision"}, "model_type", "'gemma4_unified_vision'"),
    "all of a tower": (
        "vision_config",
        {"model_type": "gemma4_vision", "num_hidden_layers": 2, "head_dim": 8},
        "model_type",
        "is 'gemma4_vision'",  # not a list of unknown keys
    ),
    "all of a conformer": (
        "audio_config",
        {"model_type": "gemma4_audio", "num_hidden_layers": 2},
        "model_type",
        "is 'gemma4_audio'",
    ),
    "layers": ("vision_config", {"num_hidden_layers": 2}, "vision_config", "unknown key 'num_hidden_layers'"),
    "no side": ("vision_config", {"patch_size": 0}, "patch_size", "is 0"),
    "a side that is not the product": (
        "vision_config",
        {"model_patch_size": 16},
        "model_patch_size",
        "expected 48",
    ),
    "another width": ("vision_config", {"output_proj_dims": 64}, "output_proj_dims", "expected 3840"),
    "a huge patch": ("vision_config", {"patch_size": 1 << 13}, "patch_size", "4096 at most"),
    "a conformer": ("audio_config", {"model_type": "gemma4_audio"}, "model_type", "'gemma4_unified_audio'"),
    "other samples": (
        "audio_config",
        {"audio_samples_per_token": 320},
        "audio_samples_per_token",
        "expected 640",
    ),
    "no eps": ("audio_config", {"rms_norm_eps": 0.0}, "rms_norm_eps", "a number above 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_an_error_with_its_address(name: str) -> None:
    section, changed, at, message = WRONG[name]
    right = {"vision_config": VISION, "audio_config": AUDIO}[section]
    read = {"vision_config": read_vision_embedder, "audio_config": read_audio_embedder}[section]
    with pytest.raises(ConfigError) as caught:
        read({section: right | changed})
    assert caught.value.at.endswith(at) and message in caught.value.message


@pytest.mark.parametrize("folder", ["unified", "target"])
def test_a_whole_without_images_and_sound(folder: str) -> None:
    """Neither family is told of towers."""
    raw = json.loads((TINY / folder / "config.json").read_bytes())
    with pytest.raises(UnsupportedError, match="takes neither images nor sound") as caught:
        read_full_config(raw | {"vision_config": None, "audio_config": None})
    assert "tower" not in str(caught.value)
