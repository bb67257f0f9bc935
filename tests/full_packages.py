"""What tests of full packages share: media, recorded and made up, and messages that hold them."""

from typing import Any

import numpy as np

from cabochon.runtime import Medium, Model
from packages import TINY, Packages

REF = TINY / "ref"
IMAGE, VIDEO, AUDIO = 8, 13, 11
BEGIN_IMAGE, END_IMAGE, BEGIN_AUDIO, END_AUDIO = 7, 9, 10, 12
GREEDY: Any = {"greedy": True, "ignore_eos": True, "max_new_tokens": 16}


def fresh(packages: Packages, *how: str) -> Model:
    """The loaded package with nothing kept from a test before."""
    model = packages.model(*how)
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
