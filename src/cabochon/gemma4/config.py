"""The text model as config.json describes it: frozen facts, decided once.

Both spellings are read: `global_head_dim` and `num_global_key_value_heads` as published, and
`per_layer_config` as transformers saves it since 5.15. The rules are those of its Gemma4TextConfig.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cabochon.checkpoint.refusals import refuse_quantized
from cabochon.gemma4.config_keys import (
    MODELS,
    TEXT_KEYS,
    TOP_KEYS,
    is_unified,
    refuse_other_features,
    refuse_other_models,
    with_defaults,
)
from cabochon.gemma4.geometry import FULL, SLIDING, Layer, Rope, read_layers, read_rope
from cabochon.section import Section

__all__ = ["FULL", "SLIDING", "Experts", "Layer", "Rope", "TextConfig", "read_section", "read_text_config"]

_F16 = {"minimum": 2.0**-14, "maximum": 65504.0}  # the narrowest type that logits are divided in


@dataclass(frozen=True)
class Experts:
    """Feed-forwards of which a router chooses some for each token: `count` of `width` each, `chosen` for a token."""

    count: int
    chosen: int
    width: int


@dataclass(frozen=True)
class TextConfig:
    """The text model.

    `experts` stand beside the dense feed-forward of every layer; None where there are none.

    `bidirectional`: the tokens of an image see each other on sliding layers; text alone is causal.

    `per_layer_input` is the size of the per-layer inputs, 0 where the model has none (then `vocab_per_layer`
    is 0 too). `window` counts the keys a sliding layer sees, the token itself included. `remarks` are what a
    user should know; `unified`: it is of a unified model, or drafts for one. Neither takes part in comparisons:
    the layers are the same.
    """

    hidden: int
    heads: int
    vocab: int
    eps: float
    per_layer_input: int
    vocab_per_layer: int
    softcap: float | None
    max_positions: int
    rope: Mapping[str, Rope]
    layers: tuple[Layer, ...]
    first_shared: int
    tied: bool
    window: int | None
    pad_token_id: int
    experts: Experts | None = None
    bidirectional: bool = False
    unified: bool = field(default=False, compare=False)
    remarks: tuple[str, ...] = field(default=(), compare=False)

    @property
    def owners(self) -> list[int]:
        """The layers with a key/value cache of their own."""
        return list(range(self.first_shared))

    @property
    def kinds(self) -> dict[str, Layer]:
        """The first layer of each kind; all layers of a kind have the same geometry."""
        return {layer.kind: layer for layer in reversed(self.layers)}


def read_text_config(raw: Mapping[str, Any]) -> TextConfig:
    """The text model in `raw`, a whole config.json of a Gemma 4 or of its text model.

    Raises UnsupportedError for a kind of model that is refused by name, ConfigError for anything that is
    unknown, of the wrong type, or contradicts itself.
    """
    refuse_quantized(raw)
    refuse_other_models(raw)
    top = Section(raw, "config.json")
    text = _text_section(top)
    refuse_other_features(text)
    return read_section(top, text)


def read_section(top: Section, text: Section) -> TextConfig:
    """The text model that `text`, a part of `top` or all of it, describes; its features are known to be supported."""
    config = _read(top, with_defaults(text))
    _check_heads(text, config)
    _check_vocabulary(text, config)
    return config


def _text_section(top: Section) -> Section:
    """The part about the text model: text_config, or the whole of a text-only config. Every key is known."""
    whole = top.values["model_type"]
    if whole not in MODELS:
        top.refuse_unknown(TEXT_KEYS)
        return top
    top.refuse_unknown(TOP_KEYS)
    text = top.section("text_config")
    text.refuse_unknown(TEXT_KEYS)
    text.refuse_other("model_type", (MODELS[whole],), f"the text of a {whole} model")
    return Section({"model_type": MODELS[whole], **text.values}, text.at)


def _read(top: Section, text: Section) -> TextConfig:
    layers = read_layers(text)
    kinds = {layer.kind for layer in layers}
    per_layer_input = text.integer("hidden_size_per_layer_input", minimum=0)
    capped = text.values.get("final_logit_softcapping") is not None
    padded = text.values.get("pad_token_id") is not None
    return TextConfig(
        hidden=text.integer("hidden_size"),
        heads=text.integer("num_attention_heads"),
        vocab=text.integer("vocab_size"),
        eps=text.positive("rms_norm_eps", 1e-6, maximum=1.0),
        per_layer_input=per_layer_input,
        vocab_per_layer=text.integer("vocab_size_per_layer_input", 262_144) if per_layer_input else 0,
        softcap=text.positive("final_logit_softcapping", **_F16) if capped else None,
        max_positions=text.integer("max_position_embeddings"),
        rope=read_rope(text, sorted(kinds)),
        layers=layers,
        first_shared=sum(not layer.shares_kv for layer in layers),
        tied=_tied(top, text),
        window=text.integer("sliding_window") if SLIDING in kinds else None,
        pad_token_id=text.integer("pad_token_id", minimum=0) if padded else 0,
        experts=_experts(text),
        bidirectional=text.values.get("use_bidirectional_attention") == "vision",
        unified=is_unified(text),
        remarks=tuple(_remarks(text)),
    )


def _check_heads(text: Section, config: TextConfig) -> None:
    for kind, layer in config.kinds.items():
        if layer.head_dim % 2:
            raise text.error("head_dim", f"is {layer.head_dim} for {kind}; rotation needs an even size")
        if config.heads % layer.kv_heads:
            what = (
                f"is {layer.kv_heads} for {kind}, which does not divide num_attention_heads, {config.heads}"
            )
            raise text.error("num_key_value_heads", what)


def _check_vocabulary(text: Section, config: TextConfig) -> None:
    if config.per_layer_input and config.vocab_per_layer < config.vocab:
        what = f"is {config.vocab_per_layer}; every id below vocab_size, {config.vocab}, needs a row"
        raise text.error("vocab_size_per_layer_input", what)
    if config.pad_token_id >= config.vocab:
        raise text.error("pad_token_id", f"is {config.pad_token_id}; vocab_size is {config.vocab}")


def _experts(text: Section) -> Experts | None:
    if not text.flag("enable_moe_block", False):
        return None
    found = Experts(
        text.integer("num_experts"), text.integer("top_k_experts"), text.integer("moe_intermediate_size")
    )
    if found.chosen > found.count:
        raise text.error("top_k_experts", f"is {found.chosen}; num_experts is {found.count}")
    return found


def _tied(top: Section, text: Section) -> bool:
    """Whether the head is the embedding table. Both levels may say it; then they must agree."""
    key = "tie_word_embeddings"
    said = {section.at: section.flag(key, True) for section in (top, text) if key in section}
    if len(set(said.values())) > 1:
        raise top.error(
            key, f"is {said[top.at]}, but {said[text.at]} in text_config", "set both to one value"
        )
    return next(iter(said.values()), True)


def _remarks(text: Section) -> list[str]:
    remarks: list[str] = []
    if (text.values.get("layer_types") or [FULL])[-1] != FULL:
        remarks.append(f"the last layer is {FULL}, whatever layer_types says, as in transformers")
    if text.values.get("use_bidirectional_attention") == "vision":
        remarks.append("use_bidirectional_attention 'vision' concerns images only; text is causal")
    return remarks
