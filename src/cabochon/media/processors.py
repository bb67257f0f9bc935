"""The processors of a checkpoint or a package, read from its configuration files.

transformers 5 writes one processor_config.json with a section for each kind; before that there were
preprocessor_config.json, for images or audio, and video_preprocessor_config.json. Both are read; a section that two
files give differently is refused.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cabochon.errors import ConfigError
from cabochon.media.audio import AudioProcessor
from cabochon.media.image import ImageProcessor
from cabochon.media.keys import TOP_KEYS
from cabochon.media.sections import (
    audio_processor,
    image_processor,
    merged_image_processor,
    merged_video_processor,
    raw_audio_processor,
    video_processor,
)
from cabochon.media.video import VideoProcessor
from cabochon.section import Section
from cabochon.strict_json import parse_object

__all__ = ["FILES", "Processors", "read_processors"]

FILES = ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")

# section of processor_config.json -> the key that names its class
_SECTIONS: Mapping[str, str] = {
    "image_processor": "image_processor_type",
    "feature_extractor": "feature_extractor_type",
    "video_processor": "video_processor_type",
}
_WHOLE = "processor_class"


@dataclass(frozen=True)
class _Family:
    """Classes of transformers that belong together, by the key that names one, and what reads their sections."""

    classes: Mapping[str, Sequence[str]]
    image: Callable[[Section], ImageProcessor]
    audio: Callable[[Section], AudioProcessor]
    video: Callable[[Section], VideoProcessor]


_ENCODED = _Family(
    {
        "image_processor_type": (
            "Gemma4ImageProcessor",
            "Gemma4ImageProcessorFast",
            "Gemma4ImageProcessorPil",
        ),
        "feature_extractor_type": ("Gemma4AudioFeatureExtractor",),
        "video_processor_type": ("Gemma4VideoProcessor",),
        _WHOLE: ("Gemma4Processor",),
    },
    image_processor,
    audio_processor,
    video_processor,
)
_UNIFIED = _Family(
    {
        "image_processor_type": ("Gemma4UnifiedImageProcessor", "Gemma4UnifiedImageProcessorFast"),
        "feature_extractor_type": ("Gemma4UnifiedAudioFeatureExtractor",),
        "video_processor_type": ("Gemma4UnifiedVideoProcessor",),
        _WHOLE: ("Gemma4UnifiedProcessor",),
    },
    merged_image_processor,
    raw_audio_processor,
    merged_video_processor,
)


@dataclass(frozen=True)
class Processors:
    """What a checkpoint or package says how to prepare; None for a kind that it does not mention."""

    image: ImageProcessor | None
    audio: AudioProcessor | None
    video: VideoProcessor | None


def read_processors(path: str | Path) -> Processors:
    """The processors of the folder `path`, a checkpoint's or a package's; all None where it has no such files.

    Sections that name no class are of the family of those that do, and of Gemma 4 with encoders where none does. Raises
    ConfigError for a key or value that is not understood, and for sections and files that contradict each other.
    """
    tops = [_read(file) for name in FILES if (file := Path(path) / name).is_file()]
    found: dict[str, Section] = {}
    for name, section in (pair for top in tops for pair in _sections(top)):
        before = found.setdefault(name, section)
        if before.values != section.values:
            what = f"differs from {before.at}; which of the two is meant cannot be known"
            raise ConfigError(what, at=section.at, remedy="remove one of the files")
    family = _family([*tops, *found.values()])
    image, audio, video = (found.get(name) for name in _SECTIONS)
    return Processors(
        None if image is None else family.image(image),
        None if audio is None else family.audio(audio),
        None if video is None else family.video(video),
    )


def _sections(top: Section) -> Iterator[tuple[str, Section]]:
    """The sections of a file by their name; a file may be one of them."""
    if flat := next((name for name, key in _SECTIONS.items() if key in top.values), None):
        yield flat, top
        return
    top.refuse_unknown(TOP_KEYS)
    for name in _SECTIONS:
        if top.values.get(name) is not None:
            yield name, top.section(name)


def _family(sections: Sequence[Section]) -> _Family:
    """The one whose classes the sections name."""
    keys = (*_SECTIONS.values(), _WHOLE)
    named = [(one, key) for one in sections for key in keys if one.values.get(key) is not None]
    families = [_known(section, key) for section, key in named]
    for (section, key), family in zip(named, families, strict=True):
        if family is not families[0]:
            first, by = named[0]
            what = f"is {section.values[key]!r}; expected one that goes with {by}"
            what += f" {first.values[by]!r} of {first.at}"
            raise section.error(
                key, what, "take all of them from one checkpoint: no model takes what both make"
            )
    return families[0] if families else _ENCODED


def _known(section: Section, key: str) -> _Family:
    families = {name: family for family in (_ENCODED, _UNIFIED) for name in family.classes[key]}
    section.refuse_other(key, families, "the results of no other class are known")
    return families[section.values[key]]


def _read(file: Path) -> Section:
    """What a file holds. Null means what an absent key means, as in transformers."""
    try:
        return Section(parse_object(file.read_bytes()), file.name, null_is_absent=True)
    except ValueError as error:
        raise ConfigError(str(error), at=file.name) from None
