import dataclasses
import json

import pytest

import checkpoints
from cabochon.errors import ConfigError, UnsupportedError
from cabochon.gemma4.config import FULL, SLIDING, Rope, read_text_config
from cabochon.gemma4.config_keys import TEXT_KEYS, TOP_KEYS


def config(**changed):
    return checkpoints.tiny_config() | changed


def multimodal(**changed):
    raw = checkpoints.tiny_config("target")
    raw["text_config"] |= changed
    return raw


def test_the_tiny_text_model():
    read = read_text_config(config())
    assert (read.hidden, read.heads, read.vocab, read.eps) == (64, 4, 512, 1e-6)
    assert (read.per_layer_input, read.vocab_per_layer, read.softcap) == (8, 512, 30.0)
    assert (read.max_positions, read.first_shared, read.tied, read.window, read.pad_token_id) == (
        4096,
        6,
        True,
        8,
        0,
    )
    assert read.rope == {FULL: Rope(1e6, 0.25, 1.0), SLIDING: Rope(1e4, 1.0, 1.0)}
    assert read.owners == [0, 1, 2, 3, 4, 5]
    assert list(read.kinds) == [FULL, SLIDING] or list(read.kinds) == [SLIDING, FULL]
    assert read.kinds[FULL] is read.layers[4] and read.kinds[SLIDING] is read.layers[0]
    assert read.remarks == ()
    with pytest.raises(dataclasses.FrozenInstanceError):
        read.hidden = 3


@pytest.mark.parametrize("name", ["text", "target"])
def test_both_spellings_give_the_same_model(name):
    saved = checkpoints.tiny_config(name)
    spelled = read_text_config(saved)
    assert read_text_config(checkpoints.published(saved)) == spelled
    padded = json.loads(json.dumps(saved).replace('"4": {"head_dim"', '"04": {"head_dim"'))
    assert padded != saved
    assert read_text_config(padded) == spelled


@pytest.mark.parametrize("absent", [None, 0, "no key"])
def test_null_0_and_absent_mean_the_same(absent):
    raw = checkpoints.published(config())
    expected = read_text_config(raw)
    raw["num_global_key_value_heads"] = absent
    if absent == "no key":
        del raw["num_global_key_value_heads"]
    assert read_text_config(raw) == expected


def test_a_text_only_config_and_the_text_part_of_a_whole_one_are_one_model():
    assert read_text_config(config()) == read_text_config(checkpoints.tiny_config("target"))


def test_a_model_without_per_layer_inputs_and_without_a_cap():
    raw = config(hidden_size_per_layer_input=0, vocab_size_per_layer_input=0, final_logit_softcapping=None)
    read = read_text_config(raw)
    assert (read.per_layer_input, read.vocab_per_layer, read.softcap) == (0, 0, None)


def test_the_last_layer_is_full_attention_whatever_is_written():
    raw = checkpoints.published(config())
    raw["layer_types"] = [*raw["layer_types"][:-1], SLIDING]
    read = read_text_config(raw)
    assert read.layers[-1].kind == FULL
    assert read == read_text_config(config())
    assert "the last layer is full_attention" in read.remarks[0]


def test_vision_attention_is_a_remark_for_text():
    read = read_text_config(config(use_bidirectional_attention="vision"))
    assert read.bidirectional
    assert dataclasses.replace(read, bidirectional=False) == read_text_config(config())
    assert "text is causal" in read.remarks[0]


UNIFIED = {"model_type": "gemma4_unified_text", "use_bidirectional_attention": None}


def test_the_text_of_a_unified_model_is_the_same_architecture():
    """It has no per-layer inputs, and sees images both ways, unless a key says otherwise."""
    plain = config(hidden_size_per_layer_input=0, vocab_size_per_layer_input=0)
    assert read_text_config(plain | UNIFIED) == read_text_config(plain)
    silent = {key: value for key, value in (plain | UNIFIED).items() if "per_layer_input" not in key}
    del silent["use_bidirectional_attention"]
    read = read_text_config(silent)
    assert read == dataclasses.replace(read_text_config(plain), bidirectional=True)
    whole = multimodal() | {"model_type": "gemma4_unified", "text_config": silent}
    assert read_text_config(whole) == read
    del whole["text_config"]["model_type"]
    assert read_text_config(whole) == read


def test_a_model_of_full_layers_only_has_no_window():
    raw = config(layer_types=[FULL] * 10, head_dim=32, per_layer_config={}, num_kv_shared_layers=0)
    del raw["sliding_window"]
    read = read_text_config(raw)
    assert read.window is None and list(read.kinds) == [FULL] and list(read.rope) == [FULL]


REFUSED = {
    "a drafter": (checkpoints.tiny_config("assistant"), "'gemma4_assistant' is a drafter", "drafts for"),
    "a unified drafter": ({"model_type": "gemma4_unified_assistant"}, "is a drafter", "drafts for"),
    "gemma 3": ({"model_type": "gemma3"}, "'gemma3' is another architecture", "Gemma 4"),
    "llama": ({"model_type": "llama"}, "'llama' is another architecture", "Gemma 4"),
    "an encoder": (config(use_bidirectional_attention="all"), "encoder", "generating model"),
    "quantized": (
        config(quantization_config={"quant_method": "bitsandbytes"}),
        "bitsandbytes",
        "unquantized",
    ),
    "quantized inside": (multimodal(quantization_config={"quant_method": "gptq"}), "gptq", "unquantized"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_are_refused_by_name_with_what_to_do(name):
    raw, message, remedy = REFUSED[name]
    with pytest.raises(UnsupportedError) as caught:
        read_text_config(raw)
    assert message in caught.value.message
    assert remedy in caught.value.remedy
    assert caught.value.at.startswith("config.json")


WRONG = {
    "no model_type": (
        {"hidden_size": 1},
        "config.json",
        "model_type is None; expected 'gemma4' or 'gemma4_unified' or 'gemma4_text'",
    ),
    "no text_config": ({"model_type": "gemma4"}, "config.json: text_config", "is missing"),
    "text_config is null": (
        {"model_type": "gemma4", "text_config": None},
        "text_config",
        "expected an object",
    ),
    "text of another kind": (
        multimodal(model_type="gemma3_text"),
        "text_config: model_type",
        "expected 'gemma4_text'",
    ),
    "misspelled": (
        config(hiden_size=1),
        "config.json",
        "unknown key 'hiden_size' (did you mean 'hidden_size'?)",
    ),
    "unknown at the top": (
        checkpoints.tiny_config("target") | {"foo": 1},
        "config.json",
        "unknown key 'foo'",
    ),
    "unknown inside": (multimodal(foo=1), "config.json: text_config", "unknown key 'foo'; known keys: "),
    "a word": (config(hidden_size="64"), "config.json: hidden_size", "is '64'; expected a whole number"),
    "a boolean": (config(vocab_size=True), "config.json: vocab_size", "is True"),
    "a fraction": (config(intermediate_size=96.0), "config.json: intermediate_size", "is 96.0"),
    "zero": (config(num_attention_heads=0), "config.json: num_attention_heads", "1 or more"),
    "negative": (config(hidden_size_per_layer_input=-8), "hidden_size_per_layer_input", "0 or more"),
    "eps": (config(rms_norm_eps=0), "rms_norm_eps", "a number above 0"),
    "cap": (config(final_logit_softcapping=0), "final_logit_softcapping", "a number above 0"),
    "a cap that is infinite in f16": (
        config(final_logit_softcapping=1e299),
        "final_logit_softcapping",
        "is 1e+299; expected a number above 0, from 6.10352e-05 to 65504",
    ),
    "a cap that is 0 in f16": (
        config(final_logit_softcapping=1e-9),
        "final_logit_softcapping",
        "6.10352e-05",
    ),
    "eps that is 0 in f32": (config(rms_norm_eps=1e-300), "rms_norm_eps", "from 1.17549e-38 to 1"),
    "eps above every square": (config(rms_norm_eps=2.0), "rms_norm_eps", "from 1.17549e-38 to 1"),
    "a window that no int32 holds": (
        config(sliding_window=2**32),
        "config.json: sliding_window",
        "is 4294967296; expected a whole number, 1 or more, 2147483647 at most",
    ),
    "a window that no int64 holds": (config(sliding_window=2**70), "sliding_window", "2147483647 at most"),
    "positions": (config(max_position_embeddings=2**31), "max_position_embeddings", "2147483647 at most"),
    "the second table is shorter": (
        config(vocab_size_per_layer_input=256),
        "config.json: vocab_size_per_layer_input",
        "is 256; every id below vocab_size, 512, needs a row",
    ),
    "no cap": (config(final_logit_softcapping=False), "final_logit_softcapping", "a number above 0"),
    "flag": (config(use_double_wide_mlp="yes"), "use_double_wide_mlp", "true or false"),
    "activation": (config(hidden_activation="silu"), "hidden_activation", "expected 'gelu_pytorch_tanh'"),
    "bias": (config(attention_bias=True), "attention_bias", "expected False"),
    "attention cap": (config(attn_logit_softcapping=50.0), "attn_logit_softcapping", "expected None"),
    "bidirectional": (
        config(use_bidirectional_attention="text"),
        "use_bidirectional_attention",
        "None or 'vision'",
    ),
    "per-layer inputs of a unified model": (
        config(**UNIFIED),
        "hidden_size_per_layer_input",
        "is 8; expected 0: a unified model has no per-layer inputs",
    ),
    "experts of a unified model": (
        config(**UNIFIED, hidden_size_per_layer_input=0, enable_moe_block=True),
        "enable_moe_block",
        "a unified model has no experts",
    ),
    "heads": (config(num_key_value_heads=3), "num_key_value_heads", "does not divide num_attention_heads, 4"),
    "odd head": (config(head_dim=15), "head_dim", "is 15 for sliding_attention; rotation needs an even size"),
    "pad": (config(pad_token_id=512), "pad_token_id", "is 512; vocab_size is 512"),
    "tied or not": (
        multimodal(tie_word_embeddings=False),
        "tie_word_embeddings",
        "is True, but False in text_config",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_an_error_with_its_address(name):
    raw, at, message = WRONG[name]
    with pytest.raises(ConfigError) as caught:
        read_text_config(raw)
    assert caught.value.at.endswith(at)
    assert message in caught.value.message


REQUIRED = [
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "head_dim",
    "max_position_embeddings",
    "hidden_size_per_layer_input",
    "sliding_window",
]


@pytest.mark.parametrize("key", REQUIRED)
def test_what_the_model_cannot_be_known_without_is_required(key):
    raw = config()
    del raw[key]
    with pytest.raises(ConfigError, match=f"{key}: is missing"):
        read_text_config(raw)


@pytest.mark.parametrize(
    "key", sorted(set(checkpoints.tiny_config()) - set(REQUIRED) - {"model_type", "per_layer_config"})
)
def test_every_other_key_may_be_absent(key):
    """The rest has a value in transformers where it is absent."""
    raw = config()
    del raw[key]
    if key == "layer_types":  # every sixth is full
        with pytest.raises(ConfigError, match="per_layer_config"):
            read_text_config(raw)
    elif key == "vocab_size_per_layer_input":
        assert read_text_config(raw).vocab_per_layer == 262_144
    else:
        read_text_config(raw)


def test_every_known_key_has_a_reason():
    assert all(TEXT_KEYS.values()) and all(TOP_KEYS.values())
    assert set(checkpoints.tiny_config()) <= set(TEXT_KEYS)
    assert set(checkpoints.tiny_config("target")) <= set(TOP_KEYS)


@pytest.mark.parity
@pytest.mark.parametrize("geometry", [{}, checkpoints.E2B, checkpoints.BIG], ids=["tiny", "e2b", "31b"])
@pytest.mark.parametrize("spelling", [checkpoints.published, None], ids=["published", "saved"])
def test_the_config_class_of_transformers_reads_the_same(geometry, spelling):
    from transformers import Gemma4TextConfig

    raw = checkpoints.published(config()) | geometry
    if spelling is None:
        raw = json.loads(Gemma4TextConfig(**raw).to_json_string())
        assert "per_layer_config" in raw and "global_head_dim" not in raw
    theirs, ours = Gemma4TextConfig(**raw), read_text_config(raw)
    assert [layer.kind for layer in ours.layers] == theirs.layer_types
    assert [(layer.head_dim, layer.kv_heads) for layer in ours.layers] == [
        (layer.head_dim, layer.num_key_value_heads) for layer in theirs.per_layer_config
    ]
    assert [layer.shares_kv for layer in ours.layers] == [mode == "reuse" for mode in theirs.kv_sharing_modes]
    stored = {i for i, mode in enumerate(theirs.kv_sharing_modes) if mode == "store"}
    assert {layer.cache for layer in ours.layers if layer.shares_kv} <= stored
    assert (ours.eps, ours.softcap, ours.tied) == (
        theirs.rms_norm_eps, theirs.final_logit_softcapping, theirs.tie_word_embeddings,
    )  # fmt: skip
