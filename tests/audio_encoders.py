"""Audio encoders in memory for tests: traced, held in an onnxruntime session, fed; and the NumPy oracle of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

import checkpoints
import oracle
from cabochon.checkpoint import Tensor, open_checkpoint
from cabochon.dialects import TARGETS
from cabochon.gemma4 import audio
from cabochon.gemma4.audio import audio_encoder, tower
from cabochon.gemma4.audio_config import AudioConfig, read_audio_config
from cabochon.gemma4.audio_names import audio_shapes
from cabochon.graph import Scope
from cabochon.recipes import PRECISIONS

TOWER, PROJECTION = "model.audio_tower.", "model.embed_audio.embedding_projection.weight"


def configured(folder: Path) -> tuple[AudioConfig, int]:
    """The encoder of a checkpoint, and the width of the text model behind it."""
    raw = json.loads((folder / "config.json").read_bytes())
    config = read_audio_config(raw)
    assert config is not None
    return config, raw["text_config"]["hidden_size"]


def traced(
    config: AudioConfig, width: int, tensors: dict[str, Tensor], target: str, precision: str
) -> ir.Model:
    g = TARGETS[target].drafter_dialect("audio_encoder")
    audio_encoder(g, Scope(g, tensors, PRECISIONS[precision]), config, width)
    return g.model({})


def traced_tower(folder: Path, target: str, precision: str) -> ir.Model:
    """The encoder without its projection: every row of every clip goes out."""
    config, _ = configured(folder)
    g = TARGETS[target].drafter_dialect("audio_tower")
    w = Scope(g, open_checkpoint(folder).tensors, PRECISIONS[precision])
    features = g.input("input_features", "f32", "clips", "time", config.features)
    mask = g.input("input_features_mask", "bool", "clips", "time")
    hidden, real = tower(g, w / "model" / "audio_tower", config, features, mask)
    g.output("hidden", hidden, "clips", "frames", config.output)
    g.output("real", real, "clips", "frames")
    return g.model({})


def imagined(config: AudioConfig, width: int) -> dict[str, Tensor]:
    """Tensors that lie nowhere: enough to trace."""
    return {
        name: Tensor(name, "BF16", shape, Path("nowhere.safetensors"), 0, 0)
        for name, shape in audio_shapes(config, width).items()
    }


def session(model: ir.Model) -> ort.InferenceSession:
    content = ir.to_proto(model).SerializeToString()
    onnx.checker.check_model(content, full_check=True)
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    return ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def random_encoder(folder: Path, seed: int = 0, loud: float = 1.0, **audio: Any) -> Path:
    """The tiny checkpoint's config with other keys of audio_config, and random weights that fit it.

    `loud` is a factor on queries and keys: scores grow with its square.
    """
    folder.mkdir(parents=True, exist_ok=True)
    raw = checkpoints.tiny_config("target")
    raw["audio_config"] |= audio
    checkpoints.write_config(folder, raw)
    rng = np.random.default_rng(seed)

    def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if "_m" in name and shape == ():  # bounds
            return np.array((-1 if name.endswith("min") else 1) * rng.uniform(2.0, 3.0))
        values = rng.standard_normal(shape)
        if len(shape) == 1:
            return values * 0.5 if "per_dim" in name or "bias" in name else 1 + 0.15 * values
        values /= np.prod(shape[1:]) ** 0.5
        return values * loud if any(part in name for part in ("q_proj", "k_proj")) else values

    config, width = configured(folder)
    entries = {
        name: ("F32", list(shape), weight(name, shape).astype(np.float32).tobytes())
        for name, shape in audio_shapes(config, width).items()
    }
    checkpoints.write(folder / "model.safetensors", entries)
    return folder


class Encoder:
    """A checkpoint's audio encoder for a target, ready to run."""

    def __init__(self, folder: Path, target: str, precision: str = "f32") -> None:
        config, width = configured(folder)
        g = TARGETS[target].drafter_dialect("audio_encoder")
        w = Scope(g, open_checkpoint(folder).tensors, PRECISIONS[precision])
        given = list[Any]()  # what the tower gives: a graph of its own for that would take as long again
        with patch.object(audio, "tower", lambda *how: given.extend(tower(*how)) or tuple(given)):
            audio_encoder(g, w, config, width)
        g.output("hidden", given[0], "clips", "frames", config.output)
        g.output("real", given[1], "clips", "frames")
        self.whole = session(g.model({}))

    def run(self, features: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Rows of all clips [tokens, width] of features [clips, time, mels]."""
        fed = {"input_features": features, "input_features_mask": mask}
        return self.whole.run(["audio_features"], fed)[0]

    def hidden(self, features: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What the tower alone says of every frame, and which are real."""
        fed = {"input_features": features, "input_features_mask": mask}
        hidden, real = self.whole.run(["hidden", "real"], fed)
        return hidden, real


class Truth:
    """The NumPy reference over the same checkpoint, one clip at a time; what it said of a clip it says again."""

    def __init__(self, folder: Path) -> None:
        self.said: dict[tuple[bytes | str, ...], tuple[np.ndarray, np.ndarray]] = {}
        self.raw = json.loads((folder / "config.json").read_bytes())["audio_config"]
        self.weights = oracle.Weights(str(folder))

    def hidden(self, features: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        clip = features.tobytes(), mask.tobytes(), json.dumps(self.raw)
        if clip not in self.said:
            self.said[clip] = oracle.audio(self.raw, self.weights, TOWER, features, mask)
        hidden, real = self.said[clip]
        return hidden.copy(), real.copy()

    def run(self, features: np.ndarray, mask: np.ndarray) -> np.ndarray:
        hidden, real = self.hidden(features, mask)
        rows = oracle.rms(hidden, eps=self.raw["rms_norm_eps"])
        return oracle.lin(rows, self.weights(PROJECTION))[real]


def sound(*shape: int, mels: int = 16, seed: int = 0) -> np.ndarray:
    """Features of the size that log-mel features have."""
    return np.random.default_rng(seed).normal(-2, 2, (*shape, mels)).astype(np.float32)


def together(clips: Sequence[np.ndarray], more: int = 0, fill: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Clips of different lengths in one call: features and mask."""
    longest = max(map(len, clips)) + more
    features = np.full((len(clips), longest, clips[0].shape[1]), fill, np.float32)
    mask = np.zeros((len(clips), longest), bool)
    for i, clip in enumerate(clips):
        features[i, : len(clip)], mask[i, : len(clip)] = clip, True
    return features, mask
