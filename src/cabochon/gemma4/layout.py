"""The whole layout of every checkpoint of the family, from config.json alone: for planning.

The unified model without towers, which is not built yet, is laid out too. Linear weights are [out, in].
"""

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

from cabochon.gemma4.audio_config import read_audio_config
from cabochon.gemma4.config import TextConfig, read_text_config
from cabochon.gemma4.drafter_config import DRAFTERS, read_drafter_config
from cabochon.gemma4.drafter_names import drafter_shapes
from cabochon.gemma4.full_config import FullConfig
from cabochon.gemma4.full_names import tower_shapes
from cabochon.gemma4.names import expected_shapes
from cabochon.gemma4.vision_config import read_vision_config
from cabochon.section import Section

__all__ = ["Slot", "full_geometry", "is_drafter", "layout", "text_geometry", "text_layout", "tower_layout"]

Shapes = Iterator[tuple[str, tuple[int, ...]]]

_READ_AS_TEXT = ("gemma4_unified", "gemma4_unified_text")
# What marks the names of a part; all other tensors of a text model are its layers.
_PARTS = {
    "embed_tokens_per_layer.": "per-layer table",
    "per_layer_model_projection.": "per-layer projection",
    "embed_tokens.": "token embedding",
    "lm_head.": "head",
    ".experts.": "experts",
    "pre_projection.": "drafter projections",
    "post_projection.": "drafter projections",
    "masked_embedding.": "centroid head",
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
    return text_layout(raw) + tower_layout(raw)


def text_layout(raw: Mapping[str, Any]) -> list[Slot]:
    """The tensors of the text model, or of a drafter; raises as `layout` does."""
    shapes = drafter_shapes(read_drafter_config(raw)).items() if is_drafter(raw) else _text(raw)
    return [Slot(_part(name), name, shape) for name, shape in shapes]


def tower_layout(raw: Mapping[str, Any]) -> list[Slot]:
    """The tensors of what sees and hears; raises as `layout` does."""
    if raw.get("model_type") == "gemma4_unified":
        top, hidden = Section(raw, "config.json"), text_geometry(raw).hidden
        slots = [Slot("vision embedder", name, shape) for name, shape in _unified_vision(top, hidden)]
        return slots + [Slot("audio embedder", name, shape) for name, shape in _unified_audio(top, hidden)]
    if raw.get("model_type") != "gemma4":
        return []
    return [Slot(_tower(name), name, shape) for name, shape in tower_shapes(full_geometry(raw)).items()]


def text_geometry(raw: Mapping[str, Any]) -> TextConfig:
    """The text model of any checkpoint of the family; of a drafter its own layers, which borrow. The unified
    model is read as what has the same layers."""
    if is_drafter(raw):
        return read_drafter_config(raw).text
    text = raw.get("text_config")
    inner = dict(raw if text is None else text)
    if raw.get("model_type") in _READ_AS_TEXT:
        return read_text_config({**inner, "model_type": "gemma4_text"})
    return read_text_config(inner if text is None else {**raw, "text_config": inner})


def full_geometry(raw: Mapping[str, Any]) -> FullConfig:
    """The same with the towers, as far as sizes go: without the ids of tokens. The unified model has no towers."""
    text = text_geometry(raw)
    if raw.get("model_type") != "gemma4":
        return FullConfig(text, None, None, {}, False)
    return FullConfig(text, read_vision_config(raw), read_audio_config(raw), {}, False)


def is_drafter(raw: Mapping[str, Any]) -> bool:
    """Whether config.json is that of an assistant."""
    return raw.get("model_type") in tuple(DRAFTERS)


def _part(name: str) -> str:
    return next((part for mark, part in _PARTS.items() if mark in name), "decoder layers")


def _tower(name: str) -> str:
    """The projection into the text model counts as part of its tower."""
    return (
        "vision tower" if name.startswith(("model.vision_tower.", "model.embed_vision.")) else "audio tower"
    )


def _text(raw: Mapping[str, Any]) -> Shapes:
    yield from expected_shapes(text_geometry(raw)).items()


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
