"""Pictures, sounds and films for prompts: made by arithmetic, so that they are the same anywhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from cabochon.media.footage import Video

__all__ = ["RATE", "SECONDS", "Exhibits", "film", "picture", "played", "sound"]

RATE = 16_000
SECONDS = 0.5  # between two frames of a film


@dataclass(frozen=True, eq=False)
class Exhibits:
    """What goes with one prompt, each kind in the order of its placeholders.

    images uint8 [H, W, 3]; sounds f32 [samples] at RATE; films: lists of frames as images, SECONDS apart.
    """

    images: Sequence[np.ndarray] = ()
    sounds: Sequence[np.ndarray] = ()
    films: Sequence[Sequence[np.ndarray]] = ()

    def described(self) -> list[str]:
        """What an evidence file says of them."""
        return [
            *(f"image {_size(image)}" for image in self.images),
            *(f"sound of {len(sound) / RATE:.2f} s" for sound in self.sounds),
            *(f"video of {len(frames)} frames {_size(frames[0])}" for frames in self.films),
        ]


def _size(image: np.ndarray) -> str:
    return f"{image.shape[1]}x{image.shape[0]}"


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Ramps, edges and a little noise, uint8 [height, width, 3]."""
    y, x = np.mgrid[:height, :width].astype(np.int64)
    noise = ((x + 131 * y + 7 * seed) * 2654435761 >> 7) % 48
    ramps = [x * (5 + seed) % 256, (y * 8 + 40 * seed) % 256, ((x // 6 + y // (4 + seed)) % 2) * 200]
    return np.stack([np.minimum(ramp + noise, 255) for ramp in ramps], -1).astype(np.uint8)


def sound(samples: int, seed: int = 0) -> np.ndarray:
    """A tone that rises, with a hiss and a pause in it, f32 [samples]."""
    n = np.arange(samples, dtype=np.int64)
    seconds = n / RATE
    tone = 0.4 * np.sin(2 * np.pi * (180 + 60 * seed + 400 * seconds) * seconds)
    hiss = ((n + 97 * seed) * 2654435761 >> 9) % 1024 / 1024 - 0.5
    loud = np.where(n // 1600 % 5 == 3, 0.02, 1.0)
    return ((tone + 0.1 * hiss) * loud).astype(np.float32)


def film(frames: int, height: int, width: int, seed: int = 0) -> list[np.ndarray]:
    """A picture that moves."""
    return [picture(height, width + 4 * frames, seed)[:, 4 * n : 4 * n + width] for n in range(frames)]


def played(frames: Sequence[np.ndarray]) -> "Video":
    """A film as video processors take it."""
    from cabochon.media.footage import Video

    return Video(tuple(frames), tuple(n * SECONDS for n in range(len(frames))), len(frames))
