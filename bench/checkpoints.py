"""Checkpoints of real geometry and random weights, streamed to disk; no torch, a few MB of memory.

A checkpoint's layout comes from its config alone. One random block is repeated inside each tensor, scaled by
1/sqrt(fan in); norms and scalars are 1.
"""

import copy
import json
import shutil
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from cabochon.gemma4.layout import Slot, layout

ROOT = Path(__file__).resolve().parents[1]
E2B = ROOT / "tests" / "data" / "geometries" / "e2b.json"
TOKENIZER = ROOT / "src" / "cabochon" / "demo" / "miniature" / "target"
TRAVELLERS = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
BLOCK = 1 << 20  # elements
SMALLEST = 2048  # the vocabulary of the tokenizer that travels along


def e2b(scale: float = 1.0) -> dict[str, Any]:
    """The published geometry, towers included: 10.2 GB in bf16."""
    return _scaled(json.loads(E2B.read_text(encoding="utf-8")), scale)


def e2b_layers(scale: float = 1.0) -> dict[str, Any]:
    """All 35 layers of E2B at full size with a vocabulary of 32768: what decoding costs, without 7 GB of tables."""
    text = e2b()["text_config"] | {"vocab_size": 32768, "vocab_size_per_layer_input": 32768}
    return _scaled(text, scale)


def e2b_attention(scale: float = 1.0) -> dict[str, Any]:
    """All 35 layers of E2B with full attention and a feed-forward of 768, so that several fit in memory at once."""
    text = e2b()["text_config"] | {
        "vocab_size": SMALLEST,
        "vocab_size_per_layer_input": SMALLEST,
        "intermediate_size": 768,
    }
    return _scaled(text, scale)


def medium(scale: float = 1.0) -> dict[str, Any]:
    """35 layers, 874 M parameters, 1.75 GB in bf16."""
    text = e2b()["text_config"] | {
        "hidden_size": 1024,
        "hidden_size_per_layer_input": 128,
        "intermediate_size": 3072,
        "num_attention_heads": 4,
        "head_dim": 128,
        "global_head_dim": 256,
        "vocab_size": 53056,
        "vocab_size_per_layer_input": 53056,
    }
    return _scaled(text, scale)


def _scaled(config: dict[str, Any], scale: float) -> dict[str, Any]:
    """Vocabulary and feed-forward scaled, for trying the scripts out; everything else stays."""
    config = copy.deepcopy(config)
    text = config.get("text_config", config)
    smallest = {"vocab_size": SMALLEST, "vocab_size_per_layer_input": SMALLEST, "intermediate_size": 64}
    for key, least in smallest.items():
        text[key] = max(least, int(text[key] * scale) // 64 * 64)
    return config


def write(config: dict[str, Any], folder: Path, seed: int = 0) -> int:
    """Writes a bf16 checkpoint with a tokenizer; returns the bytes of its weights."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    for name in TRAVELLERS:
        shutil.copyfile(TOKENIZER / name, folder / name)
    shutil.copyfile(TOKENIZER.parent / "LICENSE.txt", folder / "LICENSE")
    slots = layout(config)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(header(config, slots))
        rng = np.random.default_rng(seed)
        for slot in slots:
            file.writelines(_bytes(slot, rng))
    return sum(2 * slot.elements for slot in slots)


def header(config: dict[str, Any], slots: list[Slot]) -> bytes:
    """The head of a safetensors file that holds these tensors in bf16, one after the other."""
    nested = "text_config" in config
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for slot in slots:
        tower = slot.name.split(".")[1] in ("vision_tower", "embed_vision", "audio_tower", "embed_audio")
        name = (
            "model.language_model." + slot.name.removeprefix("model.") if nested and not tower else slot.name
        )
        end = offset + 2 * slot.elements
        entries[name] = {"dtype": "BF16", "shape": list(slot.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _bytes(slot: Slot, rng: np.random.Generator) -> Iterator[bytes]:
    count = slot.elements
    if len(slot.shape) < 2:
        yield np.ones(count, ml_dtypes.bfloat16).tobytes()
        return
    fan_in = prod(slot.shape[1:])
    block = rng.standard_normal(min(count, BLOCK), dtype=np.float32) / np.sqrt(fan_in)
    data = block.astype(ml_dtypes.bfloat16).tobytes()
    whole, rest = divmod(2 * count, len(data))
    for _ in range(whole):
        yield data
    yield data[:rest]
