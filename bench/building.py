"""Builds against a copy of the same number of bytes, fsync included, on the same disk."""

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.checkpoints import write
from bench.table import Row
from bench.watch import Watched, python

BUILD = """
import sys, cabochon
source, out, target, precision, model = sys.argv[1:]
print(cabochon.build(source, out, target=target, precision=precision, model=model).seconds)
"""
ANONYMOUS = 300e6
PIECE = 64 << 20


def checkpoint(config: dict[str, Any], folder: Path) -> Path:
    """A random checkpoint of this config, once."""
    if not folder.exists():
        write(config, folder)
    return folder


def build(source: Path, out: Path, precision: str, target: str = "default", model: str = "text") -> Watched:
    """Builds in a child process, so that starting and importing count too."""
    return python(BUILD, str(source), str(out), target, precision, model)


@dataclass(frozen=True)
class Way:
    """A target and precision, what becomes of a weight, and how many times the time of a copy it may take."""

    target: str
    precision: str
    what: str
    limit: float
    model: str = "text"


FULL = Way("default", "f16", "four components, cast", 1.5, "full")
WAYS = (
    Way("default", "f16", "cast", 1.5),
    Way("default", "bf16", "same dtype", 1.1),
    Way("cuda", "f16", "cast, per-layer table split by layers", 1.5),
)


def against_copy(
    name: str, source: Path, work: Path, rounds: int, ways: tuple[Way, ...] = WAYS
) -> Iterator[Row]:
    """Each way to write weights: ours, copy, ours, copy ...; medians."""
    return (_row(name, source, work, way, rounds) for way in ways)


def _row(name: str, source: Path, work: Path, way: Way, rounds: int) -> Row:
    ours: list[Watched] = []
    copies: list[float] = []
    out = work / "package"
    for _ in range(rounds):
        ours.append(build(source, out, way.precision, way.target, way.model))
        written = sum({file.stat().st_ino: file.stat().st_size for file in out.rglob("*.data")}.values())
        shutil.rmtree(out)
        copies.append(_copy(source / "model.safetensors", work / "copy", written))
    seconds, copying = median(run.seconds for run in ours), median(copies)
    anonymous = max(run.anonymous for run in ours)
    ratio = seconds / copying
    return Row(
        f"build {name}, {way.target} {way.precision} ({way.what})",
        f"{seconds:.1f} s ({median(run.said for run in ours):.1f} s inside `build`), "
        f"{anonymous / 1e6:.0f} MB anonymous",
        f"copy of {written / 1e9:.2f} GB with fsync: {copying:.1f} s",
        f"{ratio:.2f}",
        f"≤ {way.limit} ×, < 300 MB",
        ratio <= way.limit and anonymous < ANONYMOUS,
    )


def _copy(source: Path, to: Path, count: int) -> float:
    """Seconds to copy the first `count` bytes and bring them to the disk."""
    start = time.perf_counter()
    with source.open("rb") as a, to.open("wb") as b:
        done = 0
        while done < count and (sent := os.sendfile(b.fileno(), a.fileno(), done, min(PIECE, count - done))):
            done += sent
        os.fsync(b.fileno())
    seconds = time.perf_counter() - start
    to.unlink()
    return seconds
