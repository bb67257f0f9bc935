"""Every key that config.json may hold, and what becomes of it; and the models that are refused by name."""

from collections.abc import Mapping
from typing import Any

from cabochon.errors import ConfigError, UnsupportedError
from cabochon.section import Section

__all__ = [
    "DRAFTER_KEYS",
    "ENCODER_KEYS",
    "MODELS",
    "TEXT_KEYS",
    "TOP_KEYS",
    "TRAINING",
    "USED",
    "is_unified",
    "refuse_other_drafters",
    "refuse_other_features",
    "refuse_other_models",
    "with_defaults",
]

USED = "used"
TRAINING = "concerns training only"
_CLASSIFIERS = "concerns classifiers"
_NO_TOKENS = "saved with every config; an encoder has no tokens"
_LOADING = "concerns how transformers loads or returns things"
_TOKENS = "token ids are read from generation_config.json and the tokenizer, at run time"
_MEDIA = "concerns images, video or sound: read for a full package, and by itself no part of a text model"
_DTYPE = "the dtype of each tensor is read from its header"

_SAVED: dict[str, str] = {
    "architectures": "model_type says it",
    "transformers_version": _LOADING,
    "_name_or_path": _LOADING,
    "_attn_implementation": _LOADING,
    "_attn_implementation_autoset": _LOADING,
    "_commit_hash": _LOADING,
    "attn_implementation": _LOADING,
    "auto_map": _LOADING,
    "chunk_size_feed_forward": "a way to save memory that changes no result",
    "dtype": _DTYPE,
    "torch_dtype": _DTYPE,
    "initializer_range": TRAINING,
    "is_encoder_decoder": "checked to be false",
    "id2label": _CLASSIFIERS,
    "label2id": _CLASSIFIERS,
    "problem_type": _CLASSIFIERS,
    "output_attentions": _LOADING,
    "output_hidden_states": _LOADING,
    "return_dict": _LOADING,
    "unsloth_fixed": "a note of a training tool",
    "unsloth_version": "a note of a training tool",
}

ENCODER_KEYS: dict[str, str] = _SAVED | {
    "use_cache": _NO_TOKENS,
    "bos_token_id": _NO_TOKENS,
    "eos_token_id": _NO_TOKENS,
    "pad_token_id": _NO_TOKENS,
    "tie_word_embeddings": _NO_TOKENS,
}

_ANY_MODEL: dict[str, str] = _SAVED | {
    "model_type": USED,
    "tie_word_embeddings": USED,
    "use_cache": "a package always has caches",
    "bos_token_id": _TOKENS,
    "eos_token_id": _TOKENS,
    "pad_token_id": USED,
    "quantization_config": "checked to be absent: quantized checkpoints are refused",
}

TEXT_KEYS: dict[str, str] = _ANY_MODEL | {
    "vocab_size": USED,
    "hidden_size": USED,
    "intermediate_size": USED,
    "num_hidden_layers": USED,
    "num_attention_heads": USED,
    "num_key_value_heads": USED,
    "num_global_key_value_heads": USED,
    "head_dim": USED,
    "global_head_dim": USED,
    "per_layer_config": USED,
    "hidden_activation": "checked to be gelu_pytorch_tanh",
    "max_position_embeddings": USED,
    "rms_norm_eps": USED,
    "rope_parameters": USED,
    "rope_scaling": "checked to be absent or null: rope_parameters says it",
    "attention_bias": "checked to be false",
    "attention_dropout": TRAINING,
    "attn_logit_softcapping": "checked to be absent or null: Gemma 4 has none",
    "sliding_window": USED,
    "layer_types": USED,
    "final_logit_softcapping": USED,
    "use_bidirectional_attention": "checked to be null or 'vision'",
    "vocab_size_per_layer_input": USED,
    "hidden_size_per_layer_input": USED,
    "attention_k_eq_v": USED,
    "num_kv_shared_layers": USED,
    "use_double_wide_mlp": USED,
    "enable_moe_block": USED,
    "num_experts": USED,
    "top_k_experts": USED,
    "moe_intermediate_size": USED,
}

TOP_KEYS: dict[str, str] = _ANY_MODEL | {
    "text_config": USED,
    "vision_config": _MEDIA,
    "audio_config": _MEDIA,
    "image_token_id": _MEDIA,
    "audio_token_id": _MEDIA,
    "video_token_id": _MEDIA,
    "boi_token_id": _MEDIA,
    "eoi_token_id": _MEDIA,
    "boa_token_id": _MEDIA,
    "eoa_token_id": _MEDIA,
    "eoa_token_index": _MEDIA,
    "vision_soft_tokens_per_image": _MEDIA,
}

DRAFTER_KEYS: dict[str, str] = _ANY_MODEL | {
    "text_config": USED,
    "backbone_hidden_size": USED,
    "use_ordered_embeddings": USED,
    "num_centroids": USED,
    "centroid_intermediate_top_k": USED,
}


# model_type of a whole model -> that of its text_config, which is that of a model of text alone too.
MODELS = {"gemma4": "gemma4_text", "gemma4_unified": "gemma4_unified_text"}
_KNOWN = (*MODELS, *MODELS.values())
# What absent keys of text_config mean where that differs from the other text models.
_UNIFIED = {"hidden_size_per_layer_input": 0, "use_bidirectional_attention": "vision"}

_NOT_A_TARGET = {
    "gemma4_assistant": (
        "is a drafter (assistant), not a model that generates by itself",
        "give the checkpoint it drafts for, such as google/gemma-4-E2B-it, or build the drafter with --model drafter",
    ),
}
_NOT_A_TARGET["gemma4_unified_assistant"] = _NOT_A_TARGET["gemma4_assistant"]

# Keys with one meaning we build: the values allowed, and why no other is.
_FIXED: dict[str, tuple[tuple[Any, ...], str]] = {
    "hidden_activation": (
        ("gelu_pytorch_tanh",),
        "the feed-forward of Gemma 4 is gated by gelu_pytorch_tanh",
    ),
    "attention_bias": ((False,), "the projections of Gemma 4 have no bias"),
    "attn_logit_softcapping": ((None,), "attention scores of Gemma 4 are not capped"),
    "rope_scaling": ((None,), "rope_parameters says how positions rotate"),
    "is_encoder_decoder": ((False,), "Gemma 4 is a decoder"),
    "use_bidirectional_attention": ((None, "vision"), "a text model is causal"),
}
_FIXED_IN_UNIFIED: dict[str, tuple[tuple[Any, ...], str]] = {
    "hidden_size_per_layer_input": ((0,), "a unified model has no per-layer inputs"),
    "enable_moe_block": ((False, None), "a unified model has no experts"),
}
_FIXED_IN_DRAFTERS: dict[str, tuple[tuple[Any, ...], str]] = {
    "hidden_size_per_layer_input": ((0,), "a drafter has no per-layer inputs"),
    "vocab_size_per_layer_input": ((0,), "a drafter has no per-layer inputs"),
    "enable_moe_block": ((False, None), "a drafter has no experts"),
    "use_double_wide_mlp": ((False,), "all feed-forwards of a drafter are as wide as intermediate_size"),
    "final_logit_softcapping": ((None,), "the logits of a drafter are not capped"),
    "use_bidirectional_attention": ((None,), "a drafter reads keys of text alone"),
}


def refuse_other_models(raw: Mapping[str, Any]) -> None:
    """Raise UnsupportedError, with what to do, unless `raw` is a Gemma 4 or holds one."""
    kind = raw.get("model_type")
    if not isinstance(kind, str):
        raise ConfigError(
            f"model_type is {kind!r}; expected {' or '.join(map(repr, _KNOWN))}",
            at="config.json", remedy="give the config.json of a Gemma 4 checkpoint",
        )  # fmt: skip
    if kind in _NOT_A_TARGET:
        what, remedy = _NOT_A_TARGET[kind]
        raise UnsupportedError(f"model_type {kind!r} {what}", at="config.json", remedy=remedy)
    if kind not in _KNOWN:
        raise UnsupportedError(
            f"model_type {kind!r} is another architecture; expected {' or '.join(map(repr, _KNOWN))}",
            at="config.json", remedy="give a Gemma 4 checkpoint; other models are not built",
        )  # fmt: skip


def with_defaults(text: Section) -> Section:
    """The text model with the keys that mean something else in the unified model when they are absent."""
    if not is_unified(text):
        return text
    return Section({**_UNIFIED, **text.values}, text.at, null_is_absent=text.null_is_absent)


def is_unified(text: Section) -> bool:
    """Whether this is the text model, or the drafter's, of the unified family."""
    return text.values.get("model_type") == MODELS["gemma4_unified"]


def refuse_other_features(text: Section) -> None:
    """Raise UnsupportedError for encoders, ConfigError for a value that Gemma 4 never has."""
    if text.values.get("use_bidirectional_attention") == "all":
        raise UnsupportedError(
            "use_bidirectional_attention is 'all': this model is an encoder, it does not generate",
            at=text.at, remedy="give a checkpoint of a generating model",
        )  # fmt: skip
    fixed = _FIXED | (_FIXED_IN_UNIFIED if is_unified(text) else {})
    for key, (allowed, why) in fixed.items():
        text.refuse_other(key, allowed, why)


def refuse_other_drafters(text: Section) -> None:
    """Raise UnsupportedError or ConfigError for layers that no drafter of Gemma 4 has."""
    refuse_other_features(text)
    for key, (allowed, why) in _FIXED_IN_DRAFTERS.items():
        text.refuse_other(key, allowed, why)
