"""How results are printed: as JSON for programs, in words and tables for people."""

import contextlib
import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cabochon.errors import CabochonError

__all__ = ["plain", "print_error", "print_json", "print_table", "size"]


_UNBOUNDED = 100_000  # characters: a table takes of them what it needs


def plain(value: Any) -> Any:
    """The value in the types of JSON: dataclasses become objects, paths become strings."""
    if value is None or isinstance(value, str | int | float):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """One JSON document on standard output; on one line where `indent` is None."""
    print(json.dumps(plain(value), indent=indent, ensure_ascii=False), flush=True)


def print_error(error: CabochonError, *, indent: int | None = 2) -> None:
    """The message on standard error; with --json an object on standard output as well.

    Neither must be writable: it may be the very thing that failed.
    """
    with contextlib.suppress(OSError):
        print(f"cabochon: {error}", file=sys.stderr, flush=True)
    if "--json" not in sys.argv:
        return
    said = {"kind": type(error).__name__, "at": error.at, "message": error.message, "remedy": error.remedy}
    with contextlib.suppress(OSError):
        print_json({"error": said}, indent=indent)


def size(nbytes: int) -> str:
    """Bytes in words: 9.26 GB, 512 kB, 17 B (powers of ten)."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= factor:
            return (
                f"{nbytes / factor:.3g} {unit}"
                if nbytes < 1000 * factor
                else f"{nbytes / factor:,.0f} {unit}"
            )
    return f"{nbytes} B"


def print_table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """A table; a column whose name ends in ">" is set to the right. Nothing is cut off: a terminal that is too narrow
    gets cells of several lines, and what is no terminal a table as wide as it is."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        side = "right" if column.endswith(">") else "left"
        table.add_column(column.removesuffix(">"), justify=side, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = _UNBOUNDED
    console.print(table)
