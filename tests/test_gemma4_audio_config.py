import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import checkpoints
from cabochon.errors import ConfigError
from cabochon.gemma4.audio_config import AUDIO_KEYS, AudioConfig, read_audio_config

GEOMETRIES = Path(__file__).parent / "data" / "geometries"


def config(without: str = "", **audio: Any) -> dict[str, Any]:
    raw = copy.deepcopy(checkpoints.tiny_config("target"))
    raw["audio_config"] |= audio
    raw["audio_config"].pop(without, None)
    return raw


def read(raw: dict[str, Any]) -> AudioConfig:
    found = read_audio_config(raw)
    assert found is not None
    return found


def test_the_tiny_encoder() -> None:
    found = read(config())
    assert found == AudioConfig(
        hidden=32, heads=4, layers=2, channels=(16, 8), conv_kernel=5, residual_weight=0.5, chunk=4, context_left=5,
        context_right=0, logit_cap=50.0, invalid_logit=-1e9, gradient_clipping=1e10, eps=1e-6, clipped=True, output=48,
    )  # fmt: skip
    assert (found.head_dim, found.past, found.context, found.features) == (8, 4, 8, 16)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.hidden = 3  # type: ignore[misc]


@pytest.mark.parametrize("geometry", ["e2b", "e4b"])
def test_published_encoders(geometry: str) -> None:
    found = read(json.loads((GEOMETRIES / f"{geometry}.json").read_text()))
    assert (found.hidden, found.heads, found.layers, found.channels, found.output) == (
        1024,
        8,
        12,
        (128, 32),
        1536,
    )
    assert (found.chunk, found.context_left, found.context_right, found.context) == (12, 13, 0, 24)
    assert (found.features, found.subsampled_mels) == (128, 32)


@pytest.mark.parametrize("geometry", ["26b-a4b", "31b"])
def test_models_that_do_not_hear(geometry: str) -> None:
    raw = json.loads((GEOMETRIES / f"{geometry}.json").read_text())
    assert read_audio_config(raw) is None
    assert read_audio_config(raw | {"audio_config": None}) is None


# What a key means that is absent: what it means in transformers
ABSENT = {
    "attention_chunk_size": ("chunk", 12),
    "attention_context_left": ("context_left", 13),
    "attention_context_right": ("context_right", 0),
    "attention_logit_cap": ("logit_cap", 50.0),
    "attention_invalid_logits_value": ("invalid_logit", -1e9),
    "conv_kernel_size": ("conv_kernel", 5),
    "residual_weight": ("residual_weight", 0.5),
    "gradient_clipping": ("gradient_clipping", 1e10),
    "rms_norm_eps": ("eps", 1e-6),
    "subsampling_conv_channels": ("channels", (128, 32)),
    "use_clipped_linears": ("clipped", True),
}


@pytest.mark.parametrize("key", ABSENT)
def test_absent_keys(key: str) -> None:
    field, value = ABSENT[key]
    assert getattr(read(config(without=key)), field) == value


@pytest.mark.parametrize("key", ["model_type", "hidden_act"])
def test_what_has_one_value_may_be_left_out(key: str) -> None:
    assert read(config(without=key)) == read(config())


@pytest.mark.parametrize(
    "key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "output_proj_dims"]
)
def test_sizes_are_needed(key: str) -> None:
    with pytest.raises(ConfigError, match="is missing") as caught:
        read_audio_config(config(without=key))
    assert caught.value.at == f"config.json: audio_config: {key}"


def test_every_key_that_transformers_writes_is_known() -> None:
    written = json.loads((checkpoints.TINY / "target" / "config.json").read_bytes())["audio_config"]
    assert set(written) <= set(AUDIO_KEYS)
    assert read(config(_name_or_path="", architectures=None, output_attentions=False)) == read(config())


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "no object": (config() | {"audio_config": 3}, "audio_config", "expected an object"),
    "unknown key": (config(attention_chunk=12), "audio_config", "did you mean 'attention_chunk_size'?"),
    "a key of the text model": (config(head_dim=8), "audio_config", "unknown key 'head_dim'"),
    "another encoder": (config(model_type="gemma3n_audio"), "model_type", "expected 'gemma4_audio'"),
    "all of another": (
        config(model_type="gemma4_unified_audio", audio_embed_dim=640),
        "model_type",
        "is 'gemma4_unified_audio'",
    ),
    "another activation": (config(hidden_act="gelu"), "hidden_act", "expected 'silu'"),
    "a decoder": (config(is_encoder_decoder=True), "is_encoder_decoder", "expected False"),
    "no number": (config(hidden_size="32"), "hidden_size", "expected a whole number"),
    "an odd width": (config(hidden_size=33, num_attention_heads=3), "hidden_size", "sines and cosines"),
    "heads that do not divide": (config(num_attention_heads=5), "attention_heads", "does not divide hidden_size, 32"),
    "no heads": (config(num_attention_heads=0), "num_attention_heads", "1 or more"),
    "no frames": (config(attention_chunk_size=0), "attention_chunk_size", "1 or more"),
    "not even itself": (config(attention_context_left=1), "attention_context_left", "2 or more"),
    "behind": (config(attention_context_right=-1), "attention_context_right", "0 or more"),
    "everything": (config(attention_context_left=1 << 20), "attention_context_left", "4096 at most"),
    "no cap": (config(attention_logit_cap=None), "attention_logit_cap", "expected a number above 0"),
    "one channel": (config(subsampling_conv_channels=[128]), "channels", "expected two positive whole numbers"),
    "no channels": (config(subsampling_conv_channels=None), "channels", "is None"),
    "channels that are no numbers": (config(subsampling_conv_channels=[16, True]), "channels", "expected two"),
    "no mel left": (config(subsampling_conv_channels=[3, 8]), "channels", "the first must be 4 or more"),
    "a masked frame that weighs": (config(attention_invalid_logits_value=-60.0), "invalid", "to -154: 104 below"),
    "the value of the docstring": (config(attention_invalid_logits_value=1e-9), "invalid", "is 1e-09"),
    "infinity": (config(attention_invalid_logits_value=float("-inf")), "invalid", "is -inf"),
    "no bound": (config(gradient_clipping=0), "gradient_clipping", "expected a number above 0"),
    "a flag that is none": (config(use_clipped_linears=1), "use_clipped_linears", "expected true or false"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_understood_is_an_error_with_an_address(name: str) -> None:
    raw, at, message = WRONG[name]
    with pytest.raises(ConfigError) as caught:
        read_audio_config(raw)
    assert at in caught.value.at
    assert message in caught.value.message
