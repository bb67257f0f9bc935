"""MP4 and other containers of video, where PyAV is installed."""

from contextlib import closing
from typing import Any

from cabochon.errors import RequestError
from cabochon.media.extras import require
from cabochon.media.footage import ASSUMED_RATE, Video, kept, sampled

__all__ = ["read_container"]


def read_container(file: Any, at: str, count: int | None) -> Video:
    """`count` frames of its first video stream, or all, at its mean rate as with transformers. Raises RequestError."""
    what = "is no GIF, WebP, PNG or AVIF; reading MP4 and other video files"
    library = require("av", what, extra="video", at=at)
    try:
        with closing(library.open(file)) as container:
            if not container.streams.video:
                raise RequestError("holds no video stream", at=at)
            stream = container.streams.video[0]
            total = stream.frames or sum(1 for _ in container.decode(stream))
            container.seek(0)
            indices = sampled(total, count)
            decoded = (
                f.to_ndarray(format="rgb24") for i, f in enumerate(container.decode(stream)) if i in indices
            )
            frames = kept(decoded, len(indices), at)
            rate = float(stream.average_rate or ASSUMED_RATE)
    except RequestError:
        raise
    except (
        Exception
    ) as error:  # FFmpeg's own, and those of what it hands out, such as names that are not UTF-8
        what = f"is not a video of a known kind, or broken: {error}"
        raise RequestError(what, at=at, remedy="save it as MP4, or give its frames as images") from error
    if not frames:
        raise RequestError("holds no frames", at=at)
    return Video(frames, tuple(i / rate for i in indices[: len(frames)]), total)
