"""Images, sound and video as they come, files, bytes or arrays, to media: by the package's own processors."""

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cabochon.errors import PackageError, RequestError
from cabochon.runtime.embedder import Embedder
from cabochon.runtime.soft import AUDIO, Medium

if TYPE_CHECKING:
    from cabochon.media import Processors

FRAMES_PER_SECOND = 24  # transformers' for frames without a time


@dataclass(frozen=True)
class Attached:
    """What one placeholder stands for: media in order, and for the frames of a video their times, "mm:ss"."""

    media: tuple[Medium, ...]
    times: tuple[str, ...] | None = None


class Sources:
    """Reads media for one package."""

    def __init__(self, package: Path, embedder: Embedder) -> None:
        """Nothing is read before the first medium comes."""
        self._path, self._embedder = package, embedder

    def read(self, kind: str, source: Any, at: str) -> Attached:
        """One image, clip or video; `at` says where it was given. Raises RequestError for what is none."""
        if encoded := _encoded(source, kind):
            times = _times(encoded) if kind == "video" else None
            return Attached(tuple(_fitting(one, kind, at) for one in encoded), times)
        try:
            return getattr(self, f"_{kind}")(_opened(source))
        except RequestError as error:
            inner = re.sub(r"^(images|audio|videos?)(\[0\])? ?", "", error.at)
            where = f"{at} {inner}".strip()
            raise RequestError(error.message, at=where, remedy=error.remedy) from error

    def _image(self, source: Any) -> Attached:
        made = self._needed("image")(source, padded=False)
        return Attached(tuple(self._embedder.images(made.pixel_values, made.pixel_position_ids)))

    def _audio(self, source: Any) -> Attached:
        made = self._needed("audio")(source)
        clips = self._embedder.clips(made.input_features, made.input_features_mask)
        for clip in clips:
            clip.remarks = made.remarks
        return Attached(tuple(clips))

    def _video(self, source: Any) -> Attached:
        made = self._needed("video")(source, padded=False)
        frames = self._embedder.images(made.pixel_values, made.pixel_position_ids)
        for frame in frames:
            frame.remarks = made.remarks
        return Attached(tuple(frames), made.timestamps)

    def _needed(self, kind: str) -> Any:
        processor = getattr(self._processors, kind)
        if processor is None:
            raise PackageError(
                f"it has no processor for {kind}",
                at=str(self._path / "processor_config.json"),
                remedy="give what a processor made (Model.encode_images, Model.encode_audio), or build it again",
            )
        return processor

    @cached_property
    def _processors(self) -> "Processors":
        from cabochon.media import read_processors

        return read_processors(self._path)


def _encoded(source: Any, kind: str) -> list[Medium]:
    """What was encoded before: one, or the frames of a video; [] for anything else."""
    given: list[Any] = list(source) if kind == "video" and isinstance(source, list | tuple) else [source]
    return given if given and all(isinstance(one, Medium) for one in given) else []


def _times(frames: Sequence[Medium]) -> tuple[str, ...]:
    from cabochon.media.video import clock

    return tuple(clock(n / FRAMES_PER_SECOND) for n in range(len(frames)))


def _fitting(medium: Medium, kind: str, at: str) -> Medium:
    if (medium.encoder == AUDIO) != (kind == "audio"):
        raise RequestError(f"features of the {medium.encoder}; expected {kind}", at=at)
    return medium


def _opened(source: Any) -> Any:
    """What a data: address holds; anything else as it is."""
    if not isinstance(source, str) or not source.startswith("data:"):
        return source
    head, _, body = source.partition(",")
    if not head.endswith(";base64"):
        raise RequestError(f"{head[:60]!r}; expected data:...;base64,...", remedy="give a path or bytes")
    try:
        return base64.b64decode(body, validate=True)
    except (ValueError, binascii.Error) as error:
        raise RequestError(
            f"what follows {head[:60]!r} is no base64: {error}", remedy="give a path or bytes"
        ) from error
