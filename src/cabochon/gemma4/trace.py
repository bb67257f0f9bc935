"""From a config and a checkpoint's layout to an ONNX model in the dialect of a target."""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from cabochon.checkpoint import Tensor
from cabochon.dialects import Target
from cabochon.gemma4.config import TextConfig
from cabochon.gemma4.decoder import decoder
from cabochon.gemma4.drafter import drafter
from cabochon.gemma4.drafter_config import DrafterConfig
from cabochon.graph import Scope
from cabochon.recipes import Precision

__all__ = ["trace_drafter", "trace_text"]


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
    target.require(precision.name, (layer.head_dim for layer in config.layers))
    g = target.dialect("text_decoder")
    decoder(g, Scope(g, tensors, precision), config, logits_to_keep)
    return g.model(properties(config, target, precision))


def trace_drafter(
    config: DrafterConfig, tensors: Mapping[str, Tensor], target: Target, precision: Precision
) -> ir.Model:
    """The drafter. No weight byte is read: initializers are `Stored`, computed when they are written.

    `tensors` are those of `drafter_tensors`. Raises TargetError where the target cannot carry the precision.
    """
    target.require(precision.name)
    g = target.drafter_dialect("drafter")
    drafter(g, Scope(g, tensors, precision), config)
    known = {"cabochon.model": "drafter", "cabochon.backbone_hidden_size": str(config.backbone)}
    return g.model(_properties(config.text, target, g.mask, precision) | known)


def properties(config: TextConfig, target: Target, precision: Precision) -> dict[str, str]:
    """What a runtime must know of a text decoder beyond the ports; the keys are listed in docs/architecture.md."""
    scale = np.asarray(config.hidden**0.5).astype(precision.dtype.numpy())
    known = {"cabochon.embed_scale": repr(float(scale))}
    return _properties(config, target, target.dialect.mask, precision) | known


def _properties(config: TextConfig, target: Target, mask: str, precision: Precision) -> dict[str, str]:
    known = {
        "cabochon.target": target.name,
        "cabochon.precision": precision.name,
        "cabochon.mask": mask,
        "cabochon.max_positions": str(config.max_positions),
    }
    if config.window is not None:
        known["cabochon.sliding_window"] = str(config.window)
    return known
