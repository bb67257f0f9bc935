"""From a config and a checkpoint's layout to an ONNX model in the dialect of a target."""

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from cabochon.checkpoint import Tensor
from cabochon.dialects import Target
from cabochon.dialects.standard import Standard
from cabochon.gemma4.audio import audio_encoder
from cabochon.gemma4.config import TextConfig
from cabochon.gemma4.decoder import decoder, fed_decoder
from cabochon.gemma4.drafter import drafter
from cabochon.gemma4.drafter_config import DrafterConfig
from cabochon.gemma4.embedder_config import AudioEmbedder, VisionEmbedder
from cabochon.gemma4.embedders import audio_embedder, vision_embedder
from cabochon.gemma4.embedding import embedding
from cabochon.gemma4.fitting import fitted, fitted_drafter
from cabochon.gemma4.full_config import FullConfig
from cabochon.gemma4.vision import vision_encoder
from cabochon.graph import Scope
from cabochon.recipes import Precision

__all__ = ["trace_drafter", "trace_full", "trace_text"]


def trace_text(
    config: TextConfig,
    tensors: Mapping[str, Tensor],
    target: Target,
    precision: Precision,
    *,
    logits_to_keep: int = 0,
) -> ir.Model:
    """The text decoder. No weight byte is read: initializers are `Stored`, computed when they are written.

    `tensors` are named as the text-only class names them (see `text_tensors`); `logits_to_keep` is the default the
    graph stores for its optional input; with 1 it has none and keeps the last position. Raises TargetError where the
    target cannot carry the precision or a head size.
    """
    target.require(precision.activations, (layer.head_dim for layer in config.layers), precision.methods)
    tensors, precision = fitted(tensors, precision, config.per_layer_input)
    g = target.dialect("text_decoder")
    decoder(g, Scope(g, tensors, precision), config, logits_to_keep)
    return g.model(properties(config, target, precision))


def trace_drafter(
    config: DrafterConfig, tensors: Mapping[str, Tensor], target: Target, precision: Precision
) -> ir.Model:
    """The drafter. No weight byte is read: initializers are `Stored`, computed when they are written.

    `tensors` are those of `drafter_tensors`. Raises TargetError where the target cannot carry the precision.
    """
    target.require(precision.activations, (), precision.methods)
    tensors, precision = fitted_drafter(tensors, precision)
    g = target.drafter_dialect("drafter")
    drafter(g, Scope(g, tensors, precision), config)
    known = {"cabochon.model": "drafter", "cabochon.backbone_hidden_size": str(config.backbone)}
    return g.model(_properties(config.text, target, g.mask, precision) | known)


def trace_full(
    config: FullConfig,
    tensors: Mapping[str, Tensor],
    target: Target,
    precision: Precision,
    *,
    logits_to_keep: int = 0,
) -> dict[str, ir.Model]:
    """The components of a full package, by name. No weight byte is read.

    `tensors` are those of `full_tensors`; for the rest see `trace_text`.
    """
    heads = (layer.head_dim for layer in config.text.layers)
    target.require(precision.activations, heads, precision.methods)
    tensors, precision = fitted(tensors, precision, config.text.per_layer_input)
    return {
        name: _written(
            name,
            write,
            _dialect(name, target),
            tensors,
            precision,
            component_properties(name, config, target, precision),
        )
        for name, write in _writers(config, logits_to_keep).items()
    }


_Write = Callable[[Standard, Scope], None]


def _writers(config: FullConfig, logits_to_keep: int) -> dict[str, _Write]:
    """What writes each component that the model has."""
    text, vision, audio = config.text, config.vision, config.audio
    writers: dict[str, _Write] = {
        "decoder": lambda g, w: fed_decoder(g, w, text, config.vision_ids, logits_to_keep),
        "embedding": lambda g, w: embedding(g, w, config),
    }
    match vision:
        case None:
            pass
        case VisionEmbedder():
            writers["vision_encoder"] = lambda g, w: vision_embedder(g, w, vision, text.hidden)
        case _:
            writers["vision_encoder"] = lambda g, w: vision_encoder(g, w, vision, text.hidden)
    match audio:
        case None:
            pass
        case AudioEmbedder():
            writers["audio_encoder"] = lambda g, w: audio_embedder(g, w, audio, text.hidden)
        case _:
            writers["audio_encoder"] = lambda g, w: audio_encoder(g, w, audio, text.hidden)
    return writers


def _dialect(name: str, target: Target) -> type[Standard]:
    """Encoders attend to all of their input, which the kernels of decoders do not."""
    return target.dialect if name in ("decoder", "embedding") else target.drafter_dialect


def _written(
    name: str,
    write: _Write,
    dialect: type[Standard],
    tensors: Mapping[str, Tensor],
    precision: Precision,
    known: dict[str, str],
) -> ir.Model:
    g = dialect(name)
    write(g, Scope(g, tensors, precision))
    return g.model(known)


def component_properties(
    name: str, config: FullConfig, target: Target, precision: Precision
) -> dict[str, str]:
    """What a runtime must know of a component beyond the ports; the keys are listed in docs/architecture.md."""
    built = {"cabochon.target": target.name, **_precision(precision), "cabochon.model": name}
    if name == "decoder":
        return _properties(config.text, target, target.dialect.mask, precision) | built
    if name == "embedding":
        ids = {"pad": config.text.pad_token_id, **config.tokens}
        known = {f"cabochon.{name}_token_id": str(token) for name, token in ids.items()}
        return built | _embed_scale(config.text, precision) | known
    if name == "vision_encoder" and config.vision is not None:
        said = ("patch_size", "pooling_kernel_size", "position_embedding_size")
        return built | {f"cabochon.{key}": str(getattr(config.vision, key)) for key in said}
    return built


def properties(config: TextConfig, target: Target, precision: Precision) -> dict[str, str]:
    """What a runtime must know of a text decoder beyond the ports; the keys are listed in docs/architecture.md."""
    return _properties(config, target, target.dialect.mask, precision) | _embed_scale(config, precision)


def _embed_scale(config: TextConfig, precision: Precision) -> dict[str, str]:
    scale = np.asarray(config.hidden**0.5).astype(precision.dtype.numpy())
    return {"cabochon.embed_scale": repr(float(scale))}


def _precision(precision: Precision) -> dict[str, str]:
    """Its name, and where that is not the type of activations that type too."""
    said = {"cabochon.precision": precision.name}
    return said | ({"cabochon.activations": precision.activations} if precision.quantized else {})


def _properties(config: TextConfig, target: Target, mask: str, precision: Precision) -> dict[str, str]:
    known = {
        "cabochon.target": target.name,
        **_precision(precision),
        "cabochon.mask": mask,
        "cabochon.max_positions": str(config.max_positions),
    }
    if config.window is not None:
        known["cabochon.sliding_window"] = str(config.window)
    return known
