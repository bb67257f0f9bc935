"""Full packages of the tiny checkpoint with its towers, each built once a session, and what was recorded of it."""

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

import cabochon
from cabochon.checkpoint import open_checkpoint
from cabochon.dialects import TARGETS
from cabochon.gemma4 import full_tensors, read_full_config, trace_full
from cabochon.recipes import PRECISIONS
from cabochon.runtime import Medium, Model
from full_graphs import big
from packages import TINY, Packages

REF = TINY / "ref"
SEED = 5  # of "big", as tests/record_full.py writes it
IMAGE, VIDEO, AUDIO = 8, 13, 11
BEGIN_IMAGE, END_IMAGE, BEGIN_AUDIO, END_AUDIO = 7, 9, 10, 12
GREEDY: Any = {"greedy": True, "ignore_eos": True, "max_new_tokens": 16}


def full(packages: Packages, target: str = "default", precision: str = "f32", source: str = "target") -> Path:
    """The package of the tiny target, or of "big", in which the tokens of an image see each other."""
    out = packages.root / f"full-{source}-{target}-{precision}"
    if not out.exists() and source == "target":
        cabochon.build(
            TINY / source, out, model="full", target=target, precision=precision, license="apache-2.0"
        )
    elif not out.exists():
        _traced(_big(packages), out, target, precision)
    return out


def _big(packages: Packages) -> Path:
    folder = packages.root / "big"
    return folder if folder.exists() else big(folder, SEED)


def _traced(source: Path, out: Path, target: str, precision: str) -> None:
    """The graphs and the files that a runtime reads, and nothing else of a package."""
    checkpoint = open_checkpoint(source)
    config = read_full_config(checkpoint.config)
    tensors = full_tensors(checkpoint.tensors, config).used
    shutil.copytree(source, out, ignore=shutil.ignore_patterns("*.safetensors"))
    for name, model in trace_full(config, tensors, TARGETS[target], PRECISIONS[precision]).items():
        (out / name).mkdir()
        (out / name / "model.onnx").write_bytes(ir.to_proto(model).SerializeToString())


@cache
def full_model(packages: Packages, *how: str) -> Model:
    """The loaded package."""
    return cabochon.load(full(packages, *how), threads=1, provider="cpu")


def fresh(packages: Packages, *how: str) -> Model:
    """The same with nothing kept from a test before."""
    model = full_model(packages, *how)
    model.forget()
    return model


def recorded_inputs(name: str) -> dict[str, np.ndarray]:
    """What a processor made: "image", "audio" or "two" (images)."""
    path = REF / ("two_images.npz" if name == "two" else f"inputs_{name}.npz")
    return dict(np.load(path))


def recorded_media(model: Model, name: str) -> dict[str, list[Medium]]:
    """Options for `generate` that go with the recorded prompt of that name."""
    if name not in ("image", "audio", "two"):
        return {}
    made = recorded_inputs(name)
    if name == "audio":
        return {"audio": model.encode_audio(made["input_features"], made["input_features_mask"])}
    return {"images": model.encode_images(made["pixel_values"], made["image_position_ids"])}


def picture(seed: int, height: int = 30, width: int = 50) -> np.ndarray:
    """A picture u8 [height, width, 3]; of another seed another one of the same size."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def small(model: Model, seed: int, wide: int = 2, high: int = 2) -> Medium:
    """An image of few soft tokens, `wide` times `high`, of 3 times 3 patches each."""
    places = np.stack(np.meshgrid(np.arange(3 * wide), np.arange(3 * high)), -1).reshape(1, -1, 2)
    pixels = np.random.default_rng(seed).random((1, places.shape[1], 48), np.float32)
    return model.encode_images(pixels, places)[0]


def said(*parts: Any) -> list[dict[str, Any]]:
    """One user turn: strings are text, anything else is an image."""
    content = [
        {"type": "text", "text": part} if isinstance(part, str) else {"type": "image", "image": part}
        for part in parts
    ]
    return [{"role": "user", "content": content}]
