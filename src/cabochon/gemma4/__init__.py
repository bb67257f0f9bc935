"""The model: its config, its tensors' names, its formula."""

from typing import TYPE_CHECKING, Any

from cabochon.gemma4.config import Layer, Rope, TextConfig, read_text_config
from cabochon.gemma4.names import TextTensors, expected_shapes, text_tensors
from cabochon.gemma4.weights import text_weights

if TYPE_CHECKING:
    from cabochon.gemma4.trace import trace_text

__all__ = [
    "Layer",
    "Rope",
    "TextConfig",
    "TextTensors",
    "expected_shapes",
    "read_text_config",
    "text_tensors",
    "text_weights",
    "trace_text",
]


def __getattr__(name: str) -> Any:
    if name != "trace_text":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cabochon.gemma4.trace import trace_text  # brings onnx_ir with it

    return trace_text
