"""The text model as config.json describes it: frozen facts, one per layer.

Both spellings are read: `global_head_dim` and `num_global_key_value_heads` as published, and `per_layer_config`
as transformers saves it since 5.15. The rules are those of transformers' Gemma4TextConfig.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cabochon.checkpoint.refusals import refuse_quantized
from cabochon.checkpoint.section import Section
from cabochon.gemma4.config_keys import TEXT_KEYS, TOP_KEYS, refuse_other_features, refuse_other_models

__all__ = ["FULL", "SLIDING", "Layer", "Rope", "TextConfig", "read_text_config"]

SLIDING, FULL = "sliding_attention", "full_attention"

_DEFAULT_ROPE = {
    SLIDING: {"rope_type": "default", "rope_theta": 10_000.0},
    FULL: {"rope_type": "proportional", "rope_theta": 1_000_000.0, "partial_rotary_factor": 0.25},
}


@dataclass(frozen=True)
class Layer:
    """One decoder layer. `cache` is the index of the layer whose keys and values it reads: its own if it owns some."""

    kind: str
    head_dim: int
    kv_heads: int
    cache: int
    shares_kv: bool
    window: int | None
    k_eq_v: bool
    intermediate: int


@dataclass(frozen=True)
class Rope:
    """Rotation of one kind: angle = position / (theta ** (2j / head_dim) * factor) for the first `partial` of pairs."""

    theta: float
    partial: float
    factor: float


@dataclass(frozen=True)
class TextConfig:
    """The text model. `per_layer_input` is 0 where the model has no per-layer inputs."""

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
    remarks: tuple[str, ...] = field(default=(), compare=False)

    @property
    def owners(self) -> list[int]:
        """Indices of the layers with a key/value cache of their own."""
        return list(range(self.first_shared))

    @property
    def kinds(self) -> dict[str, Layer]:
        """The first layer of each kind; geometry is the same for all layers of one kind."""
        return {layer.kind: layer for layer in reversed(self.layers)}


def read_text_config(raw: Mapping[str, Any]) -> TextConfig:
    """The text model in `raw`, a whole config.json of model_type gemma4 or gemma4_text.

    Raises UnsupportedError for a kind of model that is refused by name, ConfigError for anything that is unknown,
    of the wrong type, or contradicts itself.
    """
    refuse_quantized(raw)
    refuse_other_models(raw)
    top = Section(raw, "config.json")
    text = top.section("text_config") if "text_config" in top else top
    if text is not top:
        top.refuse_unknown(TOP_KEYS)
    text.refuse_unknown(TEXT_KEYS)
    refuse_other_features(text)
    kinds, remarks = _kinds(text)
    first_shared = _first_shared(text, kinds)
    per_layer_input = text.integer("hidden_size_per_layer_input", minimum=0)
    vocab = text.integer("vocab_size")
    config = TextConfig(
        hidden=text.integer("hidden_size"),
        heads=text.integer("num_attention_heads"),
        vocab=vocab,
        eps=text.positive("rms_norm_eps", 1e-6),
        per_layer_input=per_layer_input,
        vocab_per_layer=text.integer("vocab_size_per_layer_input", 262_144) if per_layer_input else 0,
        softcap=None if text.values.get("final_logit_softcapping") is None else text.positive("final_logit_softcapping"),
        max_positions=text.integer("max_position_embeddings"),
        rope=_rope(text, kinds),
        layers=_layers(text, kinds, first_shared),
        first_shared=first_shared,
        tied=_tied(top, text),
        window=text.integer("sliding_window") if SLIDING in kinds else None,
        pad_token_id=0 if text.values.get("pad_token_id") is None else text.integer("pad_token_id", minimum=0),
        remarks=(*remarks, *_bidirectional(text)),
    )
    _check_heads(text, config)
    return config


def _kinds(text: Section) -> tuple[list[str], list[str]]:
    """The kind of each layer; the last is full attention whatever is written (as transformers forces it)."""
    count = text.integer("num_hidden_layers")
    kinds = text.values.get("layer_types")
    if kinds is None:
        kinds = [FULL if (i + 1) % 6 == 0 else SLIDING for i in range(count)]
    if not isinstance(kinds, list) or any(kind not in (SLIDING, FULL) for kind in kinds):
        raise text.error("layer_types", f"is {kinds!r:.200}; expected a list of {SLIDING!r} and {FULL!r}")
    if len(kinds) != count:
        raise text.error("layer_types", f"has {len(kinds)} entries; num_hidden_layers is {count}")
    if kinds[-1] == FULL:
        return list(kinds), []
    return [*kinds[:-1], FULL], [f"the last layer is built as {FULL}, whatever layer_types says, as transformers does"]


def _first_shared(text: Section, kinds: list[str]) -> int:
    """The first layer that borrows keys and values; each kind that borrows must have an owner."""
    shared = text.integer("num_kv_shared_layers", 0, minimum=0)
    first = len(kinds) - shared
    if first < 1:
        raise text.error("num_kv_shared_layers", f"is {shared} of {len(kinds)} layers; a text model owns at least one cache")
    orphans = set(kinds[first:]) - set(kinds[:first])
    if orphans:
        raise text.error(
            "num_kv_shared_layers", f"is {shared}: no layer before {first} is {orphans.pop()}, which a later one borrows from"
        )
    return first


def _layers(text: Section, kinds: list[str], first_shared: int) -> tuple[Layer, ...]:
    geometry = _geometry(text, kinds)
    width = text.integer("intermediate_size")
    wide = 2 if text.flag("use_double_wide_mlp", False) else 1
    k_eq_v = text.flag("attention_k_eq_v", False)
    owner = {kind: i for i, kind in enumerate(kinds[:first_shared])}
    return tuple(
        Layer(
            kind=kind,
            head_dim=geometry[kind][0],
            kv_heads=geometry[kind][1],
            cache=i if i < first_shared else owner[kind],
            shares_kv=i >= first_shared,
            window=text.integer("sliding_window") if kind == SLIDING else None,
            k_eq_v=k_eq_v and kind == FULL,
            intermediate=width * (wide if i >= first_shared else 1),
        )
        for i, kind in enumerate(kinds)
    )


def _geometry(text: Section, kinds: list[str]) -> dict[str, tuple[int, int]]:
    """(head_dim, kv_heads) of each kind, from either spelling; both at once must agree."""
    own_heads = text.optional_integer("num_global_key_value_heads") if text.flag("attention_k_eq_v", False) else None
    published = {"global_head_dim": text.optional_integer("global_head_dim"), "num_global_key_value_heads": own_heads}
    if "per_layer_config" not in text:
        return _published_geometry(text, *published.values())
    saved = _saved_geometry(text, kinds)
    for (key, value), found in zip(published.items(), saved[FULL], strict=True):
        if value is not None and value != found:
            raise text.error(
                key, f"is {value}, but per_layer_config gives full layers {found}",
                "both spellings of one fact must agree: remove the wrong one",
            )  # fmt: skip
    return saved


def _published_geometry(text: Section, global_head_dim: int | None, own_heads: int | None) -> dict[str, tuple[int, int]]:
    """As published: full layers have a head size of their own, 512 where none is given."""
    kv_heads = text.integer("num_key_value_heads")
    return {SLIDING: (text.integer("head_dim"), kv_heads), FULL: (global_head_dim or 512, own_heads or kv_heads)}


def _saved_geometry(text: Section, kinds: list[str]) -> dict[str, tuple[int, int]]:
    """As saved: overrides by layer index over head_dim and num_key_value_heads; one geometry per kind."""
    overrides = _overrides(text, len(kinds))
    result: dict[str, tuple[int, int]] = {}
    for i, kind in enumerate(kinds):
        layer = Section({**text.values, **overrides.get(i, {})}, f"{text.at}: per_layer_config: {i}")
        found = (layer.integer("head_dim"), layer.integer("num_key_value_heads"))
        if result.setdefault(kind, found) != found:
            raise text.error(
                "per_layer_config", f"layer {i} has (head_dim, num_key_value_heads) {found}, another {kind} layer {result[kind]}"
            )
    return result


def _overrides(text: Section, count: int) -> dict[int, Mapping[str, Any]]:
    section, result = text.section("per_layer_config"), {}
    for key in section.values:
        index = int(key) if key.isascii() and key.isdigit() else count
        if index >= count or index in result:
            raise section.error(key, f"is not a layer's index from 0 to {count - 1}, each once")
        layer = section.section(key)
        layer.refuse_unknown({"head_dim": "", "num_key_value_heads": ""})
        result[index] = layer.values
    return result


def _check_heads(text: Section, config: TextConfig) -> None:
    for kind, layer in config.kinds.items():
        if layer.head_dim % 2:
            raise text.error("head_dim", f"is {layer.head_dim} for {kind}; rotary embedding needs an even size")
        if not layer.kv_heads or config.heads % layer.kv_heads:
            raise text.error(
                "num_key_value_heads", f"is {layer.kv_heads} for {kind}, which does not divide num_attention_heads {config.heads}"
            )
    if config.pad_token_id >= config.vocab:
        raise text.error("pad_token_id", f"is {config.pad_token_id}; vocab_size is {config.vocab}")


_ROPE_KEYS = {"rope_type": "", "rope_theta": "", "partial_rotary_factor": "", "factor": ""}


def _rope(text: Section, kinds: list[str]) -> dict[str, Rope]:
    if text.values.get("rope_parameters") is None:
        text = Section({**text.values, "rope_parameters": _DEFAULT_ROPE}, text.at)
    section = text.section("rope_parameters")
    section.refuse_unknown({SLIDING: "", FULL: ""})
    return {kind: _one_rope(section.section(kind)) for kind in sorted(set(kinds))}


def _one_rope(section: Section) -> Rope:
    """"default" rotates every pair; "proportional" the first partial_rotary_factor of them."""
    section.refuse_unknown(_ROPE_KEYS)
    kind = section.values.get("rope_type")
    if kind not in ("default", "proportional"):
        raise section.error("rope_type", f"is {kind!r}; expected 'default' or 'proportional'")
    rope = Rope(section.positive("rope_theta"), section.positive("partial_rotary_factor", 1.0), section.positive("factor", 1.0))
    if rope.partial > 1:
        raise section.error("partial_rotary_factor", f"is {rope.partial}; expected a share, 1 at most")
    if kind == "default" and (rope.partial, rope.factor) != (1.0, 1.0):
        raise section.error("rope_type", "is 'default', which has no partial_rotary_factor and no factor; did you mean 'proportional'?")
    return rope


def _tied(top: Section, text: Section) -> bool:
    """Whether the head is the embedding table. Both levels may say it; they must agree."""
    said = [section.flag("tie_word_embeddings", True) for section in (top, text) if "tie_word_embeddings" in section]
    if len(set(said)) > 1:
        raise top.error("tie_word_embeddings", f"is {said[0]}, but {said[1]} in text_config", "set both to what the checkpoint holds")
    return said[0] if said else True


def _bidirectional(text: Section) -> list[str]:
    """"vision" concerns images only; a text model is causal."""
    if text.values.get("use_bidirectional_attention") != "vision":
        return []
    return ["use_bidirectional_attention is 'vision': it concerns image tokens, which a text model never sees; attention is causal"]
