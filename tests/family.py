"""The members of the family, and the tiny checkpoint of each: folders of tests/data/tiny."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Member:
    """A published model: its name, its tiny checkpoint, that of its drafter, and the media that it takes."""

    name: str
    folder: str
    assistant: str
    media: tuple[str, ...]


MEMBERS = (
    Member("E2B", "target", "assistant", ("image", "audio", "video")),
    Member("E4B", "e4b", "assistant-e4b", ("image", "audio", "video")),
    Member("12B unified", "unified", "assistant-unified", ("image", "audio", "video")),
    Member("26B-A4B", "moe", "assistant-moe", ("image", "video")),
    Member("31B", "31b", "assistant-31b", ("image", "video")),
)
