"""The tensors of every checkpoint of the family, from config.json alone."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import checkpoints
from cabochon.checkpoint import Tensor, open_checkpoint
from cabochon.errors import ConfigError, UnsupportedError
from cabochon.gemma4 import full_tensors, read_full_config
from cabochon.gemma4.layout import full_geometry, is_drafter, layout, text_geometry, text_layout, tower_layout
from cabochon.gemma4.names import as_rows
from family import MEMBERS

GEOMETRIES = Path(__file__).parent / "data" / "geometries"


def published(name: str) -> dict[str, Any]:
    return json.loads((GEOMETRIES / f"{name}.json").read_text())


def parts(raw: dict[str, Any]) -> Counter[str]:
    return Counter(slot.part for slot in layout(raw))


@pytest.mark.parametrize(
    ("name", "vision", "audio"),
    [("e2b", 659, 752), ("e4b", 659, 752), ("26b-a4b", 356, 0), ("31b", 356, 0), ("e2b-assistant", 0, 0)],
)
def test_the_towers_of_published_models(name: str, vision: int, audio: int) -> None:
    found = parts(published(name))
    assert (found["vision tower"], found["audio tower"]) == (vision, audio)
    assert len(tower_layout(published(name))) == vision + audio


def test_the_unified_model_has_embedders_for_towers() -> None:
    found = {slot.name: slot for slot in layout(published("12b")) if slot.part.endswith("embedder")}
    assert found["model.vision_embedder.patch_dense.weight"].shape == (3840, 6912)
    assert found["model.embed_audio.embedding_projection.weight"].shape == (3840, 640)
    assert (parts(published("12b"))["vision embedder"], parts(published("12b"))["audio embedder"]) == (10, 1)
    assert {slot.name for slot in tower_layout(published("12b"))} == found.keys()


def test_experts_stand_beside_the_dense_feed_forward() -> None:
    slots = {slot.name: slot for slot in layout(published("26b-a4b"))}
    gate = slots["model.layers.0.experts.gate_up_proj"]
    assert (gate.part, gate.shape, gate.elements) == ("experts", (128, 1408, 2816), 507_510_784)
    assert "model.layers.29.mlp.down_proj.weight" in slots
    assert full_geometry(published("26b-a4b")).vision is not None


@pytest.mark.parametrize("name", [member.folder for member in MEMBERS])
def test_names_and_shapes_are_those_that_a_build_takes(name: str) -> None:
    """In canonical names, in which the text of a nested checkpoint has no prefix of its own."""
    raw = checkpoints.tiny_config(name)
    config = read_full_config(raw)
    used = full_tensors(open_checkpoint(checkpoints.TINY / name).tensors, config).used
    assert {name: as_rows(name, tensor).shape for name, tensor in described(raw)} == {
        name: tensor.shape for name, tensor in used.items()
    }
    geometry = full_geometry(raw)
    assert (geometry.text, geometry.vision, geometry.audio) == (config.text, config.vision, config.audio)
    assert text_geometry(raw) == config.text


def described(raw: dict[str, Any]) -> list[tuple[str, Tensor]]:
    """What the layout says, as tensors that lie nowhere."""
    return [(name, Tensor(name, "BF16", shape, Path(), 0, 0)) for _, name, shape in layout(raw)]


def test_a_tower_that_cannot_be_read_leaves_the_text() -> None:
    raw = checkpoints.tiny_config("target")
    raw["vision_config"]["surprise"] = 1
    with pytest.raises(ConfigError, match="surprise"):
        tower_layout(raw)
    assert text_layout(raw) == text_layout(checkpoints.tiny_config("target"))


def test_drafters_are_known_by_their_model_type() -> None:
    assert is_drafter(published("12b-assistant"))
    assert not is_drafter(published("12b"))


def test_another_architecture_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="llama"):
        layout({"model_type": "llama"})
