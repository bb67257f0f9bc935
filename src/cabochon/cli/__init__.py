"""The command line. A command parses, calls one function, prints; `main` turns errors into messages and exit codes.

0 success, 1 an error or a failed check, 2 usage, 130 interrupted, 143 terminated: both leave nothing half made.
"""

import signal
import sys
from types import FrameType
from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the program and leave with its exit code. What can go wrong ends in a message, never in a traceback."""
    interrupts: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> NoReturn:
        interrupts.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        from cabochon.cli.app import execute  # the imports are part of what may be interrupted

        sys.exit(execute())
    except BaseException:  # an interrupted import may end in an error of any kind
        if interrupts:
            sys.exit(128 + interrupts[0])
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
