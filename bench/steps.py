"""A decoder in a process of its own, asked over pipes, one line of JSON each way: what two runtimes are measured with.

`python -m bench.steps PACKAGE THREADS` is our side, through cabochon's runtime with its own caches.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from bench.watch import status

ROOT = Path(__file__).resolve().parents[1]
SETTLE = 0.3  # seconds in which idle threads of the other side stop spinning


class Decoder(Protocol):
    """One conversation. `feed` gives the logits of the last token; `about` is what to know of the runtime."""

    about: str

    def forget(self) -> None: ...
    def feed(self, ids: Sequence[int]) -> Any: ...


class Ours:
    """A package in cabochon's runtime: chunks of 512, sliding caches cut to the window, logits of the last token."""

    def __init__(self, package: str, threads: int, **options: Any) -> None:
        import cabochon
        from cabochon.runtime.state import State

        self.model = cabochon.load(package, threads=threads, **{"provider": "cpu", **options})
        self._empty: Callable[[], State] = lambda: State(self.model.session, self.model.eviction)
        self.about = self.model.session.metadata["cabochon.precision"]
        self.forget()

    def forget(self) -> None:
        self.state = self._empty()

    def feed(self, ids: Sequence[int]) -> Any:
        return self.state.prefill(ids)


def serve(opened: Callable[[], Decoder]) -> None:
    """Answers until its input ends.

    Asked with `ids`, the prompt, `steps`, single tokens that are fed after it, `fresh`, whether to forget before, and
    `greedy`, how many tokens to choose: says the seconds of the prompt and of each step, and the chosen tokens.
    """
    before, start = status(), time.perf_counter()
    decoder = opened()
    loaded = {"seconds": time.perf_counter() - start, "about": decoder.about}
    _say(loaded | _grown(before))
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["fresh"]:
            decoder.forget()
        said: dict[str, Any] = {"prefill": _timed(decoder, asked["ids"]) if asked["ids"] else None}
        said["steps"] = [_timed(decoder, [token]) for token in asked["steps"]]
        said["greedy"] = _greedy(decoder, asked["greedy_after"], asked["greedy"]) if asked["greedy"] else []
        _say(said | _grown(before))


def _timed(decoder: Decoder, ids: Sequence[int]) -> float:
    start = time.perf_counter()
    decoder.feed(ids)
    return time.perf_counter() - start


def _greedy(decoder: Decoder, ids: Sequence[int], count: int) -> list[int]:
    found: list[int] = []
    for _ in range(count):
        logits = decoder.feed(found[-1:] or ids)
        found.append(int(logits.argmax()))
    return found


def _grown(before: dict[str, int]) -> dict[str, int]:
    now = status()
    return {key: now[key] - before[key] for key in ("RssAnon", "RssFile")}


def _say(said: dict[str, Any]) -> None:
    print(json.dumps(said), flush=True)


class Side:
    """A process that serves a decoder, from outside; `loaded` is what it said when it was ready."""

    def __init__(self, command: Sequence[str], threads: int) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONPATH": str(ROOT)}
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.loaded = self._heard()

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, *_: object) -> None:
        self._child.communicate()

    def ask(
        self,
        ids: Sequence[int],
        steps: Sequence[int] = (),
        *,
        fresh: bool = True,
        greedy_after: Sequence[int] = (),
        greedy: int = 0,
    ) -> dict[str, Any]:
        """See `serve`."""
        time.sleep(SETTLE)
        asked = {"ids": list(ids), "steps": list(steps), "fresh": fresh}
        asked |= {"greedy_after": list(greedy_after), "greedy": greedy}
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(asked) + "\n")
        self._child.stdin.flush()
        return self._heard()

    def _heard(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"a measured process ended with {self._child.wait()}")
        return json.loads(line)


def ours(package: Path, threads: int) -> Side:
    """Our side of a comparison."""
    return Side([sys.executable, "-m", "bench.steps", str(package), str(threads)], threads)


if __name__ == "__main__":
    serve(lambda: Ours(sys.argv[1], int(sys.argv[2])))
