"""Animated GIF, WebP, PNG and AVIF, which Pillow reads."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from cabochon.errors import RequestError
from cabochon.media.footage import Video, check_pixels, kept, sampled
from cabochon.media.image_file import frame_count, open_picture, pixels

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

__all__ = ["is_picture", "read_animation"]

_STILL = 0.1  # seconds that a frame of an animation stands whose file says 0, as browsers show it


def is_picture(file: Any) -> bool:
    """By its first bytes."""
    head = file.read(16)
    file.seek(0)
    return head.startswith((b"GIF8", b"\x89PNG")) or head[8:12] == b"WEBP" or head[4:12] == b"ftypavis"


def read_animation(file: Any, at: str, count: int | None) -> Video:
    """`count` frames of it, or all; each is shown for as long as the file says. Raises RequestError."""
    with open_picture(file, at) as picture:
        total = frame_count(picture, at)
        indices = sampled(total, count)
        check_pixels(total, picture.height, picture.width, at)
        shown = dict[int, float]()
        frames = kept(_animated(picture, total, set(indices), shown, at), len(indices), at)
    return Video(frames, tuple(shown[i] for i in indices), total)


def _animated(
    picture: "Picture", total: int, wanted: set[int], shown: dict[int, float], at: str
) -> Iterable[np.ndarray]:
    """The wanted frames in order; writes into `shown` when each of them is shown."""
    now = 0.0
    for index in range(total):
        try:
            picture.seek(index)
            picture.load()  # of WebP this alone says how long the frame stands
        except Exception as error:  # a decoder raises whatever comes to it on a file that is made up
            raise RequestError(f"frame {index} cannot be decoded: {error}", at=at) from error
        if index in wanted:
            shown[index] = now
            yield pixels(picture.copy(), at)
        now += (float(picture.info.get("duration") or 0) / 1000) or _STILL
