"""The whole layout of every checkpoint of the family, from config.json alone: for planning.

Kinds that are not built yet are laid out too: mixtures of experts, and the unified model without towers.
H hidden, D head size, I intermediate, X experts; linear weights are [out, in].
"""

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

from cabochon.checkpoint.section import Section
from cabochon.gemma4.config import TextConfig, read_text_config
from cabochon.gemma4.drafter_config import DRAFTERS, read_drafter_config
from cabochon.gemma4.drafter_names import drafter_shapes
from cabochon.gemma4.names import expected_shapes

__all__ = ["Slot", "layout", "text_geometry"]

Shapes = Iterator[tuple[str, tuple[int, ...]]]

_READ_AS_TEXT = ("gemma4_unified", "gemma4_unified_text")
_DENSE = {
    "enable_moe_block": False,
    "num_experts": None,
    "top_k_experts": None,
    "moe_intermediate_size": None,
}


class Slot(NamedTuple):
    """A tensor that a checkpoint must hold: the part of the model it belongs to, its name and shape."""

    part: str
    name: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)


def layout(raw: Mapping[str, Any]) -> list[Slot]:
    """Every tensor of the checkpoint that `raw`, a whole config.json, describes; a tied head is not stored.

    Raises ConfigError or UnsupportedError where `raw` is no Gemma 4.
    """
    if _is_drafter(raw):
        return [
            Slot(_part(name), name, shape) for name, shape in drafter_shapes(read_drafter_config(raw)).items()
        ]
    top, config = Section(raw, "config.json"), text_geometry(raw)
    slots = [Slot(_part(name), name, shape) for name, shape in _text(raw, config)]
    if raw.get("model_type") == "gemma4_unified":
        slots += [Slot("vision embedder", name, shape) for name, shape in _unified_vision(top, config.hidden)]
        slots += [Slot("audio embedder", name, shape) for name, shape in _unified_audio(top, config.hidden)]
    elif raw.get("model_type") == "gemma4":
        slots += [Slot("vision tower", name, shape) for name, shape in _vision(top, config.hidden)]
        slots += [Slot("audio tower", name, shape) for name, shape in _audio(top, config.hidden)]
    return slots


def text_geometry(raw: Mapping[str, Any]) -> TextConfig:
    """The text model of any checkpoint of the family; of a drafter its own layers, which borrow. What is not built yet
    is read as what has the same layers, without experts."""
    if _is_drafter(raw):
        return read_drafter_config(raw).text
    text = raw.get("text_config")
    inner = {**(raw if text is None else text), **_DENSE}
    if raw.get("model_type") in _READ_AS_TEXT:
        return read_text_config({**inner, "model_type": "gemma4_text"})
    return read_text_config(inner if text is None else {**raw, "text_config": inner})


def _is_drafter(raw: Mapping[str, Any]) -> bool:
    return raw.get("model_type") in tuple(DRAFTERS)


def _part(name: str) -> str:
    parts = {
        "embed_tokens_per_layer.": "per-layer table",
        "per_layer_model_projection.": "per-layer projection",
        "embed_tokens.": "token embedding",
        "lm_head.": "head",
        ".experts.": "experts",
        "pre_projection.": "drafter projections",
        "post_projection.": "drafter projections",
        "masked_embedding.": "centroid head",
    }
    return next((part for key, part in parts.items() if key in name), "decoder layers")


def _text(raw: Mapping[str, Any], config: TextConfig) -> Shapes:
    yield from expected_shapes(config).items()
    text = Section(raw.get("text_config", raw), "config.json: text_config")
    if text.flag("enable_moe_block", False):
        for i in range(len(config.layers)):
            yield from _experts(text, config.hidden, f"model.layers.{i}.")


def _experts(text: Section, hidden: int, at: str) -> Shapes:
    """Router and experts stand beside the dense feed-forward, with three more norms."""
    experts, width = text.integer("num_experts"), text.integer("moe_intermediate_size")
    yield at + "router.proj.weight", (experts, hidden)
    yield at + "router.scale", (hidden,)
    yield at + "router.per_expert_scale", (experts,)
    yield at + "experts.gate_up_proj", (experts, 2 * width, hidden)
    yield at + "experts.down_proj", (experts, hidden, width)
    for norm in (
        "post_feedforward_layernorm_1",
        "post_feedforward_layernorm_2",
        "pre_feedforward_layernorm_2",
    ):
        yield f"{at}{norm}.weight", (hidden,)


def _linear(name: str, out: int, into: int, clipped: bool) -> Shapes:
    """A linear of the towers; clipped ones carry the four bounds of their input and output."""
    yield f"{name}.linear.weight", (out, into)
    if clipped:
        for bound in ("input_min", "input_max", "output_min", "output_max"):
            yield f"{name}.{bound}", ()


SANDWICH = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)


def _vision(top: Section, hidden: int) -> Shapes:
    if top.values.get("vision_config") is None:
        return
    c, at = top.section("vision_config"), "model.vision_tower."
    width = c.integer("hidden_size")
    yield at + "patch_embedder.input_proj.weight", (width, 3 * c.integer("patch_size") ** 2)
    yield at + "patch_embedder.position_embedding_table", (2, c.integer("position_embedding_size"), width)
    for i in range(c.integer("num_hidden_layers")):
        yield from _vision_layer(c, f"{at}encoder.layers.{i}.")
    if c.flag("standardize", False):
        yield at + "std_bias", (width,)
        yield at + "std_scale", (width,)
    yield "model.embed_vision.embedding_projection.weight", (hidden, width)


def _vision_layer(c: Section, at: str) -> Shapes:
    width, inner, size = c.integer("hidden_size"), c.integer("intermediate_size"), c.integer("head_dim")
    heads, kv_heads = c.integer("num_attention_heads"), c.integer("num_key_value_heads")
    clipped = c.flag("use_clipped_linears", False)
    for name, count in (("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads)):
        yield from _linear(f"{at}self_attn.{name}", count * size, width, clipped)
    yield from _linear(at + "self_attn.o_proj", width, heads * size, clipped)
    for name, out, into in (
        ("gate_proj", inner, width),
        ("up_proj", inner, width),
        ("down_proj", width, inner),
    ):
        yield from _linear(f"{at}mlp.{name}", out, into, clipped)
    for norm in ("q_norm", "k_norm"):
        yield f"{at}self_attn.{norm}.weight", (size,)
    for norm in SANDWICH:
        yield f"{at}{norm}.weight", (width,)


def _audio(top: Section, hidden: int) -> Shapes:
    if top.values.get("audio_config") is None:
        return
    c, at = top.section("audio_config"), "model.audio_tower."
    width, out = c.integer("hidden_size"), c.integer("output_proj_dims")
    first, second = c.values["subsampling_conv_channels"]
    convolutions = at + "subsample_conv_projection."
    yield convolutions + "layer0.conv.weight", (first, 1, 3, 3)
    yield convolutions + "layer0.norm.weight", (first,)
    yield convolutions + "layer1.conv.weight", (second, first, 3, 3)
    yield convolutions + "layer1.norm.weight", (second,)
    yield convolutions + "input_proj_linear.weight", (width, first // 4 * second)
    for i in range(c.integer("num_hidden_layers")):
        yield from _audio_layer(c, f"{at}layers.{i}.")
    yield at + "output_proj.weight", (out, width)
    yield at + "output_proj.bias", (out,)
    yield "model.embed_audio.embedding_projection.weight", (hidden, out)


def _audio_layer(c: Section, at: str) -> Shapes:
    """A conformer: half a feed-forward, attention, convolution, half a feed-forward."""
    width, clipped = c.integer("hidden_size"), c.flag("use_clipped_linears", False)
    for half in ("feed_forward1", "feed_forward2"):
        yield from _linear(f"{at}{half}.ffw_layer_1", 4 * width, width, clipped)
        yield from _linear(f"{at}{half}.ffw_layer_2", width, 4 * width, clipped)
        yield f"{at}{half}.pre_layer_norm.weight", (width,)
        yield f"{at}{half}.post_layer_norm.weight", (width,)
    for name in ("q_proj", "k_proj", "v_proj", "post"):
        yield from _linear(f"{at}self_attn.{name}", width, width, clipped)
    yield at + "self_attn.relative_k_proj.weight", (width, width)
    yield at + "self_attn.per_dim_scale", (width // c.integer("num_attention_heads"),)
    yield from _linear(at + "lconv1d.linear_start", 2 * width, width, clipped)
    yield from _linear(at + "lconv1d.linear_end", width, width, clipped)
    yield at + "lconv1d.depthwise_conv1d.weight", (width, 1, c.integer("conv_kernel_size"))
    for norm in (
        "lconv1d.pre_layer_norm",
        "lconv1d.conv_norm",
        "norm_pre_attn",
        "norm_post_attn",
        "norm_out",
    ):
        yield f"{at}{norm}.weight", (width,)


def _unified_vision(top: Section, hidden: int) -> Shapes:
    """No tower: pooled patches of pixels, embedded between three layer norms."""
    if top.values.get("vision_config") is None:
        return
    c, at = top.section("vision_config"), "model.vision_embedder."
    side = c.integer("patch_size") * c.integer("pooling_kernel_size")
    pixels, width = 3 * side**2, c.integer("mm_embed_dim")
    for name, shape in (("patch_ln1", (pixels,)), ("patch_ln2", (width,)), ("pos_norm", (width,))):
        yield f"{at}{name}.weight", shape
        yield f"{at}{name}.bias", shape
    yield at + "patch_dense.weight", (width, pixels)
    yield at + "patch_dense.bias", (width,)
    yield at + "pos_embedding", (c.integer("mm_posemb_size"), 2, width)
    yield "model.embed_vision.embedding_projection.weight", (hidden, width)


def _unified_audio(top: Section, hidden: int) -> Shapes:
    if top.values.get("audio_config") is not None:
        samples = top.section("audio_config").integer("audio_embed_dim")
        yield "model.embed_audio.embedding_projection.weight", (hidden, samples)
