"""How Python itself is set while one thread traces graphs and others write weights."""

import atexit
import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

__all__ = ["quick_turns", "settle", "uncollected"]

_TURN = 0.0005  # seconds


@contextmanager
def quick_turns() -> Generator[None]:
    """Who waits for Python's lock gets it soon: threads that hash and write come for it after every block.

    Beside a thread that computes in Python, 1.74 GB took 4.2 to 4.5 s to write with turns of 5 ms, Python's own, and
    3.3 to 3.7 s with these; 3.1 to 3.9 s with nothing beside (two cores of an AMD EPYC, 2026-11).
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def uncollected() -> Generator[None]:
    """Imports and graphs make hundreds of thousands of objects and next to no cycles: looking for some takes a tenth of
    the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@cache
def settle() -> None:
    """What was imported stays for good: once told, the collector does not walk through its hundred thousands of
    objects any more. Told again when the process ends, it does not look for what to free then: half a second in all."""
    gc.freeze()
    atexit.register(gc.freeze)
