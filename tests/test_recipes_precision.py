"""Precisions: which rule a weight follows, what a target resolves, and what tables ask for."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cabochon.checkpoint import Tensor
from cabochon.dialects import TARGETS
from cabochon.gemma4 import fitted, fitted_drafter
from cabochon.recipes import PRECISIONS, Precision, Rule, Table
from cabochon.recipes.addresses import address

TABLE, LAYERS, HEAD = "model.embed_tokens.weight", "model.embed_tokens_per_layer.weight", "lm_head.weight"


def tensor(*shape: int) -> Tensor:
    return Tensor("t", "F32", shape, Path("none"), 0, 4 * int(np.prod(shape)))


def on(name: str, target: str) -> Precision:
    return PRECISIONS[name].on(TARGETS[target].storage)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("model.layers.12.mlp.down_proj.weight", "decoder/mlp.down_proj"),
        ("model.embed_tokens_per_layer.weight", "decoder/embed_tokens_per_layer"),
        ("lm_head.weight", "decoder/lm_head"),
        ("model.vision_tower.encoder.layers.3.self_attn.q_proj.linear.weight", "vision_encoder/self_attn.q_proj"),
        ("model.vision_tower.patch_embedder.input_proj.weight", "vision_encoder/patch_embedder.input_proj"),
        ("model.embed_vision.embedding_projection.weight", "vision_encoder/embedding_projection"),
        ("model.audio_tower.layers.0.lconv1d.linear_end.linear.weight", "audio_encoder/lconv1d.linear_end"),
    ],
)  # fmt: skip
def test_addresses(name: str, expected: str) -> None:
    assert address(name, "decoder") == expected


def test_the_last_rule_that_fits_decides() -> None:
    rules = Rule("*", "k-quant", 4, 32, False), Rule("*/mlp.*", "round", 8, 64, True), Rule("*/mlp.up_proj")
    precision = Precision("mine", "f32", rules)
    assert str(precision.scheme("model.layers.0.self_attn.q_proj.weight")) == str(
        PRECISIONS and precision.scheme("x")
    )
    assert precision.scheme("model.layers.0.mlp.down_proj.weight").bits == 8
    assert precision.scheme("model.layers.0.mlp.up_proj.weight") is None
    assert PRECISIONS["f16"].scheme("model.layers.0.mlp.up_proj.weight") is None


@pytest.mark.parametrize(
    ("target", "activations", "symmetric"),
    [
        ("default", "f32", True),
        ("onnx-standard", "f32", False),
        ("cuda", "f16", True),
        ("webgpu", "f16", False),
    ],
)
def test_a_target_resolves_what_a_recipe_leaves_open(target: str, activations: str, symmetric: bool) -> None:
    precision = on("Q4_K_M", target)
    assert precision.activations == activations
    assert precision.scheme("model.layers.0.mlp.up_proj.weight").symmetric is symmetric
    assert precision.scheme("model.layers.0.mlp.up_proj.weight").scales == activations
    assert on("Q4_K_M-uniform", target).scheme("model.layers.0.mlp.up_proj.weight").symmetric is False
    assert on("NF4", target).scheme("model.layers.0.mlp.up_proj.weight").symmetric is True
    assert on("f16", target) is PRECISIONS["f16"]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (64, (4, 32)),
        (96, (4, 64)),
        (160, (4, 16)),
        (32, (4, 16)),
        (144, (8, 32)),
        (16, (8, 16)),
        (8, (8, 16)),
        (1536, (4, 64)),
    ],
)
def test_rows_of_tables_fill_whole_bytes_of_zero_points(columns: int, expected: tuple[int, int]) -> None:
    fit = on("Q4_K_M", "cuda").fitted("decoder", {LAYERS: Table(columns, False)}).scheme(LAYERS)
    assert (fit.bits, fit.block) == expected
    assert not fit.symmetric
    assert fit.scales == "f16"  # nothing is multiplied with it


@pytest.mark.parametrize(("target", "expected"), [("default", "f16"), ("cuda", "f16"), ("webgpu", "f32")])
def test_beside_f32_webgpu_has_nothing_in_f16(target: str, expected: str) -> None:
    recipe = replace(PRECISIONS["Q4_K_M"], activations="f32").on(TARGETS[target].storage)
    table = {LAYERS: Table(64, False)}
    assert recipe.fitted("decoder", table).scheme(LAYERS).scales == expected
    floating = replace(recipe, rules=(*recipe.rules, Rule("*/embed_tokens*"))).fitted("decoder", table)
    assert floating.floating(LAYERS) == expected


def test_a_tied_table_and_its_head_are_stored_alike_or_apart() -> None:
    tensors = {TABLE: tensor(512, 64)}
    for target in TARGETS:
        kept, precision = fitted(tensors, on("Q4_K_M", target), 0)
        assert list(kept) == [TABLE]
        scheme = precision.scheme(TABLE)
        assert scheme is not None and scheme == precision.scheme(HEAD)
        assert scheme.symmetric is (target == "default")  # the others have zero points
        assert fitted(kept, precision, 0) == (kept, precision)
    for name in ("Q4_K_M-uniform", "Q4_K_M-mixed", "NF4"):
        apart, precision = fitted(tensors, on(name, "default"), 0)
        assert apart[HEAD] is tensors[TABLE]
        assert precision.scheme(TABLE) is None
        assert precision.scheme(HEAD) is not None


def test_a_drafter_without_centroids_has_a_head_and_no_table() -> None:
    dense, precision = fitted_drafter({TABLE: tensor(512, 64)}, on("Q4_K_M-uniform", "default"))
    assert list(dense) == [HEAD]
    assert precision.scheme(HEAD).bits == 4
    routed = {TABLE: tensor(512, 64), "masked_embedding.centroids.weight": tensor(8, 64)}
    kept, precision = fitted_drafter(routed, on("Q4_K_M", "default"))
    assert list(kept) == list(routed)
    assert precision.scheme(TABLE).scales == "f16"
    assert precision.scheme("masked_embedding.centroids.weight").scales == "f32"
