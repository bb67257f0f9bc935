"""Whole models in memory for tests: components traced, held in sessions, fed; and the NumPy oracle of them."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

import cabochon.gemma4.trace as trace
import checkpoints
import oracle
from cabochon.checkpoint import open_checkpoint
from cabochon.dialects import TARGETS
from cabochon.gemma4.full_config import read_full_config
from cabochon.gemma4.full_names import full_tensors, tower_shapes
from cabochon.gemma4.names import expected_shapes
from cabochon.recipes import PRECISIONS
from graphs import NUMPY, Past

ALL = ("default", "onnx-standard", "cuda", "webgpu")
ANYWHERE, LEFT_JUSTIFIED = ALL[:2], ALL[2:]
TARGET = checkpoints.TINY / "target"
REF = checkpoints.TINY / "ref"
TEXT = "model.language_model."
Arrays = dict[str, np.ndarray]


class Components:
    """The components of a checkpoint for a target, ready to run."""

    def __init__(self, folder: Path, target: str, precision: str = "f32") -> None:
        checkpoint = open_checkpoint(folder)
        self.config = read_full_config(checkpoint.config)
        self.text, self.dtype = self.config.text, NUMPY[precision]
        self.target, self.precision = TARGETS[target], PRECISIONS[precision]
        self.tensors = full_tensors(checkpoint.tensors, self.config).used
        self._models: dict[str, ir.Model] = {}
        self._sessions: dict[str, ort.InferenceSession] = {}

    def model(self, name: str) -> ir.Model:
        """A component, traced when it is first asked for: `trace_full` would trace all of them."""
        if name not in self._models:
            write, dialect = trace._writers(self.config, 0)[name], trace._dialect(name, self.target)
            self._models[name] = trace._written(name, write, dialect, self.tensors, self.precision, {})
        return self._models[name]

    def run(self, name: str, feeds: Arrays) -> Arrays:
        """What a component makes, by port."""
        if name not in self._sessions:
            self._sessions[name] = session(self.model(name))
        opened = self._sessions[name]
        return dict(zip([v.name for v in opened.get_outputs()], opened.run(None, feeds), strict=True))

    def ports(self, name: str) -> list[str]:
        return [str(v.name) for v in self.model(name).graph.inputs]

    def images(self, pixels: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Features of images [images, patches, ...], all rows."""
        feeds = {"pixel_values": pixels, "pixel_position_ids": places}
        return self.run("vision_encoder", feeds)["image_features"]

    def clips(self, features: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Features of clips [clips, time, ...], all rows."""
        feeds = {"input_features": features, "input_features_mask": mask}
        return self.run("audio_encoder", feeds)["audio_features"]

    def embed(self, ids: Any, images: np.ndarray | None = None, sounds: np.ndarray | None = None) -> Arrays:
        """inputs_embeds, and per_layer_inputs where the model has them, of ids [batch, tokens]."""
        feeds: Arrays = {"input_ids": np.atleast_2d(np.asarray(ids, np.int64))}
        given = {"image_features": images, "audio_features": sounds}
        for name in self.ports("embedding")[1:]:
            rows = given[name]
            feeds[name] = np.zeros((0, self.text.hidden), self.dtype) if rows is None else rows
        return self.run("embedding", feeds)

    def decode(
        self, ids: Any, fed: Arrays, mask: Any = None, past: Past | None = None, keep: int | None = None
    ) -> Arrays:
        """One step of the decoder with what the embedding made of the ids."""
        ids = np.atleast_2d(np.asarray(ids, np.int64))
        held = next(iter(past.values()))[0].shape[2] if past else 0
        mask = np.ones((len(ids), held + ids.shape[1]), np.int64) if mask is None else np.atleast_2d(mask)
        feeds = {**fed, "attention_mask": mask.astype(np.int64)}
        if "input_ids" in self.ports("decoder"):
            feeds["input_ids"] = ids
        for i in self.text.owners:
            layer = self.text.layers[i]
            empty = np.zeros((len(ids), layer.kv_heads, 0, layer.head_dim), self.dtype)
            key, value = past[i] if past else (empty, empty)
            feeds |= {f"past_key_values.{i}.key": key, f"past_key_values.{i}.value": value}
        if keep is not None:
            feeds["logits_to_keep"] = np.array(keep)
        return self.run("decoder", feeds)

    def forward(
        self, ids: Any, images: np.ndarray | None = None, sounds: np.ndarray | None = None, **how: Any
    ) -> Arrays:
        """Embedding and decoder in one."""
        return self.decode(ids, self.embed(ids, images, sounds), **how)

    def past(self, outputs: Arrays) -> Past:
        """The caches that a step left."""
        return {i: (outputs[f"present.{i}.key"], outputs[f"present.{i}.value"]) for i in self.text.owners}


def session(model: ir.Model) -> ort.InferenceSession:
    content = ir.to_proto(model).SerializeToString()
    onnx.checker.check_model(content, full_check=True)
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])


class Truth:
    """The NumPy reference over the same checkpoint: one image, one clip, one row of tokens at a time."""

    def __init__(self, folder: Path) -> None:
        self.raw = json.loads((folder / "config.json").read_bytes())
        self.weights = oracle.Weights(str(folder))
        self.geometry = oracle.Geometry(self.raw["text_config"])
        self.tokens = {name: self.raw.get(f"{name}_token_id") for name in ("image", "video", "audio")}

    @cached_property
    def bidirectional(self) -> bool:
        return self.raw["text_config"].get("use_bidirectional_attention") == "vision"

    def soft(self, pixels: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Soft tokens of one image before they are projected."""
        return oracle.vision(self.raw["vision_config"], self.weights, "model.vision_tower.", pixels, places)

    def images(self, pixels: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Features of images, all rows."""
        soft = np.concatenate([self.soft(*each) for each in zip(pixels, places, strict=True)])
        return self._projected(soft, "vision")

    def clips(self, features: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Features of clips, all rows."""
        config, kept = self.raw["audio_config"], []
        for each in zip(features, mask, strict=True):
            hidden, real = oracle.audio(config, self.weights, "model.audio_tower.", *each)
            kept.append(hidden[real])
        return self._projected(np.concatenate(kept), "audio")

    def _projected(self, rows: np.ndarray, kind: str) -> np.ndarray:
        normed = oracle.rms(rows, eps=self.raw[f"{kind}_config"]["rms_norm_eps"])
        return oracle.lin(normed, self.weights(f"model.embed_{kind}.embedding_projection.weight"))

    def embed(
        self, ids: Any, images: np.ndarray | None = None, sounds: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Embeddings [S, H] and per-layer inputs [S, L, P] of one row of ids."""
        ids = np.asarray(ids)
        vision = np.isin(ids, [self.tokens["image"], self.tokens["video"]])
        sound = ids == self.tokens["audio"]
        safe = np.where(vision | sound, self.raw["text_config"]["pad_token_id"], ids)
        x = oracle.embed(self.geometry, self.weights, TEXT, safe)
        for here, rows in ((vision, images), (sound, sounds)):
            assert here.sum() == (0 if rows is None else len(rows)), "as many features as placeholders"
            if rows is not None:
                x[here] = rows
        return x, oracle.ple_inputs(self.geometry, self.weights, TEXT, safe, x)

    def logits(
        self, ids: Any, images: np.ndarray | None = None, sounds: np.ndarray | None = None
    ) -> np.ndarray:
        """Logits [S, V] of one row of ids."""
        ids = np.asarray(ids)
        x, extras = self.embed(ids, images, sounds)
        blocks = None
        if self.bidirectional:
            blocks = oracle.blocks_of(np.isin(ids, [self.tokens["image"], self.tokens["video"]]).astype(int))
        positions = np.arange(len(ids))
        hidden, _ = oracle.decoder(self.geometry, self.weights, TEXT, x, extras, positions, blocks=blocks)
        if "lm_head.weight" not in self.weights:
            return oracle.head(self.geometry, self.weights, TEXT, hidden)
        logits, cap = (
            hidden @ self.weights("lm_head.weight").T,
            self.raw["text_config"]["final_logit_softcapping"],
        )
        return logits if cap is None else np.tanh(logits / cap) * cap


def picture(truth: Truth, columns: int, rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A random image of so many patches: pixels [P, 3·p·p] from 0 to 1, places [P, 2]. Those of the unified model are
    as large as what others pool."""
    vision = truth.raw["vision_config"]
    unified = vision["model_type"] == "gemma4_unified_vision"
    size = 3 * (vision["patch_size"] * (vision["pooling_kernel_size"] if unified else 1)) ** 2
    pixels = np.random.default_rng([seed, columns, rows]).random((columns * rows, size), np.float32)
    x, y = np.meshgrid(np.arange(columns), np.arange(rows))
    return pixels, np.stack([x.ravel(), y.ravel()], axis=-1)


def padded(images: Sequence[tuple[np.ndarray, np.ndarray]], patches: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of any size in one call, with padding behind each."""
    pixels = np.zeros((len(images), patches, images[0][0].shape[1]), np.float32)
    places = np.full((len(images), patches, 2), -1)
    for i, (its, at) in enumerate(images):
        pixels[i, : len(its)], places[i, : len(at)] = its, at
    return pixels, places


BIG = {  # the 31B kind: the keys of its text_config that differ from the tiny target's
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
    "num_kv_shared_layers": 0,
    "num_key_value_heads": 2,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "use_double_wide_mlp": False,
    "hidden_size_per_layer_input": 0,
    "use_bidirectional_attention": "vision",
}


def random_full(
    folder: Path,
    seed: int = 0,
    *,
    text: dict[str, Any] | None = None,
    vision: dict[str, Any] | None = None,
    audio: dict[str, Any] | None = None,
    without: Sequence[str] = (),
) -> Path:
    """The tiny target with other keys in its sections, sections `without`, and random weights that fit."""
    checkpoints.copy(folder, "target")
    raw = checkpoints.tiny_config("target")
    raw |= {name: None for name in without}
    raw["text_config"] = checkpoints.published({"text_config": raw["text_config"]})["text_config"]
    for name, changes in (("text", text), ("vision", vision), ("audio", audio)):
        if changes:
            raw[f"{name}_config"] |= changes
    checkpoints.write_config(folder, raw)
    config, rng = read_full_config(raw), np.random.default_rng(seed)
    shapes = {
        name.replace("model.", TEXT, 1): shape for name, shape in expected_shapes(config.text).items()
    } | tower_shapes(config)
    entries = {
        name: ("F32", list(shape), np.asarray(_weight(rng, name, shape), np.float32).tobytes())
        for name, shape in shapes.items()
    }
    checkpoints.write(folder / "model.safetensors", entries)
    return folder


def big(folder: Path, seed: int = 0) -> Path:
    """The 31B kind: bidirectional vision, keys for values, standardized; no audio, no per-layer inputs, no experts."""
    vision = dict(standardize=True, use_clipped_linears=False)
    return random_full(folder, seed, text=BIG, vision=vision, without=["audio_config"])


def _weight(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Updates of about half the size of what they are added to, scores of unit size, bounds that clip."""
    values = rng.standard_normal(shape)
    if not shape:
        return (-1 if name.endswith("min") else 1) * (2 + abs(values) / 2)
    if name.endswith("std_scale"):
        return 0.3 + 0.05 * values
    if "per_dim" in name or "bias" in name:
        return values * 0.5
    if len(shape) > 1:
        spread = np.exp(0.3 * rng.standard_normal((shape[0], 1))) if "embed_tokens" in name else 1.0
        return values / np.prod(shape[1:]) ** 0.5 * spread
    if name.endswith("language_model.norm.weight"):
        return 8 * rng.choice([-1, 1], shape)  # else a tied head says the last token again
    gain = 0.55 if "post_" in name else 1.0
    if "q_norm" in name or "k_norm" in name:
        gain = shape[0] ** -0.25
    return gain * (1 + 0.15 * values)
