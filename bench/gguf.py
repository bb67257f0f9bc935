"""The text model as a GGUF file that llama.cpp loads and quantizes: bf16 as it is stored, or f32; nothing but numpy.

Names and keys are those of llama.cpp's own converter for Gemma 4 (`Gemma4Model`); the file holds no tokenizer, so
ids are all that it can be asked with. The layout is that of the format's version 3.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from cabochon.checkpoint import open_checkpoint
from cabochon.gemma4.config import FULL, SLIDING, TextConfig, read_text_config
from cabochon.gemma4.names import text_tensors

ALIGNMENT = 32
PIECE = 1 << 22  # numbers
UNROTATED = 1e30  # a factor that leaves a pair where it is
TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    30: ("BF16", 1, 2),
}  # name, numbers of a block, bytes of a block
F32, BF16 = 0, 30
WHOLE = {
    "model.embed_tokens": "token_embd",
    "model.embed_tokens_per_layer": "per_layer_token_embd",
    "model.per_layer_model_projection": "per_layer_model_proj",
    "model.per_layer_projection_norm": "per_layer_proj_norm",
    "model.norm": "output_norm",
    "lm_head": "output",
}
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_proj": "attn_k",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_feedforward_layernorm": "post_ffw_norm",
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
    "layer_scalar": "layer_output_scale",
}


@dataclass(frozen=True)
class Held:
    """A tensor in a file: the name of its type, its numbers and bytes."""

    type: str
    parameters: int
    nbytes: int


def write(source: Path, out: Path, *, f32: bool = False) -> Path:
    """The text model of a checkpoint; what has one dimension is always f32, as the converter has it."""
    read = open_checkpoint(source)
    config = read_text_config(read.config)
    tensors = {
        renamed(name): tensor.array() for name, tensor in text_tensors(read.tensors, config).used.items()
    }
    tensors["rope_freqs.weight"] = _factors(config)
    types = {name: F32 if f32 or array.ndim == 1 else BF16 for name, array in tensors.items()}
    with out.open("wb") as file:
        file.write(_head(_keys(config, f32), tensors, types))
        for name, array in tensors.items():
            _pad(file)
            file.writelines(_pieces(array, types[name]))
    return out


def renamed(name: str) -> str:
    """Our name of a weight, in llama.cpp's words."""
    parts = name.removesuffix(".weight").split(".")
    if parts[:2] == ["model", "layers"]:
        return f"blk.{parts[2]}.{LAYER['.'.join(parts[3:])]}.weight"
    return f"{WHOLE['.'.join(parts)]}.weight"


def read(path: Path) -> dict[str, Held]:
    """What a file holds, by name."""
    with path.open("rb") as file:
        _, _, tensors, keys = _unpacked(file, "<4sIQQ")
        for _ in range(keys):
            _string(file)
            _skip(file, *_unpacked(file, "<I"))
        return dict(_described(file) for _ in range(tensors))


def _described(file: BinaryIO) -> tuple[str, Held]:
    name = _string(file)
    (dimensions,) = _unpacked(file, "<I")
    count = prod(_unpacked(file, f"<{dimensions}Q"))
    kind, _ = _unpacked(file, "<IQ")
    spelled, block, nbytes = TYPES[kind]
    return name, Held(spelled, count, count // block * nbytes)


def _keys(config: TextConfig, f32: bool) -> dict[str, Any]:
    kinds, layers = config.kinds, config.layers
    full, sliding = kinds[FULL], kinds[SLIDING]
    own = {
        "block_count": len(layers),
        "context_length": config.max_positions,
        "embedding_length": config.hidden,
        "embedding_length_per_layer_input": config.per_layer_input,
        "feed_forward_length": [layer.intermediate for layer in layers],
        "vocab_size": config.vocab,
        "final_logit_softcapping": float(config.softcap or 0),
        "attention.head_count": config.heads,
        "attention.head_count_kv": [layer.kv_heads for layer in layers],
        "attention.key_length": full.head_dim,
        "attention.value_length": full.head_dim,
        "attention.key_length_swa": sliding.head_dim,
        "attention.value_length_swa": sliding.head_dim,
        "attention.layer_norm_rms_epsilon": config.eps,
        "attention.shared_kv_layers": sum(layer.shares_kv for layer in layers),
        "attention.sliding_window": config.window,
        "attention.sliding_window_pattern": [layer.kind == SLIDING for layer in layers],
        "rope.freq_base": config.rope[FULL].theta,
        "rope.freq_base_swa": config.rope[SLIDING].theta,
        "rope.dimension_count": full.head_dim,
        "rope.dimension_count_swa": sliding.head_dim,
    }
    return {
        "general.architecture": "gemma4",
        "general.file_type": 0 if f32 else 32,
        **{f"gemma4.{key}": value for key, value in own.items()},
        "tokenizer.ggml.model": "none",
    }


def _factors(config: TextConfig) -> np.ndarray:
    """What frequencies of full layers are divided by, f32 [head_dim / 2]."""
    pairs = config.kinds[FULL].head_dim // 2
    rope = config.rope[FULL]
    return np.where(np.arange(pairs) < int(pairs * rope.partial), rope.factor, UNROTATED).astype(np.float32)


def _head(keys: Mapping[str, Any], tensors: Mapping[str, np.ndarray], types: Mapping[str, int]) -> bytes:
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys))
    head += b"".join(_text(key) + _value(value) for key, value in keys.items())
    offset = 0
    for name, array in tensors.items():
        shape = array.shape[::-1]
        head += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, types[name], offset)
        offset += -(-array.size * TYPES[types[name]][2] // ALIGNMENT) * ALIGNMENT
    return head


def _pieces(array: np.ndarray, kind: int) -> Iterator[bytes]:
    flat = array.reshape(-1)
    for start in range(0, flat.size, PIECE):
        piece = flat[start : start + PIECE]
        as_it_is = kind == BF16 and piece.dtype.name == "bfloat16"
        yield (piece if as_it_is else piece.astype(np.float32 if kind == F32 else "bfloat16")).tobytes()


def _pad(file: BinaryIO) -> None:
    file.write(b"\0" * (-file.tell() % ALIGNMENT))


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, list):
        return struct.pack("<I", 9) + _value(value[0])[:4] + struct.pack("<Q", len(value)) + b"".join(
            _value(item)[4:] for item in value
        )  # fmt: skip
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    return struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value)


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == 8:
        _string(file)
    elif kind == 9:
        inner, count = _unpacked(file, "<IQ")
        for _ in range(count):
            _skip(file, inner)
    else:
        file.seek({0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1}.get(kind, 8), 1)


def _string(file: BinaryIO) -> str:
    (length,) = _unpacked(file, "<Q")
    return file.read(length).decode()


def _unpacked(file: BinaryIO, layout: str) -> tuple[Any, ...]:
    return struct.unpack(layout, file.read(struct.calcsize(layout)))
