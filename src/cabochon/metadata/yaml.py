"""Documents in and out: a strict reader of YAML 1.2 and JSON with addresses, and a writer that is always the same.

What the reader refuses, with line and column: keys given twice or that are no text, anchors, aliases, tags, merge
keys, several documents, NaN and infinity, deep nests and long files. What it refuses costs no more than what it
takes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cabochon.errors import MetadataError
from cabochon.metadata.events import Event, Unreadable, json_events, yaml_events
from cabochon.metadata.scalars import resolve
from cabochon.metadata.writing import write

__all__ = ["DEEPEST", "LONGEST", "MOST", "Path", "address", "addresses", "read", "write"]

DEEPEST = 64  # levels
LONGEST = 2 << 20  # bytes
MOST = 100_000  # values, keys included: twenty times what the largest model of the family needs
# Not printable in YAML 1.2 (5.1), or the end of a line in YAML 1.1 and not in 1.2.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f\u2028\u2029\ufffe\uffff]")

Path = tuple[str | int, ...]
_OPENED: Mapping[str, type[dict[str, Any]] | type[list[Any]]] = {"{": dict[str, Any], "[": list[Any]}
Marks = dict[tuple[int, str | int], tuple[int, int]]  # id of a container and a key in it -> line and column


def read(text: bytes, at: str) -> Any:
    """The value that `text` spells; `at` names the file, whose ending tells JSON from YAML.

    Raises MetadataError at "NAME:LINE:COLUMN" for what cannot be read or is refused.
    """
    try:
        return _build(_events(text, at), None)
    except Unreadable as error:
        remedy = "correct the document, or build the package again"
        where = f"{at}:{error.line}:{error.column}"
        raise MetadataError(error.found, error.expected, at=where, remedy=remedy) from None


def address(text: bytes, at: str, path: Path) -> str:
    """Where the value at `path` is written, "NAME:LINE:COLUMN"; as much of the path as there is counts."""
    return addresses(text, at, (path,))[0]


def addresses(text: bytes, at: str, paths: Iterable[Path]) -> list[str]:
    """`address` of several paths; the text is read once."""
    marks: Marks = {}
    top = _build(_events(text, at), marks)
    return [f"{at}:{line}:{column}" for line, column in (_place(top, path, marks) for path in paths)]


def _place(value: Any, path: Path, marks: Marks) -> tuple[int, int]:
    place = (1, 1)
    for key in path:
        if (id(value), key) not in marks:
            break
        place, value = marks[id(value), key], value[key]
    return place


def _events(text: bytes, at: str) -> Iterator[Event]:
    if len(text) > LONGEST:
        raise Unreadable(f"{len(text):,} bytes", f"no more than {LONGEST:,}", 1, 1)
    try:
        characters = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = text[: error.start].decode("utf-8", "replace")
        raise Unreadable(f"the byte {text[error.start]:#04x}", "UTF-8", *_position(before)) from None
    if control := _CONTROL.search(characters):
        place = _position(characters[: control.start()])
        raise Unreadable(f"the control character {ord(control[0]):#04x}", "text", *place)
    return json_events(characters) if at.endswith(".json") else yaml_events(characters)


def _position(before: str) -> tuple[int, int]:
    return before.count("\n") + 1, len(before) - before.rfind("\n")


class _Open:
    """A container that is being filled."""

    def __init__(self, container: dict[str, Any] | list[Any]) -> None:
        self.container = container
        self.key: str | None = None  # of a mapping: the key whose value comes next

    def put(self, value: Any, event: Event, marks: Marks | None) -> None:
        """Take a value, or in a mapping a key where it is one's turn."""
        if isinstance(self.container, list):
            self._mark(len(self.container), event, marks)
            self.container.append(value)
        elif self.key is None:
            self.key = _key(value, event, self.container)
            self._mark(self.key, event, marks)
        else:
            self.container[self.key], self.key = value, None

    def _mark(self, key: str | int, event: Event, marks: Marks | None) -> None:
        if marks is not None:
            marks[id(self.container), key] = (event.line, event.column)


def _key(value: Any, event: Event, container: Mapping[str, Any]) -> str:
    if not isinstance(value, str):
        kinds = {dict: "a mapping", list: "a sequence"}
        raise _refused(f"the key {kinds.get(type(value), value)}", "a text; put quotes around it", event)
    if event.kind == "plain" and value == "<<":
        raise _refused("the merge key <<", "every key written where it belongs", event)
    if value in container:
        raise _refused(f"the key {value[:60]!r} a second time", "every key once", event)
    return value


def _build(events: Iterable[Event], marks: Marks | None) -> Any:
    top: list[Any] = []
    stack = [_Open(top)]
    for count, event in enumerate(events):
        if count > 2 * MOST:  # a container is two events
            raise _refused(f"more than {MOST:,} values", "a shorter document", event)
        if event.kind in ("}", "]"):
            stack.pop()
            continue
        opened = _OPENED.get(event.kind)
        value = opened() if opened else _scalar(event)
        stack[-1].put(value, event, marks if len(stack) > 1 else None)
        if opened:
            stack.append(_Open(value))
            if len(stack) > DEEPEST + 1:
                raise _refused(f"more than {DEEPEST} levels", "a flatter document", event)
    return top[0] if top else None


def _scalar(event: Event) -> Any:
    if not event.value.isascii():
        try:
            event.value.encode()
        except UnicodeEncodeError:
            raise _refused("half of a surrogate pair", "a text of characters", event) from None
    try:
        return resolve(event.value) if event.kind == "plain" else event.value
    except ValueError as error:
        raise _refused(event.value[:60], str(error), event) from None


def _refused(found: str, expected: str, event: Event) -> Unreadable:
    return Unreadable(found, expected, event.line, event.column)
