"""Kinds of checkpoint that are refused by name, each with what to do."""

from collections.abc import Mapping
from typing import Any

from cabochon.errors import UnsupportedError

__all__ = ["refuse_quantized"]

_UNQUANTIZED = "give the unquantized checkpoint (bf16, f16 or f32) it was made from; a precision is chosen when building"


def refuse_quantized(config: Mapping[str, Any]) -> None:
    """Raise UnsupportedError where config.json says that the weights are quantized, and by what."""
    text = config.get("text_config")
    for values in (config, text if isinstance(text, Mapping) else {}):
        found = values.get("quantization_config") or values.get("compression_config")
        if found:
            method = found.get("quant_method") or "unknown method" if isinstance(found, Mapping) else found
            raise UnsupportedError(
                f"the checkpoint is quantized ({method})", at="config.json: quantization_config", remedy=_UNQUANTIZED
            )
