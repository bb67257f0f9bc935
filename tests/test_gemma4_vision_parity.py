"""The vision tower's graph against transformers itself, over random towers that no reference was recorded for."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oracle
from graphs import difference
from test_gemma4_vision import EXACT, SHAPES, VARIANTS, Image, Tower, Truth, padded, random_tower

pytestmark = pytest.mark.parity

TOWERS: dict[str, dict[str, Any]] = {
    name: VARIANTS[name] for name in ("heads that share keys", "both", "squares of four")
} | {"as published": {}}


def reference(truth: Truth, *images: Image) -> np.ndarray:
    """Features as transformers computes them: its tower, and the projection behind it."""
    import torch
    from transformers.models.gemma4 import Gemma4VisionConfig
    from transformers.models.gemma4.modeling_gemma4 import Gemma4VisionModel

    prefix = "model.vision_tower."
    config = Gemma4VisionConfig(**truth.config, attn_implementation="eager")
    model = Gemma4VisionModel(config).eval().float()
    held = {name: truth.weights(name) for name in truth.weights.t if name.startswith(prefix)}
    state = {name.removeprefix(prefix): torch.from_numpy(np.array(value)) for name, value in held.items()}
    model.load_state_dict(state, strict=True)
    with torch.no_grad():
        soft = model(
            torch.from_numpy(np.stack([image.pixels for image in images])),
            torch.from_numpy(np.stack([image.places for image in images])),
        ).last_hidden_state.numpy()
    normed = oracle.rms(soft, eps=truth.config["rms_norm_eps"])
    return oracle.lin(normed, truth.weights("model.embed_vision.embedding_projection.weight"))


@pytest.mark.parametrize("target", ["default", "onnx-standard", "cuda", "webgpu"])
@pytest.mark.parametrize("name", TOWERS)
def test_images_of_any_shape(tmp_path: Path, name: str, target: str) -> None:
    folder = random_tower(tmp_path, **TOWERS[name])
    truth = Truth(folder)
    shapes = [(12, 6), (4, 18), (2, 36)] if name == "squares of four" else SHAPES
    images = [padded(truth.image(*shape, seed=i), 108, anywhere=i) for i, shape in enumerate(shapes)]
    assert difference(Tower(folder, target).run(*images), reference(truth, *images)) < EXACT


def test_sixteen_patches_are_one_token(tmp_path: Path) -> None:
    folder = random_tower(tmp_path, standardize=True)
    truth = Truth(folder)
    image = truth.image(4, 4)
    found, expected = Tower(folder, "default").run(image), reference(truth, image)
    assert found.shape == (1, 64)
    assert difference(found, expected) < EXACT
