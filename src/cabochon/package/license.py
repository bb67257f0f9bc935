"""The licence of a checkpoint, and what says so: its card, its licence file, the user, or nobody."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cabochon.errors import SourceError

__all__ = ["License", "find_license", "front_matter"]

_FILES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "COPYING")
# Words that only the licence itself begins with, and its identifier on the hub.
_TITLES = (
    ("gemma", ("gemma terms of use",)),
    ("apache-2.0", ("apache license", "version 2.0")),
    ("mit", ("permission is hereby granted, free of charge", 'the software is provided "as is"')),
    ("cc0-1.0", ("cc0 1.0 universal",)),
)
_LICENSE_LIMIT = 1 << 20  # bytes; a longer file is no licence


@dataclass(frozen=True)
class License:
    """The identifier ("apache-2.0", "gemma", "other", "unknown"), what says so, and the text if known."""

    id: str
    evidence: str
    text: str | None = None


def find_license(files: Mapping[str, Path], asked: str | None = None) -> License:
    """The licence as the source's card says it, else its licence file, else as `asked`, else "unknown".

    Where it comes to the last two, the evidence says what the card lacks: one may name it and not be readable.
    """
    file = next((name for name in _FILES if name in files), None)
    text = _text(files[file]) if file else None
    said, silence = _said(files.get("README.md"))
    if said is not None:
        return License(said, f"the source's README.md: license: {said}", text)
    if file and text is not None:
        found = _identify(text)
        return License(
            found,
            f"the source's {file}" + ("" if found != "other" else ", which is none that is known here"),
            text,
        )
    if asked:
        return License(asked, f"given as --license {asked}; {silence}, and there is no licence file")
    return License("unknown", f"{silence}, there is no licence file, and no --license was given")


def _said(card: Path | None) -> tuple[str | None, str]:
    """The licence that the card names, and how to speak of one that names none."""
    if card is None:
        return None, "the source has no README.md"
    if (found := front_matter(card)) is None:
        return None, "the front matter of the source's README.md cannot be read"
    said = found.get("license")
    return said if isinstance(said, str) else None, "the source's README.md does not name one licence"


def front_matter(card: Path) -> dict[str, Any] | None:
    """The YAML between the first two lines of dashes of a model card.

    Empty where it does not begin with such a line; None where it does, and what follows cannot be read.
    """
    from ruamel.yaml import YAML

    lines = _text(card).splitlines()
    if not lines or lines[0].strip() != "---":
        return {}
    if "---" not in (rest := [line.strip() for line in lines[1:]]):
        return None
    try:
        found = YAML(typ="safe", pure=True).load("\n".join(lines[1 : rest.index("---") + 1]))
    except Exception:  # not YAML's errors alone: a month 13 is a ValueError, a deep nest a RecursionError
        return None
    return found if isinstance(found, dict) else {} if found is None else None


def _identify(text: str) -> str:
    words = " ".join(text.lower().split())
    return next((name for name, titles in _TITLES if all(title in words for title in titles)), "other")


def _text(file: Path) -> str:
    if file.stat().st_size > _LICENSE_LIMIT:
        raise SourceError(
            f"has {file.stat().st_size} bytes; expected a text", at=file.name, remedy="remove the file"
        )
    return file.read_text(encoding="utf-8", errors="replace")
