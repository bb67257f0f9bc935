"""Drafters in memory for tests: traced, held in an onnxruntime session, stepped, and the NumPy oracle of a step."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

import checkpoints
import oracle
from cabochon.checkpoint import Tensor, open_checkpoint
from cabochon.dialects import TARGETS
from cabochon.gemma4 import (
    DrafterConfig,
    drafter_shapes,
    drafter_tensors,
    read_drafter_config,
    trace_drafter,
)
from cabochon.recipes import PRECISIONS
from graphs import NUMPY

KINDS = ("full_attention", "sliding_attention")
Shared = Mapping[str, tuple[np.ndarray, np.ndarray]]  # keys and values of each kind, [B, n, C, D]
ORDERING = "masked_embedding.token_ordering"


def traced(folder: Path, target: str, precision: str = "f32") -> ir.Model:
    checkpoint = open_checkpoint(folder)
    config = read_drafter_config(checkpoint.config)
    tensors = drafter_tensors(checkpoint.tensors, config).used
    return trace_drafter(config, tensors, TARGETS[target], PRECISIONS[precision])


def imagined(config: DrafterConfig) -> dict[str, Tensor]:
    """Tensors that lie nowhere: enough to trace."""
    return {
        name: Tensor(name, "I64" if name == ORDERING else "BF16", shape, Path("nowhere.safetensors"), 0, 0)
        for name, shape in drafter_shapes(config).items()
    }


def random_drafter(folder: Path, top: Mapping[str, Any] | None = None, seed: int = 0, **text: Any) -> Path:
    """The tiny drafter's config with other keys, and random weights that fit it."""
    checkpoints.copy(folder, "assistant")
    raw = checkpoints.published(checkpoints.tiny_config("assistant")) | dict(top or {})
    raw["text_config"] |= text
    checkpoints.write_config(folder, raw)
    rng = np.random.default_rng(seed)

    def stored(name: str, shape: tuple[int, ...]) -> checkpoints.Entry:
        if name == ORDERING:
            return "I64", list(shape), rng.permutation(shape[0]).tobytes()
        values = rng.standard_normal(shape)
        if len(shape) == 2:
            values /= shape[1] ** 0.5
        else:  # scores of unit size whatever the head's size
            values = (shape[0] ** -0.25 if "q_norm" in name else 1.0) * (1 + 0.15 * values)
        return "F32", list(shape), values.astype(np.float32).tobytes()

    shapes = drafter_shapes(read_drafter_config(raw))
    checkpoints.write(
        folder / "model.safetensors", {name: stored(name, shape) for name, shape in shapes.items()}
    )
    return folder


def recorded(steps: Any, i: int, truth: "Truth") -> tuple[np.ndarray, Shared]:
    """Inputs and keys of step `i` that transformers recorded, all keys real, and the query behind them.

    After a rejection transformers shows its drafter the key of the first rejected token too, and holds the query at
    that token's position: one earlier than behind all the keys. Only distances count, so every key is turned by what
    is missing.
    """
    late = steps[f"{i}.kv_full_attention_key"].shape[2] - int(steps[f"{i}.position_ids"].item())
    assert late in (0, 1)
    shared = {}
    for kind in KINDS:
        angles = np.tile(late * truth.geometry.inv[kind], 2)
        key, value = (steps[f"{i}.kv_{kind}_{part}"] for part in ("key", "value"))
        shared[kind] = oracle.rot(key, np.cos(angles), np.sin(angles)), value
    return steps[f"{i}.inputs_embeds"], shared


class Drafter:
    """A checkpoint's drafter for a target, ready to run."""

    def __init__(self, folder: Path, target: str, precision: str = "f32") -> None:
        self.dtype = NUMPY[precision]
        content = ir.to_proto(traced(folder, target, precision)).SerializeToString()
        onnx.checker.check_model(content, full_check=True)
        options = ort.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, 1
        self.session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(self, inputs: np.ndarray, shared: Shared, mask: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Logits [B, S, V] and projected states [B, S, M] of inputs [B, S, 2M]. Without a mask every key is real."""
        full = shared["full_attention"][0]
        mask = np.ones((len(full), full.shape[2])) if mask is None else np.atleast_2d(mask)
        feeds = {"inputs_embeds": inputs.astype(self.dtype), "attention_mask": mask.astype(np.int64)}
        for kind, pair in shared.items():
            for part, values in zip(("key", "value"), pair, strict=True):
                feeds[f"shared_kv.{kind}.{part}"] = values.astype(self.dtype)
        logits, state = self.session.run(["logits", "projected_state"], feeds)
        return logits, state


class Truth:
    """The NumPy reference of one step of one row, over the same checkpoint."""

    def __init__(self, folder: Path) -> None:
        self.raw = json.loads((folder / "config.json").read_bytes())
        self.weights = oracle.Weights(str(folder))
        text = self.raw["text_config"]
        self.geometry = oracle.Geometry(text | {"num_kv_shared_layers": text["num_hidden_layers"]})

    @property
    def backbone(self) -> int:
        return self.raw["backbone_hidden_size"]

    def keys(self, rng: np.random.Generator, length: int, sliding: int | None = None) -> Shared:
        """Keys and values of one row at random, as a target's are in size."""
        g, found = self.geometry, {}
        for kind in sorted(set(g.types)):
            i = g.types.index(kind)
            count = length if kind == "full_attention" or sliding is None else sliding
            shape = (1, g.kv[i], count, g.hd[i])
            found[kind] = (
                rng.standard_normal(shape).astype(np.float32) * g.hd[i] ** -0.25,
                rng.standard_normal(shape).astype(np.float32),
            )
        return found

    def step(
        self, inputs: np.ndarray, shared: Shared, mask: Any = None, position: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Logits [V] and projected state [M] of one query: inputs [2M], shared of one row, its mask [C]."""
        full = shared["full_attention"][0].shape[2]
        real = np.ones(full, bool) if mask is None else np.asarray(mask[:full], bool)
        position = int(real.sum()) if position is None else position
        seen = {
            kind: tuple(x[0][:, real[full - x.shape[2] :]] for x in pair) for kind, pair in shared.items()
        }
        logits, state = oracle.drafter_step(
            self.raw, self.geometry, self.weights, inputs[None], np.array([position]), seen
        )
        return logits, state[0]

    def scored(self, logits: np.ndarray) -> np.ndarray:
        """The tokens that were scored: all by a dense head, those above the rest by an ordered one."""
        return (logits > logits.min()) | (not self.raw["use_ordered_embeddings"])
