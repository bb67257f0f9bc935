"""Checkpoints in which mistakes show that others would hide."""

import re
from pathlib import Path
from typing import Any

import numpy as np

import checkpoints
from full_graphs import random_full

__all__ = ["last_layers", "loud"]

Tensors = dict[str, checkpoints.Entry]
LAYER = re.compile(r"(?<=\.language_model\.layers\.)\d+(?=\.)")


def loud(folder: Path) -> Path:
    """Scores beyond the cap, and an epsilon that tells one norm from another."""
    random_full(folder, 7, audio=dict(rms_norm_eps=0.02))

    def louder(tensors: Tensors) -> Tensors:
        for name, (dtype, shape, data) in tensors.items():
            if "audio_tower" in name and name.endswith(("q_proj.linear.weight", "k_proj.linear.weight")):
                tensors[name] = dtype, shape, (np.frombuffer(data, np.float32) * np.float32(4)).tobytes()
        return tensors

    return checkpoints.change(folder, louder)


def last_layers(folder: Path, name: str, count: int, **text: Any) -> Path:
    """A tiny checkpoint without its first layers, and with other keys in its text_config."""
    raw = checkpoints.published(checkpoints.tiny_config(name))
    its = raw["text_config"]
    first = its["num_hidden_layers"] - count
    its |= dict(num_hidden_layers=count, layer_types=its["layer_types"][first:]) | text
    checkpoints.copy(folder, name)
    checkpoints.write_config(folder, raw)

    def renumbered(tensors: Tensors) -> Tensors:
        layers = {tensor: LAYER.search(tensor) for tensor in tensors}
        return {
            tensor if found is None else LAYER.sub(str(int(found[0]) - first), tensor): tensors[tensor]
            for tensor, found in layers.items()
            if found is None or int(found[0]) >= first
        }

    return checkpoints.change(folder, renumbered)
