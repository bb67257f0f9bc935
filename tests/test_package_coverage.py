"""What is stored, counted: from what is known before a weight is read."""

from collections.abc import Mapping
from math import prod
from typing import Any

import pytest

from cabochon.errors import PackageError
from cabochon.package.coverage import Coverage, coverage, require_planned, sources
from cabochon.package.layout import lay_out, twins
from cabochon.recipes import PRECISIONS, Precision, Recipe
from checkpoints import TINY
from described import prepared

SOURCES = {"text": TINY / "text", "full": TINY / "target", "drafter": TINY / "assistant"}
BUILT = [
    ("text", "default", "Q4_K_M"), ("text", "cuda", "Q8"), ("text", "webgpu", "Q4_K_M-uniform"),
    ("text", "onnx-standard", "Q4_K_M-mixed"), ("text", "default", "NF4"), ("text", "default", "f16"),
    ("full", "default", "Q4_K_M"), ("full", "onnx-standard", "Q4_K_M"), ("full", "cuda", "Q4_K_M-uniform"),
    ("drafter", "default", "Q4_K_M"), ("drafter", "onnx-standard", "Q8"),
]  # fmt: skip


def counted(model: str, target: str, precision: str) -> tuple[Coverage, Any]:
    """The coverage of files without links, and the checkpoint."""
    known = prepared(SOURCES[model], target, precision, model)
    both = twins(known.recipes)
    files = [lay_out(recipes, twins=both).nbytes for recipes in known.recipes.values()]
    shared = {r.name: r.nbytes for recipes in known.recipes.values() for r in recipes if r.name in both}
    component = "drafter" if model == "drafter" else "decoder"
    return coverage(known.recipes, [*files, *shared.values()], component), known


def roles(found: Coverage) -> dict[str, str]:
    return {f"{line.component}/{line.role}": line.precision for line in found.lines}


@pytest.mark.parametrize(("model", "target", "precision"), BUILT)
def test_lines_and_padding_sum_to_the_files_and_every_number_of_the_checkpoint_is_counted(
    model: str, target: str, precision: str
):
    found, known = counted(model, target, precision)
    layouts = [lay_out(recipes, twins=twins(known.recipes)) for recipes in known.recipes.values()]
    gaps = sum(
        each.nbytes - sum(p.nbytes for p in each.places.values() if p.location in each.files)
        for each in layouts
    )
    assert found.rest == gaps > 0
    floats = [tensor for tensor in known.tensors.used.values() if tensor.dtype != "I64"]
    assert found.parameters == sum(prod(tensor.shape) for tensor in floats)
    assert {t.name for t in known.tensors.used.values()} == set(sources(known.recipes).values())
    bits = PRECISIONS[precision]
    assert bits.quantized == any(line.scheme is not None for line in found.lines)
    if not bits.quantized:
        assert found.bits_per_weight == 16


def test_a_line_is_a_role_as_it_is_stored():
    found, _ = counted("text", "default", "Q4_K_M")
    (line,) = (line for line in found.lines if line.role == "mlp.down_proj")
    # 6 layers of [64, 96] and 4 of [64, 192]: 4 bits a number, and a scale for each block of 32
    numbers = 64 * (6 * 96 + 4 * 192)
    scale = {"f32": 4, "f16": 2}[line.scheme.scales] if line.scheme else 0
    assert (line.component, line.count, line.parameters) == ("decoder", 10, numbers)
    assert line.nbytes == numbers // 2 + numbers // 32 * scale
    assert line.precision == "4 bits in blocks of 32, symmetric, k-quant"


@pytest.mark.parametrize(("precision", "table", "head"), [
    ("Q4_K_M", "4 bits in blocks of 32, symmetric, k-quant", None),
    ("Q4_K_M-uniform", "f16", "4 bits in blocks of 32, asymmetric, k-quant"),
    ("Q4_K_M-mixed", "f16", "8 bits in blocks of 32, asymmetric, round"),
])  # fmt: skip
def test_a_tied_head_in_another_form_is_a_line_and_no_more_parameters(
    precision: str, table: str, head: str | None
):
    found, _ = counted("text", "default", precision)
    assert roles(found)["decoder/embed_tokens"] == table
    assert roles(found).get("decoder/lm_head") == head
    assert sum(line.parameters for line in found.lines) - found.parameters == (512 * 64 if head else 0)


def test_towers_are_components_of_their_own_and_a_table_of_two_graphs_is_there_once():
    found, known = counted("full", "default", "Q4_K_M")
    said = roles(found)
    assert said["vision_encoder/self_attn.q_proj"] == said["audio_encoder/feed_forward1.ffw_layer_1"]
    assert said["vision_encoder/self_attn.q_proj"].startswith("8 bits in blocks of 32, symmetric")
    assert said["vision_encoder/input_layernorm"] == "f32"
    table = [line for line in found.lines if line.role == "embed_tokens"]
    assert [line.count for line in table] == [1]
    assert (
        sum("embed_tokens.weight" in r.name for part in known.recipes.values() for r in part) > 3
    )  # codes, and more


def test_ids_are_bytes_and_no_parameters():
    found, _ = counted("drafter", "default", "Q4_K_M")
    (ids,) = (line for line in found.lines if line.precision == "i64")
    assert (ids.component, ids.role, ids.parameters) == ("drafter", "masked_embedding.token_ordering", 0)
    assert ids.nbytes > 0


@pytest.mark.parametrize("target", ["cuda", "webgpu"])
def test_a_table_in_parts_is_one_weight(target: str):
    found, _ = counted("text", target, "Q4_K_M")
    (line,) = (line for line in found.lines if line.role == "embed_tokens_per_layer")
    assert (line.count, line.parameters) == (1, 512 * 10 * 8)


def left_floating(precision: Precision, name: str) -> Mapping[str, tuple[Any, ...]]:
    known = prepared(SOURCES["text"], "default", "Q4_K_M")
    tensor = known.tensors.used[name]
    others = tuple(recipe for recipe in known.recipes[""] if recipe.tensor is not tensor)
    return {"": (*others, Recipe(name, tensor, precision.activations))}


def test_a_planned_weight_that_floats_is_an_error():
    precision = prepared(SOURCES["text"], "default", "Q4_K_M").order.precision
    name = "model.layers.3.mlp.up_proj.weight"
    with pytest.raises(PackageError, match=rf"Q4_K_M stores in blocks what stays floating: {name}"):
        require_planned(left_floating(precision, name), precision)
    require_planned(left_floating(precision, "model.norm.weight"), precision)
    require_planned(left_floating(PRECISIONS["f32"], name), PRECISIONS["f32"])


def test_files_that_cannot_hold_the_weights_are_an_error():
    known = prepared(SOURCES["text"], "default", "f32")
    with pytest.raises(
        PackageError, match=r"the weights take [\d,]+ bytes more than the files that hold them"
    ):
        coverage(known.recipes, [100], "decoder")
