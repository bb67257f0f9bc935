"""vision_config and the layout of the tower: what is read, what is refused, which tensors must be there."""

import json
from pathlib import Path
from typing import Any

import pytest

import checkpoints
from cabochon.checkpoint import open_checkpoint
from cabochon.errors import ConfigError
from cabochon.gemma4.vision_config import VisionConfig, read_vision_config
from cabochon.gemma4.vision_names import vision_shapes

GEOMETRIES = Path(__file__).parent / "data" / "geometries"


def config(**changes: Any) -> dict[str, Any]:
    """The tiny target's config.json with other keys in vision_config; a key given as ... is left out."""
    raw = checkpoints.tiny_config("target")
    vision = raw["vision_config"] | changes
    return raw | {"vision_config": {key: value for key, value in vision.items() if value is not ...}}


def read(**changes: Any) -> VisionConfig:
    found = read_vision_config(config(**changes))
    assert found is not None
    return found


TINY = VisionConfig(
    hidden=32, heads=4, kv_heads=4, head_dim=8, intermediate=64, layers=2, patch_size=4, pooling_kernel_size=3,
    position_embedding_size=256, theta=100.0, eps=1e-6, clipped=True, standardize=False,
)  # fmt: skip


def test_every_fact_is_read() -> None:
    assert read() == TINY


@pytest.mark.parametrize(
    ("name", "hidden", "layers", "heads", "head_dim", "clipped", "standardize"),
    [
        ("e2b", 768, 16, 12, 64, True, False),
        ("e4b", 768, 16, 12, 64, True, False),
        ("26b-a4b", 1152, 27, 16, 72, False, True),
        ("31b", 1152, 27, 16, 72, False, True),
    ],
)
def test_the_published_towers(
    name: str, hidden: int, layers: int, heads: int, head_dim: int, clipped: bool, standardize: bool
) -> None:
    c = read_vision_config(json.loads((GEOMETRIES / f"{name}.json").read_bytes()))
    assert c is not None
    assert (c.hidden, c.layers, c.heads, c.head_dim) == (hidden, layers, heads, head_dim)
    assert (c.clipped, c.standardize) == (clipped, standardize)
    assert (c.patch_size, c.pooling_kernel_size, c.position_embedding_size, c.theta) == (16, 3, 10_240, 100.0)


@pytest.mark.parametrize("raw", [{}, {"vision_config": None}])
def test_a_model_without_a_tower_has_none(raw: dict[str, Any]) -> None:
    assert read_vision_config(raw) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_parameters": ...},
        {"rope_parameters": None},
        {"rope_parameters": {}},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
        {"rms_norm_eps": ..., "standardize": ..., "attention_bias": None, "model_type": ...},
        {"global_head_dim": 64, "default_output_length": 280, "max_position_embeddings": 1},
    ],
)
def test_spellings_that_mean_the_same(changes: dict[str, Any]) -> None:
    assert read(**changes) == TINY


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown key": (dict(pooling_kernel=3), "vision_config", "did you mean 'pooling_kernel_size'?"),
    "another tower": (dict(model_type="gemma4_unified_vision"), "model_type", "expected 'gemma4_vision'"),
    "all of another": (
        dict(model_type="gemma4_unified_vision", mm_embed_dim=8),
        "model_type",
        "is 'gemma4_unified",
    ),
    "another activation": (dict(hidden_activation="silu"), "hidden_activation", "is 'silu'"),
    "biases": (dict(attention_bias=True), "attention_bias", "is True; expected False or None"),
    "another rotation": (dict(rope_parameters={"rope_type": "linear"}), "rope_type", "is 'linear'"),
    "a key of another rotation": (dict(rope_parameters={"factor": 2.0}), "rope_parameters", "'factor'"),
    "rotation of text": (dict(rope_parameters=[100.0]), "rope_parameters", "expected an object"),
    "no size": (dict(hidden_size=...), "hidden_size", "is missing"),
    "a size in quotes": (dict(patch_size="4"), "patch_size", "expected a whole number"),
    "halves of odd size": (dict(head_dim=6), "head_dim", "is 6; expected a multiple of 4"),
    "heads that do not divide": (dict(num_key_value_heads=3), "num_key_value_heads", "does not divide"),
    "no pooling": (dict(pooling_kernel_size=1), "pooling_kernel_size", "2 or more"),
    "a flag in quotes": (dict(standardize="false"), "standardize", "expected true or false"),
    "layers by mistake": (dict(num_hidden_layers=160_000), "num_hidden_layers", "10000 at most"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_no_tower_has_is_an_error_with_an_address(name: str) -> None:
    changes, at, message = WRONG[name]
    with pytest.raises(ConfigError) as caught:
        read(**changes)
    assert caught.value.at.startswith("config.json: vision_config")
    assert at in caught.value.at
    assert message in caught.value.message


@pytest.mark.parametrize("name", ["target", "moe"])
def test_the_layout_is_that_of_the_checkpoint(name: str) -> None:
    checkpoint = open_checkpoint(checkpoints.TINY / name)
    held = {key: tensor.shape for key, tensor in checkpoint.tensors.items() if "vision" in key}
    c = read_vision_config(checkpoint.config)
    assert c is not None
    assert vision_shapes(c, checkpoint.config["text_config"]["hidden_size"]) == held


def test_what_clipping_and_standardizing_add() -> None:
    plain = vision_shapes(read(use_clipped_linears=False), 64)
    clipped = vision_shapes(read(), 64)
    added = {name: shape for name, shape in clipped.items() if name not in plain}
    assert len(added) == 2 * 7 * 4
    assert set(added.values()) == {()}
    assert added["model.vision_tower.encoder.layers.1.mlp.down_proj.output_max"] == ()
    standardized = vision_shapes(read(use_clipped_linears=False, standardize=True), 64)
    assert set(standardized) - set(plain) == {"model.vision_tower.std_bias", "model.vision_tower.std_scale"}
