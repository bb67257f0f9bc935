"""The reference answers what it was recorded to answer, and refuses to be one where loading was not clean."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import checkpoints
from cabochon.errors import ParityError
from cabochon.parity import reference
from cabochon.parity.prompts import Prompt

DATA = Path(__file__).parent / "data" / "tiny"
RECORDED = json.loads((DATA / "ref" / "outputs.json").read_text())
CLEAN = {"missing_keys": set(), "unexpected_keys": set(), "mismatched_keys": set(), "error_msgs": []}


def config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


def test_unused_keys_of_borrowers_are_clean_and_nothing_else_is() -> None:
    shape = {"num_hidden_layers": 10, "num_kv_shared_layers": 4}
    unused = "model.layers.6.self_attn.k_proj.weight"
    found = reference.clean({**CLEAN, "unexpected_keys": {unused}}, shape, at="x")
    assert found["unexpected_keys"] == [unused]
    for key, names in (
        ("unexpected_keys", {"model.layers.5.self_attn.k_proj.weight"}),
        ("unexpected_keys", {"model.layers.6.self_attn.q_proj.bias"}),
        ("missing_keys", {"model.norm.weight"}),
        ("mismatched_keys", {("model.norm.weight", (1,), (2,))}),
        ("error_msgs", ["broken"]),
    ):
        with pytest.raises(ParityError, match=key):
            reference.clean({**CLEAN, key: names}, shape, at="x")


def record(
    source: Path, tmp_path: Path, prompts: list[Prompt], precision: str = "f32"
) -> reference.Recording:
    return reference.record(
        source,
        config(source),
        prompts,
        precision=precision,
        arithmetics=dict.fromkeys((precision, "f32")),
        folder=tmp_path / "recorded",
        new_tokens=32,
    )


@pytest.mark.parity
@pytest.mark.parametrize(("source", "case"), [("text", "text"), ("target", "text_long")])
def test_equals_the_recorded_references(tmp_path: Path, source: str, case: str) -> None:
    recorded = RECORDED[f"{source}/{case}"]
    got = record(DATA / source, tmp_path, [Prompt("p", tuple(recorded["prompt"]))])
    answer = got.answers["f32"]["p"]
    expected = np.load(DATA / "ref" / f"prefill_target_{case}.npz")["logits"]
    assert (
        np.abs(answer.logits - expected.reshape(answer.logits.shape)).max() <= 1e-4 * np.abs(expected).max()
    )
    assert list(answer.tokens[:16]) == recorded["tokens"]
    assert min(answer.margins[:16]) == pytest.approx(recorded["min_margin"], rel=1e-2)
    assert got.identity["class"] == reference.CLASSES[config(DATA / source)["model_type"]]
    assert got.identity["loading_info"] == {key: [] for key in CLEAN}


@pytest.mark.parity
def test_half_precision_is_answered_twice(tmp_path: Path) -> None:
    got = record(DATA / "text", tmp_path, [Prompt("p", (2, 5, 487, 34), generates=False)], "bf16")
    half, full = got.answers["bf16"]["p"], got.answers["f32"]["p"]
    assert half.tokens == ()
    assert 1e-3 < np.abs(half.logits - full.logits).max() / np.abs(full.logits).max() < 0.3


@pytest.mark.parity
def test_shared_caches_without_per_layer_inputs(tmp_path: Path) -> None:
    """transformers 5.24 raises a TypeError on several queries here, unless asked for hidden states."""
    source = checkpoints.copy(tmp_path / "source", hidden_size_per_layer_input=0)
    checkpoints.change(source, lambda all: {name: t for name, t in all.items() if "per_layer" not in name})
    prompt = Prompt("p", (2, 5, 487, 34, 502, 346, 492, 439, 480, 6))
    answer = record(source, tmp_path, [prompt]).answers["f32"]["p"]
    assert np.isfinite(answer.logits).all()
    assert len(answer.tokens) == 32


@pytest.mark.parity
def test_a_checkpoint_with_a_missing_tensor_is_no_reference(tmp_path: Path) -> None:
    gone = "model.layers.3.mlp.up_proj.weight"
    source = checkpoints.copy(tmp_path / "source")
    checkpoints.change(source, lambda all: {name: t for name, t in all.items() if name != gone})
    with pytest.raises(ParityError, match=rf"missing_keys: {gone} \(1 in all\)"):
        record(source, tmp_path, [Prompt("p", (2, 5))])
    with pytest.raises(ParityError, match="gemma4_assistant"):
        record(DATA / "assistant", tmp_path, [Prompt("p", (2, 5))])
