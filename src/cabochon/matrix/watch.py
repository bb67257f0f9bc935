"""How a run tells what it does: events, and one count of bytes over all variants."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Event", "Share", "Watch"]

_EVERY = 0.5  # seconds between two events of progress


@dataclass(frozen=True)
class Event:
    """What happened. `event`: "planned", "kept", "started", "progress", "built", "failed", "linked" or "finished".

    `folder`: the variant that it is about, "" for all; `done` of `total` bytes of the whole run; `said`: the rest.
    """

    event: str
    folder: str = ""
    done: int = 0
    total: int = 0
    said: Mapping[str, Any] = field(default_factory=dict[str, Any])


Watch = Callable[[Event], None]


class Share:
    """A `package.Progress` of one variant that counts as `nbytes` in the whole, however many bytes are told."""

    def __init__(self, folder: str, nbytes: int, before: int, total: int, watch: Watch) -> None:
        self._folder, self._nbytes, self._before, self._total = folder, nbytes, before, total
        self._watch, self._all, self._seen, self._told = watch, 1, 0, 0.0

    def start(self, nbytes: int) -> None:
        """See Progress."""
        self._all, self._seen = max(nbytes, 1), 0

    def advance(self, nbytes: int) -> None:
        """See Progress."""
        self._seen += nbytes
        if time.monotonic() - self._told >= _EVERY:
            self._told = time.monotonic()
            done = self._before + self._nbytes * min(self._seen, self._all) // self._all
            self._watch(Event("progress", self._folder, done, self._total))

    def done(self) -> None:
        """See Progress."""
