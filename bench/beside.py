"""Loading, prefill and decoding of one or two sides in turns, each in a process of its own, as many threads on both."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench import steps
from bench.table import Row

PROMPT, STEPS = 256, 16
VARIABLE, VERSION = "CABOCHON_BENCH_LLAMA", "0.3.36"
FASTER = {"decode": 1.5, "prefill": 4.0}  # goals on two threads
GATES = {"decode": 1.3, "prefill": 3.0}


@dataclass(frozen=True)
class Figures:
    """One side with some number of threads: seconds, and bytes that the process grew by after the first answer."""

    about: str
    load: float
    anonymous: int
    mapped: int
    prefill: float
    decode: float
    deep_prefill: float
    deep_decode: float


def theirs(file: Path, llama: str, threads: int, context: int, *more: str) -> steps.Side:
    """llama.cpp's side of a comparison."""
    command = [llama, "-m", "bench.llama", "serve", str(file), str(threads), str(context), *more]
    return steps.Side(command, threads)


def context(rounds: int, deep: int) -> int:
    """Tokens that a conversation of `measured` comes to."""
    return max(deep, PROMPT) + STEPS * (rounds + 1)


def measured(sides: Mapping[str, steps.Side], rounds: int, deep: int, vocabulary: int) -> dict[str, Figures]:
    """Medians over the rounds. What is made at the first answer is not measured, but its memory is."""
    drawn = np.random.default_rng(0)
    prompt, long, after = (drawn.integers(3, vocabulary, n).tolist() for n in (PROMPT, deep, STEPS))
    first = {name: side.ask(prompt, after) for name, side in sides.items()}
    near = _turns(sides, rounds, prompt, after)
    filled = {name: side.ask(long, after) for name, side in sides.items()}
    far = _turns(sides, rounds, [], after, fresh=False)
    return {
        name: Figures(
            side.loaded["about"],
            side.loaded["seconds"],
            first[name]["RssAnon"],
            first[name]["RssFile"],
            median(said["prefill"] for said in near[name]),
            median(chain.from_iterable(said["steps"] for said in near[name])),
            filled[name]["prefill"],
            median(chain.from_iterable(said["steps"] for said in far[name])),
        )
        for name, side in sides.items()
    }


def _turns(
    sides: Mapping[str, steps.Side], rounds: int, ids: list[int], after: list[int], *, fresh: bool = True
) -> dict[str, list[dict[str, Any]]]:
    turns = [{name: side.ask(ids, after, fresh=fresh) for name, side in sides.items()} for _ in range(rounds)]
    return {name: [turn[name] for turn in turns] for name in sides}


def rows(what: str, found: Mapping[str, Figures], threads: int, deep: int) -> Iterator[Row]:
    """The table's rows of one number of threads."""
    ours, theirs = found["ours"], found.get("llama.cpp")
    what += f", {counted(threads)}"
    yield Row(
        f"load and first answer, {what}",
        _load(ours),
        f"{theirs.about}: {_load(theirs)}" if theirs else absent(),
    )
    for title, key, goal in (
        (f"prefill of {PROMPT} tokens, last logits", "prefill", "prefill"),
        (f"decode one token after {PROMPT}", "decode", "decode"),
        (f"prefill of {deep} tokens, once", "deep_prefill", None),
        (f"decode one token after {deep}", "deep_decode", None),
    ):
        yield _row(
            f"{title}, {what}",
            getattr(ours, key),
            theirs and getattr(theirs, key),
            goal if threads == 2 else None,
        )


def _row(what: str, ours: float, theirs: float | None, goal: str | None) -> Row:
    if theirs is None:
        return Row(what, _milliseconds(ours), absent())
    ratio = theirs / ours
    against, found = f"llama.cpp: {_milliseconds(theirs)}", f"{ratio:.2f} × faster"
    if goal is None:
        return Row(what, _milliseconds(ours), against, found)
    aim, gate = FASTER[goal], GATES[goal]
    passed = f"the gate of {gate} × is " + ("met" if ratio >= gate else "missed too")
    return Row(what, _milliseconds(ours), against, found, f"≥ {aim} × (gate {gate} ×)", ratio >= aim, passed)


def counted(threads: int) -> str:
    """Threads in words."""
    return f"{threads} thread{'s' * (threads > 1)}"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.1f} ms" if seconds < 1 else f"{1e3 * seconds:,.0f} ms"


def _load(side: Figures) -> str:
    return (
        f"{side.load:.1f} s, {side.anonymous / 1e9:.2f} GB anonymous, {side.mapped / 1e9:.2f} GB file-backed"
    )


def absent() -> str:
    """What stands where llama.cpp's figures would."""
    return f"no llama-cpp-python here; name a Python that has {VERSION} in {VARIABLE}"
