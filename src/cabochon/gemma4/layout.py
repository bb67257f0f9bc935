"""The whole layout of every checkpoint of the family, from config.json alone: for planning.

Linear weights are [out, in].
"""

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from cabochon.gemma4.config import TextConfig, read_text_config
from cabochon.gemma4.drafter_config import DRAFTERS, read_drafter_config
from cabochon.gemma4.drafter_names import drafter_shapes
from cabochon.gemma4.embedder_config import AudioEmbedder, VisionEmbedder
from cabochon.gemma4.full_config import FullConfig, read_towers
from cabochon.gemma4.full_names import tower_shapes
from cabochon.gemma4.names import expected_shapes

__all__ = ["Slot", "full_geometry", "is_drafter", "layout", "text_geometry", "text_layout", "tower_layout"]

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
_VISION = ("model.vision_tower.", "model.vision_embedder.", "model.embed_vision.")


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
    shapes = (
        drafter_shapes(read_drafter_config(raw))
        if is_drafter(raw)
        else expected_shapes(read_text_config(raw))
    )
    return [Slot(_part(name), name, shape) for name, shape in shapes.items()]


def tower_layout(raw: Mapping[str, Any]) -> list[Slot]:
    """The tensors of what sees and hears; a projection into the text model counts as part of its tower, or embedder.
    Raises as `layout` does."""
    config = full_geometry(raw)
    vision = "vision embedder" if isinstance(config.vision, VisionEmbedder) else "vision tower"
    audio = "audio embedder" if isinstance(config.audio, AudioEmbedder) else "audio tower"
    return [
        Slot(vision if name.startswith(_VISION) else audio, name, shape)
        for name, shape in tower_shapes(config).items()
    ]


def text_geometry(raw: Mapping[str, Any]) -> TextConfig:
    """The text model of any checkpoint of the family; of a drafter its own layers, which borrow."""
    return read_drafter_config(raw).text if is_drafter(raw) else read_text_config(raw)


def full_geometry(raw: Mapping[str, Any]) -> FullConfig:
    """The same with what sees and hears, as far as sizes go: without the ids of tokens."""
    vision, audio = (None, None) if is_drafter(raw) else read_towers(raw)
    return FullConfig(text_geometry(raw), vision, audio, {}, False)


def is_drafter(raw: Mapping[str, Any]) -> bool:
    """Whether config.json is that of an assistant."""
    return raw.get("model_type") in tuple(DRAFTERS)


def _part(name: str) -> str:
    return next((part for mark, part in _PARTS.items() if mark in name), "decoder layers")
