"""The two texts a document is written in, as one stream of events: YAML through PyYAML's parser, and JSON.

Nothing here builds a value: `yaml.py` does, and stops reading as soon as something is not allowed.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml as pyyaml

__all__ = ["Event", "Unreadable", "json_events", "yaml_events"]

_LOADER: Any = getattr(
    pyyaml, "CSafeLoader", pyyaml.SafeLoader
)  # without libyaml the same, ten times as slow
_OPEN: dict[Any, str] = {pyyaml.MappingStartEvent: "{", pyyaml.SequenceStartEvent: "["}
_CLOSE: dict[Any, str] = {pyyaml.MappingEndEvent: "}", pyyaml.SequenceEndEvent: "]"}
_TOKEN = re.compile(
    r'(?P<space>[ \t\r\n]+)|(?P<text>"(?:[^"\\]|\\.)*")|(?P<sign>[][{}:,])|(?P<word>[^][{}:,\s"]+)'
)


class Event(NamedTuple):
    """A piece of a document: "{" "}" "[" "]", "plain" for a word whose meaning is open, or "text"."""

    kind: str
    value: str
    line: int  # both from 1
    column: int


class Unreadable(Exception):  # noqa: N818
    """What was found and expected, where. The reader adds the name of the file."""

    def __init__(self, found: str, expected: str, line: int, column: int) -> None:
        self.found, self.expected, self.line, self.column = found, expected, line, column
        super().__init__(found)


def yaml_events(text: str) -> Iterator[Event]:
    """The events of one YAML document without anchors, aliases and tags."""
    documents = 0
    try:
        for event in pyyaml.parse(text, Loader=_LOADER):
            documents += isinstance(event, pyyaml.DocumentStartEvent)
            if (piece := _piece(event, documents)) is not None:
                yield piece
    except pyyaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise Unreadable(f"no YAML: {error.problem or error.context}", "YAML 1.2", *where) from None
    except (pyyaml.YAMLError, ValueError, OverflowError) as error:
        raise Unreadable(f"no YAML: {str(error).splitlines()[0][:100]}", "YAML 1.2", 1, 1) from None


def _piece(event: Any, documents: int) -> Event | None:
    mark, kind = event.start_mark, type(event)
    where = (mark.line + 1, mark.column + 1)
    if documents > 1:
        raise Unreadable("a second document", "one document in a file", *where)
    if kind in _CLOSE:
        return Event(_CLOSE[kind], "", *where)
    if kind is pyyaml.ScalarEvent or kind in _OPEN:
        _refuse_properties(event, where)
        return Event(
            _OPEN.get(kind) or ("plain" if event.implicit[0] else "text"), getattr(event, "value", ""), *where
        )
    if kind is pyyaml.AliasEvent:
        raise Unreadable(f"the alias *{event.anchor[:40]}", "every value written where it belongs", *where)
    if getattr(event, "version", None) not in (None, (1, 2)):
        raise Unreadable(f"%YAML {'.'.join(map(str, event.version))}", "YAML 1.2", *where)
    return None


def _refuse_properties(event: Any, where: tuple[int, int]) -> None:
    if event.anchor is not None:
        raise Unreadable(f"the anchor &{event.anchor[:40]}", "every value written where it belongs", *where)
    if event.tag is not None:
        raise Unreadable(f"the tag {event.tag[:40]}", "no tags", *where)


def json_events(text: str) -> Iterator[Event]:
    """The events of a JSON document."""
    try:  # whether it is one
        json.loads(text, parse_int=_word, parse_float=_word, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise Unreadable(f"no JSON: {error.msg}", "JSON", error.lineno, error.colno) from None
    except RecursionError:
        raise Unreadable("a nest too deep to read", "a flatter document", 1, 1) from None
    except ValueError as error:
        raise Unreadable(f"no JSON: the value {error}", "a finite number", 1, 1) from None
    line, begin = 1, 0
    for token in _TOKEN.finditer(text):
        kind, piece = str(token.lastgroup), token.group()
        if kind == "space" and "\n" in piece:
            line, begin = line + piece.count("\n"), token.start() + piece.rindex("\n") + 1
        elif kind == "text":
            yield Event("text", json.loads(piece), line, token.start() - begin + 1)
        elif kind == "word" or piece in "{}[]":
            yield Event("plain" if kind == "word" else piece, piece, line, token.start() - begin + 1)


def _word(spelling: str) -> str:
    return spelling


def _no_constant(name: str) -> Any:
    raise ValueError(name)
