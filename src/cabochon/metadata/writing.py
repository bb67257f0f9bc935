"""The writer: one text for one value, block style, short rows of scalars in flow style, comments where asked."""

from collections.abc import Mapping, Sequence
from typing import Any

from cabochon.errors import MetadataError
from cabochon.metadata.scalars import LONGEST_KEY, spell

__all__ = ["Comments", "write"]

_WIDTH = 120  # columns that a row of scalars may reach
_DEEPEST = 64
_SCALARS = frozenset(
    {str, int, float, bool, type(None)}
)  # known without asking an abstract class, which takes longer

Comments = Mapping[
    tuple[str | int, ...], Sequence[str]
]  # path -> lines above that key or item; () is the top


def write(data: Any, comments: Comments | None = None) -> bytes:
    """`data` as YAML that every reader of YAML 1.1 and 1.2 takes for the same, in the order of its keys.

    Raises MetadataError at the path of what cannot be written: a key that is no text, NaN, a nest too deep.
    """
    writer = _Writer(comments or {})
    lines = writer.comment(()) + writer.block(data, (), 0)
    return ("\n".join(lines) + "\n").encode()


class _Writer:
    def __init__(self, comments: Comments) -> None:
        self.comments = comments
        self.commented = {path[:length] for path in comments for length in range(len(path))}

    def comment(self, path: tuple[str | int, ...]) -> list[str]:
        lines = [part for line in self.comments.get(path, ()) for part in line.splitlines() or [""]]
        return [("# " + "".join(c if c.isprintable() else "?" for c in line)).rstrip() for line in lines]

    def block(self, value: Any, path: tuple[str | int, ...], column: int) -> list[str]:
        """The lines of a value that begins in `column`, without that indent."""
        row = self.row(value, path)
        return (
            [row] if row is not None and _fits(value, column + len(row)) else self.lines(value, path, column)
        )

    def lines(self, value: Any, path: tuple[str | int, ...], column: int) -> list[str]:
        """The lines of a container that no row takes."""
        if len(path) >= _DEEPEST:
            raise _refused("a nest too deep to write", f"no more than {_DEEPEST} levels", path)
        if isinstance(value, Mapping):
            return [line for key in value for line in self.entry(key, value[key], (*path, key), column)]
        return [line for i, item in enumerate(value) for line in self.item(item, (*path, i), column)]

    def entry(self, key: Any, value: Any, path: tuple[str | int, ...], column: int) -> list[str]:
        name = _key(key, path)
        lines = self.comment(path)
        if len(name) > LONGEST_KEY:
            head, *rest = self.block(value, path, column + 2)
            return [*lines, f"? {name}", f": {head}", *("  " + line for line in rest)]
        row = self.row(value, path)
        if row is not None and _fits(value, column + len(name) + 2 + len(row)):
            return [*lines, f"{name}: {row}"]
        indent = 2 if isinstance(value, Mapping) else 0  # a sequence stands right below its key
        below = self.lines(value, path, column + indent)
        return [*lines, f"{name}:", *(" " * indent + line for line in below)]

    def item(self, value: Any, path: tuple[str | int, ...], column: int) -> list[str]:
        head, *rest = self.block(value, path, column + 2)
        return [*self.comment(path), f"- {head}", *("  " + line for line in rest)]

    def row(self, value: Any, path: tuple[str | int, ...]) -> str | None:
        """A scalar, or a container of scalars alone, on one line; None where lines are needed."""
        if not _nests(value):
            return _scalar(value, path)
        children = value.values() if isinstance(value, Mapping) else value
        if path in self.commented or any(_nests(child) for child in children):
            return None
        if isinstance(value, Mapping):
            pairs = [f"{_key(k, (*path, k))}: {_scalar(v, (*path, k))}" for k, v in value.items()]
            return "{" + ", ".join(pairs) + "}"
        return "[" + ", ".join(_scalar(child, (*path, i)) for i, child in enumerate(value)) + "]"


def _nests(value: Any) -> bool:
    return type(value) not in _SCALARS and isinstance(value, Mapping | list | tuple)


def _fits(value: Any, column: int) -> bool:
    """Whether a row that ends in `column` is short enough; scalars and empty containers have no other form."""
    return column <= _WIDTH or not _nests(value) or not value


def _key(key: Any, path: tuple[str | int, ...]) -> str:
    if not isinstance(key, str):
        raise _refused(f"the key {key!r}", "a text", path)
    return _scalar(key, path)


def _scalar(value: Any, path: tuple[str | int, ...]) -> str:
    try:
        return spell(value)
    except ValueError as error:
        raise _refused(f"{value!r}"[:60], str(error), path) from None


def _refused(found: str, expected: str, path: tuple[str | int, ...]) -> MetadataError:
    return MetadataError(found, expected, at=".".join(map(str, path)))
