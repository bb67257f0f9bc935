"""Kinds of checkpoint that are refused by name, each with what to do."""

from collections.abc import Collection, Mapping
from typing import Any

from cabochon.errors import SourceError, UnsupportedError

__all__ = [
    "ADAPTERS",
    "is_adapter",
    "refuse_kinds",
    "refuse_pointer",
    "refuse_quantized",
    "refuse_quantized_tensors",
]

ADAPTERS = ("adapter_config.json", "adapter_model.")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_SAFE = "save the model as safetensors: model.save_pretrained(folder) of transformers does"
_UNQUANTIZED = (
    "give the unquantized checkpoint (bf16, f16 or f32) it was made from, of a QAT release the one whose name "
    "ends in -unquantized; a precision is chosen when building"
)
_QUANTIZERS = {
    "hf_quant_config.json": "ModelOpt",
    "quantize_config.json": "GPTQ",
    "quant_config.json": "AWQ",
}
# How the tensors are called that a quantizer puts in the place of a weight, or beside it.
_PARTS = {
    ".weight_packed": "compressed-tensors",
    ".weight_scale": "compressed-tensors, or ModelOpt",
    ".weight_scale_inv": "FP8 by blocks",
    ".qweight": "GPTQ, or AWQ",
    ".weight.absmax": "bitsandbytes",
    ".SCB": "bitsandbytes",
    ".scales": "MLX",
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


def refuse_quantized_tensors(names: Collection[str], at: str) -> None:
    """Raise UnsupportedError where `names` of tensors show that weights are quantized, whatever config.json says."""
    for ending, method in _PARTS.items():
        if found := [name for name in names if name.endswith(ending)]:
            raise UnsupportedError(
                f"the checkpoint is quantized ({method}): it holds {_some(found)}", at=at, remedy=_UNQUANTIZED
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
    said = str(bits) if bits else " and ".join(map(str, sorted(_bits_of_groups(found.get("config_groups")))))
    return f"{method}, {said} bits" if said else method


def _bits_of_groups(groups: Any) -> set[int]:
    """The bits of all weights, as compressed-tensors says them: by groups of layers."""
    listed = groups.values() if isinstance(groups, Mapping) else ()
    weights = [group.get("weights") for group in listed if isinstance(group, Mapping)]
    found = [weight.get("num_bits") for weight in weights if isinstance(weight, Mapping)]
    return {bits for bits in found if isinstance(bits, int)}


def _some(names: Collection[str]) -> str:
    first = sorted(names)[:3]
    return ", ".join(first) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
