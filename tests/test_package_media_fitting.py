"""Processors of another checkpoint than the encoders': refused before anything is built."""

import json
from dataclasses import replace

import pytest

from cabochon.errors import PackageError
from cabochon.gemma4 import FullConfig, read_full_config
from cabochon.gemma4.embedder_config import AudioEmbedder, VisionEmbedder
from cabochon.media import Processors, read_processors
from cabochon.package.media_fitting import require_fitting
from family import MEMBERS, Member
from packages import TINY


def config(folder: str) -> FullConfig:
    return read_full_config(json.loads((TINY / folder / "config.json").read_bytes()))


def sound(folder: str) -> Processors:
    return Processors(None, read_processors(TINY / folder).audio, None)


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.folder)
def test_those_of_one_checkpoint(member: Member) -> None:
    require_fitting(read_processors(TINY / member.folder), config(member.folder))


@pytest.mark.parametrize(
    ("processors", "model", "message"),
    [
        (
            "target",
            "unified",
            "image_processor: is patches for an encoder to pool; expected patches that are tokens",
        ),
        ("unified", "target", "image_processor.patch_size: is 12; expected 4, as vision_config has it"),
    ],
)
def test_patches_of_the_other_family(processors: str, model: str, message: str) -> None:
    with pytest.raises(PackageError) as raised:
        require_fitting(read_processors(TINY / processors), config(model))
    assert message in str(raised.value) and raised.value.at.startswith("processor_config.json: ")


@pytest.mark.parametrize(
    ("processors", "model", "message"),
    [
        (
            "target",
            "unified",
            "feature_extractor: is a spectrogram; expected frames of samples, as audio_config",
        ),
        (
            "unified",
            "target",
            "feature_extractor: is frames of samples; expected a spectrogram, as the audio tower",
        ),
    ],
)
def test_sound_of_the_other_family(processors: str, model: str, message: str) -> None:
    with pytest.raises(PackageError) as raised:
        require_fitting(sound(processors), config(model))
    assert message in str(raised.value)


def test_sizes_of_another_model_without_encoders() -> None:
    own = config("unified")
    assert isinstance(own.vision, VisionEmbedder) and isinstance(own.audio, AudioEmbedder)
    larger = replace(own, vision=replace(own.vision, patch_size=48))
    with pytest.raises(PackageError, match="is 12; expected 48, as vision_config has it") as raised:
        require_fitting(read_processors(TINY / "unified"), larger)
    assert "image_processor: patch_size times pooling_kernel_size" in raised.value.at
    shorter = replace(own, audio=replace(own.audio, features=320))
    with pytest.raises(PackageError, match="is 640; expected 320"):
        require_fitting(sound("unified"), shorter)
