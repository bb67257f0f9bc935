"""The model: its config, its tensors' names, its formula."""

from cabochon.gemma4.config import Layer, Rope, TextConfig, read_text_config
from cabochon.gemma4.names import TextTensors, expected_shapes, text_tensors
from cabochon.gemma4.trace import trace_text

__all__ = [
    "Layer",
    "Rope",
    "TextConfig",
    "TextTensors",
    "expected_shapes",
    "read_text_config",
    "text_tensors",
    "trace_text",
]
