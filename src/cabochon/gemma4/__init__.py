"""The model: its config, its tensors' names, its formula."""

from typing import TYPE_CHECKING, Any

from cabochon.gemma4.config import Layer, Rope, TextConfig, read_text_config
from cabochon.gemma4.drafter_config import Centroids, DrafterConfig, read_config, read_drafter_config
from cabochon.gemma4.drafter_names import drafter_shapes, drafter_tensors
from cabochon.gemma4.fitting import fitted, fitted_drafter
from cabochon.gemma4.full_config import FullConfig, read_full_config
from cabochon.gemma4.full_names import COMPONENTS, full_tensors
from cabochon.gemma4.names import TextTensors, expected_shapes, text_tensors
from cabochon.gemma4.weights import drafter_weights, full_weights, text_weights

if TYPE_CHECKING:
    from cabochon.gemma4.trace import trace_drafter, trace_full, trace_text

__all__ = [
    "COMPONENTS",
    "Centroids",
    "DrafterConfig",
    "FullConfig",
    "Layer",
    "Rope",
    "TextConfig",
    "TextTensors",
    "drafter_shapes",
    "drafter_tensors",
    "drafter_weights",
    "expected_shapes",
    "fitted",
    "fitted_drafter",
    "full_tensors",
    "full_weights",
    "read_config",
    "read_drafter_config",
    "read_full_config",
    "read_text_config",
    "text_tensors",
    "text_weights",
    "trace_drafter",
    "trace_full",
    "trace_text",
]


def __getattr__(name: str) -> Any:
    if name not in ("trace_drafter", "trace_full", "trace_text"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cabochon.gemma4 import trace  # brings onnx_ir with it

    return getattr(trace, name)
