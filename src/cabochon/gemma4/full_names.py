"""The tensors of the whole model: those of the text model and those of the towers."""

import re
from collections.abc import Iterator, Mapping

from cabochon.checkpoint import Tensor
from cabochon.gemma4.audio_names import audio_shapes
from cabochon.gemma4.embedder_config import AudioEmbedder, VisionEmbedder
from cabochon.gemma4.embedder_names import as_published, audio_embedder_shapes, vision_embedder_shapes
from cabochon.gemma4.full_config import FullConfig
from cabochon.gemma4.names import (
    HEAD,
    TABLE,
    TOWERS,
    Shape,
    TextTensors,
    misshapen,
    other_dtypes,
    refuse,
    text_tensors,
)
from cabochon.gemma4.vision_names import vision_shapes

__all__ = ["COMPONENTS", "component_of", "full_tensors", "tower_shapes"]

COMPONENTS = ("decoder", "embedding", "vision_encoder", "audio_encoder")
_EMBEDDING = re.compile(
    r"model\.(embed_tokens|embed_tokens_per_layer|per_layer_model_projection|per_layer_projection_norm)\."
)
_VISION = re.compile(r"model\.(vision_tower|vision_embedder|embed_vision)\.")
_AUDIO = re.compile(r"model\.(audio_tower|embed_audio)\.")


def tower_shapes(config: FullConfig) -> dict[str, Shape]:
    """Every tensor of the towers that the model has, or of what stands in their place, by canonical name."""
    return _vision_shapes(config) | _audio_shapes(config)


def _vision_shapes(config: FullConfig) -> dict[str, Shape]:
    match config.vision:
        case None:
            return {}
        case VisionEmbedder() as embedder:
            return vision_embedder_shapes(embedder, config.text.hidden)
        case tower:
            return vision_shapes(tower, config.text.hidden)


def _audio_shapes(config: FullConfig) -> dict[str, Shape]:
    match config.audio:
        case None:
            return {}
        case AudioEmbedder() as embedder:
            return audio_embedder_shapes(embedder, config.text.hidden)
        case tower:
            return audio_shapes(tower, config.text.hidden)


def full_tensors(tensors: Mapping[str, Tensor], config: FullConfig) -> TextTensors:
    """Give every tensor its canonical name or the reason why it is unused.

    Raises TensorError as `text_tensors` does, for the tensors of the towers too.
    """
    text = text_tensors(tensors, config.text)
    shapes = tower_shapes(config)
    canonical = {
        name: f"model.{as_published(name).removeprefix('model.')}"
        for name in text.unused
        if TOWERS.match(name)
    }
    used: dict[str, Tensor] = {}
    faults: dict[str, list[str]] = {"missing": [], "unknown": [], "stored twice": []}
    unused = {name: reason for name, reason in text.unused.items() if name not in canonical}
    for name, known in canonical.items():
        if known in used:
            faults["stored twice"].append(f"{used[known].name} and {name}")
        elif known in shapes:
            used[known] = tensors[name]
        elif _belongs(known, config):
            faults["unknown"].append(name)
        else:
            unused[name] = "config.json describes no such tower"
    faults["missing"] = [name for name in shapes if name not in used]
    faults["wrong shape"] = misshapen(shapes, used)
    faults["wrong dtype"] = other_dtypes(used)
    refuse(faults)
    return TextTensors({**text.used, **{name: used[name] for name in shapes}}, unused)


def _belongs(name: str, config: FullConfig) -> bool:
    """Whether the tensor is part of a tower that the model has."""
    return bool(config.vision and _VISION.match(name)) or bool(config.audio and _AUDIO.match(name))


def component_of(name: str, used: Mapping[str, Tensor]) -> Iterator[str]:
    """The components that need the weight of this canonical name: the table of a tied head two, all others one."""
    if _VISION.match(name):
        yield "vision_encoder"
    elif _AUDIO.match(name):
        yield "audio_encoder"
    else:
        if _EMBEDDING.match(name):
            yield "embedding"
        if not _EMBEDDING.match(name) or (name == TABLE and HEAD not in used):
            yield "decoder"
