"""A program in a process of its own: whatever it does, what remains here is a record of it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["Ended", "run"]

_WORDS = 2000  # characters of its last words that are kept


@dataclass(frozen=True)
class Ended:
    """How a child process ended: `code` is its exit code, negative for a signal, None where its time was up.

    `told` are the lines of JSON that it wrote, `words` the end of what it said.
    """

    told: tuple[dict[str, Any], ...]
    code: int | None
    words: str
    seconds: float

    @property
    def fault(self) -> Literal["", "crashed", "hung"]:
        """ "" where it ended by itself with 0."""
        return "hung" if self.code is None else "crashed" if self.code else ""

    @property
    def how(self) -> str:
        """How it ended, in words."""
        if self.code is None:
            return f"no answer after {self.seconds:.0f} s; its process was ended"
        if self.code < 0:
            return f"its process died of {signal.Signals(-self.code).name}"
        return f"its process ended with exit code {self.code}"


def run(arguments: Sequence[str], request: Mapping[str, Any] | None = None, *, seconds: float) -> Ended:
    """Run Python with `arguments` and wait for at most `seconds`.

    With a `request`, two more arguments name the file that holds it and the file in which to tell, line by line.
    """
    with tempfile.TemporaryDirectory(prefix="cabochon-") as folder:
        asked, told, words = (Path(folder) / name for name in ("request", "told", "words"))
        asked.write_text(json.dumps(request))
        told.touch()
        more = [] if request is None else [str(asked), str(told)]
        started = time.monotonic()
        with words.open("wb") as out:
            code = _wait([sys.executable, *arguments, *more], out, seconds)
        took = time.monotonic() - started
        return Ended(_lines(told), code, _last(words), took)


def _wait(command: Sequence[str], out: Any, seconds: float) -> int | None:
    """The exit code; None where the time was up, after the process and all it started were ended."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
    ) as process:
        try:
            return process.wait(seconds)
        except BaseException as error:
            _end(process)
            if isinstance(error, subprocess.TimeoutExpired):
                return None
            raise


def _end(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)  # a session of its own: this ends what it started too
    else:
        process.kill()


def _lines(told: Path) -> tuple[dict[str, Any], ...]:
    """The whole lines; a last one that was cut off is nothing told."""
    lines = told.read_text(encoding="utf-8").split("\n")[:-1]
    return tuple(json.loads(line) for line in lines)


def _last(words: Path) -> str:
    with words.open("rb") as file:
        file.seek(max(0, words.stat().st_size - _WORDS))
        return file.read().decode(errors="replace").strip()
