"""Kinds of checkpoint that are refused by name, each with what to do."""

from collections.abc import Collection, Mapping
from typing import Any

from cabochon.errors import SourceError, UnsupportedError

__all__ = ["ADAPTERS", "is_adapter", "refuse_kinds", "refuse_pointer", "refuse_quantized"]

ADAPTERS = ("adapter_config.json", "adapter_model.")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_SAFE = "save the model as safetensors: model.save_pretrained(folder) of transformers does"
_UNQUANTIZED = (
    "give the unquantized checkpoint (bf16, f16 or f32) it was made from; a precision is chosen when building"
)
_QUANTIZERS = {
    "hf_quant_config.json": "ModelOpt",
    "quantize_config.json": "GPTQ",
    "quant_config.json": "AWQ",
}


def is_adapter(name: str) -> bool:
    """Whether the file of this name belongs to a LoRA adapter."""
    return name.startswith(ADAPTERS)


def refuse_kinds(names: Collection[str], at: str) -> None:
    """Raise UnsupportedError where files of these `names` are a kind we refuse. Nothing is opened."""
    for name, method in _QUANTIZERS.items():
        if name in names:
            raise UnsupportedError(
                f"{name}: the checkpoint is quantized ({method})", at=at, remedy=_UNQUANTIZED
            )
    if any(name.endswith(".safetensors") and not is_adapter(name) for name in names):
        return
    if adapters := [name for name in names if is_adapter(name)]:
        raise UnsupportedError(
            f"a LoRA adapter ({', '.join(sorted(adapters))}) without the model it adapts",
            at=at,
            remedy="merge it into its base model (merge_and_unload of peft), save that, and give its folder",
        )
    if ggufs := [name for name in names if name.endswith(".gguf")]:
        raise UnsupportedError(
            f"GGUF files ({_some(ggufs)}) and no safetensors",
            at=at,
            remedy="give the original checkpoint in safetensors",
        )
    if pickles := [name for name in names if name.endswith(_PICKLES)]:
        raise UnsupportedError(
            f"pickle files ({_some(pickles)}) and no safetensors; a pickle can run code, none was opened",
            at=at, remedy=_SAFE,
        )  # fmt: skip


def refuse_quantized(config: Mapping[str, Any]) -> None:
    """Raise UnsupportedError where config.json says that the weights are quantized, and by what."""
    text = config.get("text_config")
    for values in (config, text if isinstance(text, Mapping) else {}):
        for key in ("quantization_config", "compression_config", "quantization"):
            if values.get(key):
                raise UnsupportedError(
                    f"the checkpoint is quantized ({_method(values[key])})",
                    at=f"config.json: {key}",
                    remedy=_UNQUANTIZED,
                )


def refuse_pointer(start: bytes, called: str) -> None:
    """Raise SourceError if a file that begins with `start` is a Git LFS pointer, not data."""
    if start.startswith(b"version https://git-lfs.github.com/spec/"):
        raise SourceError(
            "this is a Git LFS pointer, not the data it stands for",
            at=called, remedy="run `git lfs pull` in the folder, or download the file again",
        )  # fmt: skip


def _method(found: Any) -> str:
    """The quantizer's name, and the bits where they are said."""
    if not isinstance(found, Mapping):
        return str(found)
    method = str(found.get("quant_method") or "by an unnamed method")
    bits = found.get("bits") or (4 if found.get("load_in_4bit") else 8 if found.get("load_in_8bit") else None)
    return f"{method}, {bits} bits" if bits else method


def _some(names: Collection[str]) -> str:
    first = sorted(names)[:3]
    return ", ".join(first) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
