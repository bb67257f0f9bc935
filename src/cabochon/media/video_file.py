"""Videos to frames: sequences of images, arrays, animations, containers."""

from collections.abc import Sequence

import numpy as np

from cabochon.errors import RequestError
from cabochon.media.animation import is_picture, read_animation
from cabochon.media.container import read_container
from cabochon.media.footage import ASSUMED_RATE, Video, kept, sampled
from cabochon.media.image_file import Image, load_image, rgb_array
from cabochon.media.source import Source, name_of, opened

__all__ = ["Footage", "load_video"]

Footage = Source | np.ndarray | Sequence[Image]


def load_video(
    source: Footage,
    *,
    fps: float | None = None,
    timestamps: Sequence[float] | None = None,
    num_frames: int | None = None,
) -> Video:
    """A video, or `num_frames` of its frames.

    `source`: a path, bytes or an open file (animated GIF, WebP, PNG; MP4 and other containers with PyAV), an array
    [T, H, W, 3], or a sequence of what `load_image` takes. `fps` (frames per second) or `timestamps` (seconds, one per
    frame) say when frames of arrays and sequences are shown, 24 a second if neither is given; files know it themselves.
    Raises RequestError.
    """
    if isinstance(source, np.ndarray | list | tuple):
        return _from_frames(source, fps, timestamps, num_frames)
    at = name_of(source, "video")
    if fps is not None or timestamps is not None:
        what = "a file says itself when its frames are shown; fps and timestamps are for frames"
        raise RequestError(what, at=at)
    with opened(source, "video", "an array [T, H, W, 3] or a list of images") as file:
        if is_picture(file):
            return read_animation(file, at, num_frames)
        return read_container(file, at, num_frames)


def _from_frames(
    source: np.ndarray | Sequence[Image],
    fps: float | None,
    timestamps: Sequence[float] | None,
    count: int | None,
) -> Video:
    if isinstance(source, np.ndarray) and source.ndim != 4:
        raise RequestError(f"array of shape {list(source.shape)}; expected [T, H, W, 3]", at="video")
    if not len(source):
        raise RequestError("no frames; expected at least one", at="video")
    seconds = _seconds(len(source), fps, timestamps)
    indices = sampled(len(source), count)
    frames = kept((_frame(source[i], f"video: frame {i}") for i in indices), len(indices), "video")
    assumed = fps is None and timestamps is None
    remarks = (f"no frame rate given; {ASSUMED_RATE:g} frames per second are assumed",) if assumed else ()
    return Video(frames, tuple(seconds[i] for i in indices), len(source), remarks)


def _frame(item: Image, at: str) -> np.ndarray:
    return rgb_array(item, at) if isinstance(item, np.ndarray) else load_image(item)


def _seconds(total: int, fps: float | None, timestamps: Sequence[float] | None) -> list[float]:
    if timestamps is None:
        rate = ASSUMED_RATE if fps is None else fps
        if not 0 < rate < float("inf"):
            raise RequestError(f"{fps} frames per second; expected a number above 0", at="fps")
        return [i / rate for i in range(total)]
    if fps is not None:
        raise RequestError("fps and timestamps are both given; expected one of them", at="video")
    seconds = [float(t) for t in timestamps]
    if len(seconds) != total or not all(0 <= t < float("inf") for t in seconds) or seconds != sorted(seconds):
        what = f"{len(seconds)} numbers; expected {total}, one per frame, in seconds, not below 0 and not falling"
        raise RequestError(what, at="timestamps")
    return seconds
