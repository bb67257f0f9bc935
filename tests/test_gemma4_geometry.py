import pytest

import checkpoints
from cabochon.errors import ConfigError
from cabochon.gemma4.config import FULL, SLIDING, read_text_config


def config(**changed):
    return checkpoints.tiny_config() | changed


def published(**changed):
    return checkpoints.published(checkpoints.tiny_config()) | changed


def test_e2b_shares_keys_and_values_of_the_last_owner_of_the_kind():
    layers = read_text_config(published(**checkpoints.E2B)).layers
    assert [i for i, layer in enumerate(layers) if not layer.shares_kv] == list(range(15))
    assert [layer.cache for layer in layers[:15]] == list(range(15))
    assert {i: layer.cache for i, layer in enumerate(layers) if layer.shares_kv} == {
        i: 14 if i in (19, 24, 29, 34) else 13 for i in range(15, 35)
    }
    assert {(layer.head_dim, layer.window) for layer in layers if layer.kind == FULL} == {(512, None)}
    assert {(layer.head_dim, layer.window) for layer in layers if layer.kind == SLIDING} == {(256, 512)}
    assert [layer.intermediate for layer in layers] == [6144] * 15 + [12288] * 20
    assert {layer.kv_heads for layer in layers} == {1}
    assert not any(layer.k_eq_v for layer in layers)


def test_the_big_model_has_fewer_kv_heads_where_keys_are_values():
    layers = read_text_config(published(**checkpoints.BIG)).layers
    assert not any(layer.shares_kv for layer in layers)
    kinds = {
        layer.kind: (layer.head_dim, layer.kv_heads, layer.k_eq_v, layer.intermediate) for layer in layers
    }
    assert kinds == {SLIDING: (256, 16, False, 21504), FULL: (512, 4, True, 21504)}


def test_own_kv_heads_count_only_where_keys_are_values():
    read = read_text_config(published(num_global_key_value_heads=4, attention_k_eq_v=False))
    assert read.kinds[FULL].kv_heads == 1
    read = read_text_config(published(num_global_key_value_heads=4, attention_k_eq_v=True))
    assert read.kinds[FULL].kv_heads == 4


def test_kv_heads_by_layer():
    by_layer = {
        "4": {"head_dim": 32, "num_key_value_heads": 2},
        "9": {"head_dim": 32, "num_key_value_heads": 2},
    }
    read = read_text_config(config(per_layer_config=by_layer, attention_k_eq_v=True))
    assert read == read_text_config(published(num_global_key_value_heads=2, attention_k_eq_v=True))
    assert (read.kinds[FULL].kv_heads, read.kinds[SLIDING].kv_heads) == (2, 1)


@pytest.mark.parametrize("absent", [None, 0, "no key"])
def test_full_layers_have_512_where_nothing_is_said(absent):
    raw = published(global_head_dim=absent)
    if absent == "no key":
        del raw["global_head_dim"]
    assert read_text_config(raw).kinds[FULL].head_dim == 512


def test_overrides_without_any_mean_one_size():
    assert read_text_config(config(per_layer_config={})).kinds[FULL].head_dim == 16


def test_head_dim_may_be_said_layer_by_layer_only():
    raw = config(per_layer_config={str(i): {"head_dim": 32 if i in (4, 9) else 16} for i in range(10)})
    del raw["head_dim"]
    assert read_text_config(raw) == read_text_config(config())


def test_both_spellings_at_once_must_agree():
    assert read_text_config(config(global_head_dim=32)) == read_text_config(config())
    with pytest.raises(
        ConfigError, match="global_head_dim: is 64, but per_layer_config gives full layers 32"
    ):
        read_text_config(config(global_head_dim=64))
    with pytest.raises(
        ConfigError, match="num_global_key_value_heads: is 2, but per_layer_config gives full layers 1"
    ):
        read_text_config(config(num_global_key_value_heads=2, attention_k_eq_v=True))


def test_layer_types_default_to_every_sixth():
    raw = published(num_hidden_layers=12, num_kv_shared_layers=0)
    del raw["layer_types"]
    assert [layer.kind for layer in read_text_config(raw).layers] == ([SLIDING] * 5 + [FULL]) * 2


ROPE = checkpoints.tiny_config()["rope_parameters"]


def rope(kind, **changed):
    return config(rope_parameters=ROPE | {kind: ROPE[kind] | changed})


def test_the_factor_and_the_share_of_a_rotation():
    read = read_text_config(rope(FULL, factor=8.0, partial_rotary_factor=0.5))
    assert (read.rope[FULL].factor, read.rope[FULL].partial) == (8.0, 0.5)
    read = read_text_config(config(rope_parameters=None))
    assert read.rope == read_text_config(config()).rope


WRONG = {
    "too many layers": (
        config(num_hidden_layers=10**12, layer_types=None),
        "num_hidden_layers",
        "10000 at most",
    ),
    "too few kinds": (
        config(layer_types=[FULL] * 9),
        "layer_types",
        "has 9 entries; num_hidden_layers is 10",
    ),
    "another kind": (config(layer_types=["linear_attention"] * 10), "layer_types", "expected a list of"),
    "no list": (config(layer_types="full_attention"), "layer_types", "expected a list of"),
    "all share": (config(num_kv_shared_layers=10), "num_kv_shared_layers", "is 10 of 10 layers"),
    "more share than are": (config(num_kv_shared_layers=11), "num_kv_shared_layers", "is 11 of 10 layers"),
    "negative": (config(num_kv_shared_layers=-1), "num_kv_shared_layers", "0 or more"),
    "no owner": (
        config(num_kv_shared_layers=8),
        "num_kv_shared_layers",
        "no layer before 2 is full_attention",
    ),
    "beyond the layers": (
        config(per_layer_config={"10": {"head_dim": 32}}),
        "per_layer_config: 10",
        "from 0 to 9",
    ),
    "too long a number": (config(per_layer_config={"9" * 5000: {}}), "9" * 5000, "from 0 to 9"),
    "no number": (config(per_layer_config={"four": {}}), "per_layer_config: four", "from 0 to 9"),
    "negative layer": (config(per_layer_config={"-1": {}}), "per_layer_config: -1", "from 0 to 9"),
    "one layer twice": (
        config(per_layer_config={"4": {}, "04": {}}),
        "per_layer_config: 04",
        "is given twice",
    ),
    "another override": (
        config(per_layer_config={"4": {"sliding_window": 3}}),
        "per_layer_config: 4",
        "unknown key 'sliding_window'",
    ),
    "null": (config(per_layer_config=None), "per_layer_config", "expected an object"),
    "a list": (config(per_layer_config=[]), "per_layer_config", "expected an object"),
    "two sizes of one kind": (
        config(per_layer_config={"4": {"head_dim": 32}, "9": {"head_dim": 64}}),
        "per_layer_config",
        "(64, 1), another",
    ),
    "a word": (
        config(per_layer_config={"4": {"head_dim": "32"}}),
        "per_layer_config: 4: head_dim",
        "is '32'",
    ),
    "rope type": (
        rope(FULL, rope_type="yarn"),
        "full_attention: rope_type",
        "is 'yarn'; expected 'default' or",
    ),
    "rope key": (rope(FULL, beta_fast=3), "rope_parameters: full_attention", "unknown key 'beta_fast'"),
    "rope kind": (config(rope_parameters=ROPE | {"linear": {}}), "rope_parameters", "unknown key 'linear'"),
    "rope lacks a kind": (config(rope_parameters={FULL: ROPE[FULL]}), "sliding_attention", "is missing"),
    "rope is flat": (
        config(rope_parameters={"rope_theta": 1e4}),
        "rope_parameters",
        "unknown key 'rope_theta'",
    ),
    "theta": (rope(SLIDING, rope_theta=-1), "sliding_attention: rope_theta", "a number above 0"),
    "theta below 1": (
        rope(SLIDING, rope_theta=1e-30),
        "sliding_attention: rope_theta",
        "from 1 to 3.40282e+38",
    ),
    "angles without end": (rope(FULL, factor=1e-38), "full_attention: factor", "from 1e-06 to"),
    "share": (rope(FULL, partial_rotary_factor=1.5), "partial_rotary_factor", "1 at most"),
    "share of default": (
        rope(SLIDING, partial_rotary_factor=0.5),
        "sliding_attention: rope_type",
        "do not apply",
    ),
    "factor of default": (rope(SLIDING, factor=2), "sliding_attention: rope_type", "do not apply"),
}


@pytest.mark.parametrize("name", WRONG)
def test_contradictions_are_errors_with_an_address(name):
    raw, at, message = WRONG[name]
    with pytest.raises(ConfigError) as caught:
        read_text_config(raw)
    assert caught.value.at.endswith(at)
    assert message in caught.value.message
