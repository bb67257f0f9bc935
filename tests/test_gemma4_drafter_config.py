import copy
import dataclasses
from typing import Any

import pytest

import checkpoints
from cabochon.errors import CabochonError, ConfigError, UnsupportedError
from cabochon.gemma4.config import FULL, SLIDING, Rope
from cabochon.gemma4.drafter_config import ANOTHER_MODEL, Centroids, read_drafter_config


def config(top: dict[str, Any] | None = None, **text: Any) -> dict[str, Any]:
    raw = copy.deepcopy(checkpoints.tiny_config("assistant")) | (top or {})
    raw["text_config"] |= text
    return raw


def test_the_tiny_drafter() -> None:
    read = read_drafter_config(config())
    assert (read.backbone, read.centroids) == (64, Centroids(32, 4))
    text = read.text
    assert (text.hidden, text.heads, text.vocab, text.window, text.max_positions) == (32, 2, 512, 8, 4096)
    assert [layer.kind for layer in text.layers] == [SLIDING] * 3 + [FULL]
    assert {layer.kind: (layer.head_dim, layer.kv_heads) for layer in text.layers} == {
        SLIDING: (16, 1),
        FULL: (32, 1),
    }
    assert all(layer.shares_kv and layer.cache == ANOTHER_MODEL for layer in text.layers)
    assert (text.owners, text.first_shared, text.per_layer_input, text.softcap) == ([], 0, 0, None)
    assert text.rope == {FULL: Rope(1e6, 0.25, 1.0), SLIDING: Rope(1e4, 1.0, 1.0)}
    with pytest.raises(dataclasses.FrozenInstanceError):
        read.backbone = 3  # type: ignore[misc]


@pytest.mark.parametrize("name", ["assistant", "assistant-dense"])
def test_both_spellings_give_the_same_model(name: str) -> None:
    saved = checkpoints.tiny_config(name)
    assert read_drafter_config(checkpoints.published(saved)) == read_drafter_config(saved)


def test_no_borrowers_means_all() -> None:
    expected = read_drafter_config(config())
    assert read_drafter_config(config(num_kv_shared_layers=0)) == expected
    raw = config()
    del raw["text_config"]["num_kv_shared_layers"]
    assert read_drafter_config(raw) == expected


def test_heads() -> None:
    """Absent keys mean what they mean in transformers; what a dense head does not use is checked all the same."""
    assert read_drafter_config(checkpoints.tiny_config("assistant-dense")).centroids is None
    raw = config()
    del raw["use_ordered_embeddings"], raw["num_centroids"]
    assert read_drafter_config(raw).centroids is None
    raw = config(dict(use_ordered_embeddings=True), vocab_size=4096)
    del raw["num_centroids"], raw["centroid_intermediate_top_k"]
    assert read_drafter_config(raw).centroids == Centroids(2048, 32)


def test_the_drafter_of_the_unified_model_is_the_same_architecture() -> None:
    unified = config({"model_type": "gemma4_unified_assistant"}, model_type="gemma4_unified_text")
    assert read_drafter_config(unified) == read_drafter_config(config())


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown key": (config({"num_centroid": 3}), "config.json", "did you mean 'num_centroids'?"),
    "unknown inner key": (config(gate=1), "text_config", "unknown key 'gate'"),
    "text of another kind": (config(model_type="gemma4_unified_text"), "model_type", "'gemma4_text'"),
    "no text": ({**config(), "text_config": None}, "text_config", "expected an object"),
    "no width of the target": (
        {k: v for k, v in config().items() if k != "backbone_hidden_size"},
        "backbone_hidden_size",
        "is missing",
    ),
    "groups of different size": (config({"num_centroids": 30}), "num_centroids", "does not divide vocab_size"),
    "more than all": (config({"centroid_intermediate_top_k": 33}), "top_k", "there are 32 centroids"),
    "no centroid": (config({"centroid_intermediate_top_k": 0}), "top_k", "1 or more"),
    "some owners": (config(num_kv_shared_layers=3), "num_kv_shared_layers", "none of its 4 layers"),
    "more than layers": (config(num_kv_shared_layers=5), "num_kv_shared_layers", "is 5; a drafter has"),
    "untied": (config({"tie_word_embeddings": False}, tie_word_embeddings=False), "tie_word", "is false"),
    "per-layer inputs": (config(hidden_size_per_layer_input=8), "per_layer_input", "is 8; expected 0"),
    "a table of them": (config(vocab_size_per_layer_input=512), "per_layer_input", "is 512; expected 0"),
    "experts": (config(enable_moe_block=True), "enable_moe_block", "a drafter has no experts"),
    "wide": (config(use_double_wide_mlp=True), "use_double_wide_mlp", "is True; expected False"),
    "capped": (config(final_logit_softcapping=30.0), "softcapping", "is 30.0; expected None"),
    "images": (config(use_bidirectional_attention="vision"), "bidirectional", "keys of text alone"),
    "heads that do not divide": (config(num_key_value_heads=3), "num_key_value_heads", "does not divide"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_no_drafter_has_is_an_error_with_an_address(name: str) -> None:
    raw, at, message = WRONG[name]
    with pytest.raises(ConfigError) as caught:
        read_drafter_config(raw)
    assert at in caught.value.at
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (config({"model_type": "gemma4"}), "model_type 'gemma4' is no drafter"),
        (config({"model_type": ["gemma4_assistant"]}), "is no drafter"),
        (config({"quantization_config": {"quant_method": "awq"}}), "quant"),
    ],
)
def test_other_models_are_refused_by_name(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(CabochonError, match=message) as caught:
        read_drafter_config(raw)
    assert isinstance(caught.value, UnsupportedError)
