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


@pytest.mark.parametrize(("folder", "most"), [("unified", 128), ("target", 85)])
def test_a_budget_beyond_the_positions(folder: str, most: int) -> None:
    """A long picture may be one row of tokens; that is the checkpoint's fault, and said before anything is written."""
    read, own = read_processors(TINY / folder), config(folder)
    assert read.image is not None and own.vision is not None
    assert own.vision.position_embedding_size // own.vision.pooling_kernel_size == most
    wide = replace(read.image, patching=replace(read.image.patching, max_soft_tokens=most + 1))
    with pytest.raises(PackageError, match=f"is {most + 1}; expected {most} at most") as raised:
        require_fitting(replace(read, image=wide), own)
    assert raised.value.at == "processor_config.json: image_processor.max_soft_tokens"
    tight = replace(read.image, patching=replace(read.image.patching, max_soft_tokens=most))
    require_fitting(replace(read, image=tight), own)
