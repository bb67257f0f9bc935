"""Graphs in memory for tests: traced, held in an onnxruntime session, fed, and compared with the NumPy oracle."""

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
from cabochon.gemma4 import TextConfig, expected_shapes, read_text_config, text_tensors, trace_text
from cabochon.recipes import PRECISIONS

NUMPY = {"f32": np.float32, "f16": np.float16}
Past = Mapping[int, tuple[np.ndarray, np.ndarray]]


def imagined(config: TextConfig) -> dict[str, Tensor]:
    """Tensors of a real geometry that lie nowhere: enough to trace, since tracing reads no weight."""
    sizes = {name: int(np.prod(shape, dtype=np.int64)) for name, shape in expected_shapes(config).items()}
    return {
        name: Tensor(name, "BF16", shape, Path("nowhere.safetensors"), 0, 2 * sizes[name])
        for name, shape in expected_shapes(config).items()
    }


def random_checkpoint(folder: Path, seed: int = 0, **changes: Any) -> Path:
    """The tiny text checkpoint's config with other keys, and random weights that fit it."""
    checkpoints.copy(folder, "text")
    raw = checkpoints.published(checkpoints.tiny_config("text")) | changes
    checkpoints.write_config(folder, raw)
    rng = np.random.default_rng(seed)

    def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if len(shape) == 2:
            return rng.standard_normal(shape) / shape[1] ** 0.5
        gain = 4.0 if name == "model.norm.weight" else 0.5 if "post_" in name else 1.0
        if "q_norm" in name or "k_norm" in name:  # scores of unit size whatever the head's size: else chaos
            gain = shape[0] ** -0.25
        return gain * (1 + 0.15 * rng.standard_normal(shape))

    shapes = expected_shapes(read_text_config(raw))
    entries = {
        name: ("F32", list(shape), weight(name, shape).astype(np.float32).tobytes())
        for name, shape in shapes.items()
    }
    checkpoints.write(folder / "model.safetensors", entries)
    return folder


class Graph:
    """A checkpoint's decoder for a target, ready to run."""

    def __init__(self, folder: Path, target: str, precision: str = "f32", keep: int = 0) -> None:
        checkpoint = open_checkpoint(folder)
        self.config = read_text_config(checkpoint.config)
        self.dtype = NUMPY[precision]
        tensors = text_tensors(checkpoint.tensors, self.config).used
        self.model = trace_text(
            self.config, tensors, TARGETS[target], PRECISIONS[precision], logits_to_keep=keep
        )
        content = ir.to_proto(self.model).SerializeToString()
        onnx.checker.check_model(content, full_check=True)
        options = ort.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, 1
        self.session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self.outputs = [output.name for output in self.session.get_outputs()]

    def run(
        self, ids: Any, mask: Any = None, past: Past | None = None, keep: int | None = None
    ) -> dict[str, np.ndarray]:
        ids = np.atleast_2d(np.asarray(ids, np.int64))
        held = next(iter(past.values()))[0].shape[2] if past else 0
        mask = np.ones((len(ids), held + ids.shape[1]), np.int64) if mask is None else np.atleast_2d(mask)
        feeds = {"input_ids": ids, "attention_mask": mask.astype(np.int64)}
        for i in self.config.owners:
            layer = self.config.layers[i]
            empty = np.zeros((len(ids), layer.kv_heads, 0, layer.head_dim), self.dtype)
            key, value = past[i] if past else (empty, empty)
            feeds |= {f"past_key_values.{i}.key": key, f"past_key_values.{i}.value": value}
        if keep is not None:
            feeds["logits_to_keep"] = np.array(keep)
        return dict(zip(self.outputs, self.session.run(None, feeds), strict=True))

    def past(self, outputs: Mapping[str, np.ndarray], evict: int = 0) -> Past:
        """The caches that a run left; sliding ones without their first `evict` entries."""
        return {
            i: tuple(
                outputs[f"present.{i}.{part}"][:, :, evict if self.config.layers[i].window else 0 :]
                for part in ("key", "value")
            )
            for i in self.config.owners
        }


class Oracle:
    """The NumPy reference over the same checkpoint, one row at a time; what it said of a row it says again."""

    def __init__(self, folder: Path) -> None:
        self.said: dict[tuple[int, ...], tuple[np.ndarray, np.ndarray]] = {}
        self.raw = json.loads((folder / "config.json").read_bytes())
        self.weights = oracle.Weights(str(folder))
        self.geometry = oracle.Geometry(self.raw)

    def run(self, ids: Any, past: Past | None = None, start: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Logits [S, V] and the last hidden state [S, H]."""
        if past is not None or start:
            return self._run(ids, past, start)
        row = tuple(map(int, ids))
        if row not in self.said:
            self.said[row] = self._run(ids, None, 0)
        logits, hidden = self.said[row]
        return logits.copy(), hidden.copy()

    def _run(self, ids: Any, past: Past | None, start: int) -> tuple[np.ndarray, np.ndarray]:
        ids = np.asarray(ids)
        x = oracle.embed(self.geometry, self.weights, "model.", ids)
        extras = oracle.ple_inputs(self.geometry, self.weights, "model.", ids, x)
        one_row = {i: (k[0], v[0]) for i, (k, v) in past.items()} if past else None
        positions = np.arange(start, start + len(ids))
        hidden, _ = oracle.decoder(self.geometry, self.weights, "model.", x, extras, positions, past=one_row)
        return self.head(hidden), hidden

    def head(self, hidden: np.ndarray) -> np.ndarray:
        if "lm_head.weight" not in self.weights:
            return oracle.head(self.geometry, self.weights, "model.", hidden)
        logits = hidden @ self.weights("lm_head.weight").T
        cap = self.raw["final_logit_softcapping"]
        return logits if cap is None else np.tanh(logits / cap) * cap


def difference(found: np.ndarray, expected: np.ndarray) -> float:
    """max |found - expected| / max |expected|"""
    assert found.shape == expected.shape, (found.shape, expected.shape)
    return float(np.abs(found.astype(np.float32) - expected).max() / np.abs(expected).max())
