"""How a program in a child process is asked and tells: JSON, a line for each thing, written before the next begins."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["asked", "tell", "told"]


def asked() -> dict[str, Any]:
    """The request."""
    return json.loads(Path(sys.argv[1]).read_bytes())


def tell(**what: Any) -> None:
    """Write one line."""
    with Path(sys.argv[2]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(what) + "\n")


def told(name: str, try_it: Callable[[], Any]) -> Any:
    """Tell that `name` begins, and then what it gave or which error it raised. Returns what it gave, or None."""
    tell(name=name, event="begins")
    started = time.monotonic()
    try:
        found = try_it()
    except Exception as error:  # a runtime may raise anything
        took = time.monotonic() - started
        tell(name=name, event="raised", error=f"{type(error).__name__}: {error}", seconds=took)
        return None
    tell(name=name, event="gave", seconds=time.monotonic() - started, found=_plain(found))
    return found


def _plain(found: Any) -> Any:
    return found if isinstance(found, dict | list) else None
