"""The processors of a checkpoint or a package, read from its configuration files.

transformers 5 writes one processor_config.json with a section for each kind; before that there were
preprocessor_config.json, for images or audio, and video_preprocessor_config.json. Both are read; a section that two
files give differently is refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cabochon.errors import ConfigError
from cabochon.media.audio import AudioProcessor
from cabochon.media.image import ImageProcessor
from cabochon.media.keys import TOP_KEYS
from cabochon.media.sections import audio_processor, image_processor, video_processor
from cabochon.media.video import VideoProcessor
from cabochon.section import Section
from cabochon.strict_json import parse_object

__all__ = ["FILES", "Processors", "read_processors"]

FILES = ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json")

# section of processor_config.json -> the key that names its class, and the classes that are known
_SECTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "image_processor": (
        "image_processor_type",
        ("Gemma4ImageProcessor", "Gemma4ImageProcessorFast", "Gemma4ImageProcessorPil"),
    ),
    "feature_extractor": ("feature_extractor_type", ("Gemma4AudioFeatureExtractor",)),
    "video_processor": ("video_processor_type", ("Gemma4VideoProcessor",)),
}


@dataclass(frozen=True)
class Processors:
    """What a checkpoint or package says how to prepare; None for a kind that it does not mention."""

    image: ImageProcessor | None
    audio: AudioProcessor | None
    video: VideoProcessor | None


def read_processors(path: str | Path) -> Processors:
    """The processors of the folder `path`, a checkpoint's or a package's; all None where it has no such files.

    Raises ConfigError for a key or value that is not understood, and for files that contradict each other.
    """
    found: dict[str, Section] = {}
    for name, section in _sections(Path(path)):
        before = found.setdefault(name, section)
        if before.values != section.values:
            what = f"differs from {before.at}; which of the two is meant cannot be known"
            raise ConfigError(what, at=section.at, remedy="remove one of the files")
    for name, section in found.items():
        _check_class(section, *_SECTIONS[name])
    image, audio, video = (found.get(name) for name in _SECTIONS)
    return Processors(
        None if image is None else image_processor(image),
        None if audio is None else audio_processor(audio),
        None if video is None else video_processor(video),
    )


def _sections(folder: Path) -> Iterator[tuple[str, Section]]:
    for file in (folder / name for name in FILES):
        if not file.is_file():
            continue
        top = _read(file)
        flat = next((s for s, (key, _) in _SECTIONS.items() if key in top.values), None)
        if flat is not None:
            yield flat, top
            continue
        top.refuse_unknown(TOP_KEYS)
        top.refuse_other("processor_class", ("Gemma4Processor",), "no other processor is known")
        for name in _SECTIONS:
            if top.values.get(name) is not None:
                yield name, top.section(name)


def _read(file: Path) -> Section:
    """What a file holds. Null means what an absent key means, as in transformers."""
    try:
        return Section(parse_object(file.read_bytes()), file.name, null_is_absent=True)
    except ValueError as error:
        raise ConfigError(str(error), at=file.name) from None


def _check_class(section: Section, key: str, known: tuple[str, ...]) -> None:
    section.refuse_other(key, known, "the results of no other class are known")
    section.refuse_other("processor_class", ("Gemma4Processor",), "no other processor is known")
