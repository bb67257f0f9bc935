"""Pictures, sounds and processors for the tests of media: made by arithmetic, so that they are the same anywhere."""

import hashlib
from pathlib import Path

import numpy as np

from cabochon.media.patches import Patching

TINY = Path(__file__).parent / "data" / "tiny"
TARGET = TINY / "target"  # a checkpoint with processor_config.json
UNIFIED = TINY / "unified"  # one of the unified model
REAL = Patching(
    patch_size=16, pooling_kernel_size=3, max_soft_tokens=280
)  # that of the published checkpoints


def picture(height: int, width: int, channels: int = 3) -> np.ndarray:
    """Ramps, a fine pattern, edges and one channel of noise, uint8 [height, width, channels]."""
    y, x = np.mgrid[:height, :width].astype(np.int64)
    noise = (x * 2654435761 + y * 40503 * 65537) % 65521 % 256
    layers = [(x * 5 + y) % 256, ((x // 7 + y // 5) % 2) * 255, noise, (x * y) % 256]
    return np.stack(layers[:channels], -1).astype(np.uint8)


def tone(samples: int, rate: int = 16_000, hertz: float = 440.0) -> np.ndarray:
    """A sine of 0.4 that rises a little, f32 [samples]."""
    t = np.arange(samples) / rate
    return (0.4 * np.sin(2 * np.pi * (hertz + 30 * t) * t)).astype(np.float32)


def digest(array: np.ndarray) -> str:
    """The first 16 hex digits of the SHA-256 of its bytes."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
