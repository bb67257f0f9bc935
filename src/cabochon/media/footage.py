"""What a video is once it is read, and how many of its frames are."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from cabochon.errors import RequestError

__all__ = ["ASSUMED_RATE", "MAX_FRAME_PIXELS", "Video", "check_pixels", "kept", "sampled"]

ASSUMED_RATE = 24.0  # frames per second where nothing says it; transformers' number
MAX_FRAME_PIXELS = (
    2**28
)  # of all frames kept, of an animation of all: 32 frames of 3840 x 2160; 800 MB as RGB


@dataclass(frozen=True)
class Video:
    """Frames uint8 [H, W, 3] of one size, and the second at which each is shown.

    `total`: frames of the video they were taken from. `remarks`: what was assumed.
    """

    frames: tuple[np.ndarray, ...]
    timestamps: tuple[float, ...]
    total: int
    remarks: tuple[str, ...] = ()


def sampled(total: int, count: int | None) -> list[int]:
    """Which of `total` frames are taken: `count` of them, evenly from the first, as transformers samples them.

    All where there are not more than that (transformers refuses fewer) or where `count` is None.
    """
    return (
        list(range(total)) if count is None or total <= count else [i * total // count for i in range(count)]
    )


def kept(frames: Iterable[np.ndarray], count: int, at: str) -> tuple[np.ndarray, ...]:
    """The frames, of one size and not too many pixels in all; nothing is decoded past the first that says otherwise."""
    result = list[np.ndarray]()
    for frame in frames:
        height, width = frame.shape[:2]
        if frame.shape != (first := result[0] if result else frame).shape:
            what = f"frame {len(result)} has {height} x {width} pixels, the first {first.shape[0]} x {first.shape[1]}"
            raise RequestError(f"{what}; expected one size", at=at)
        check_pixels(count, height, width, at)
        result.append(frame)
    return tuple(result)


def check_pixels(count: int, height: int, width: int, at: str) -> None:
    """Refuse frames that are too many pixels in all."""
    if count * height * width > MAX_FRAME_PIXELS:
        what = f"{count} frames of {height} x {width} pixels; {MAX_FRAME_PIXELS} pixels are taken in all"
        raise RequestError(what, at=at, remedy="take fewer frames (num_frames), or scale it down")
