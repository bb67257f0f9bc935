"""Every file of a package read once: hashed, and what its weights hold counted from the same blocks."""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cabochon.validation.ranges import Place, places

if TYPE_CHECKING:
    from cabochon.validation.opened import Opened

__all__ = ["Format", "Scan", "Tally", "scan"]

_BLOCK = 4 << 20  # bytes that are read at once
_PIECE = 1 << 18  # bytes that are looked at at once: what the cache of a core holds
_AHEAD = 4  # blocks in flight


@dataclass(frozen=True)
class Format:
    """A binary floating-point type by its bits: `word` holds one, `infinity` is that value without its sign."""

    word: type[np.unsignedinteger]
    infinity: int

    @property
    def magnitude(self) -> int:
        """All bits but the sign."""
        return int(np.iinfo(self.word).max) >> 1


FORMATS = {
    "float16": Format(np.uint16, 0x7C00),
    "bfloat16": Format(np.uint16, 0x7F80),
    "float32": Format(np.uint32, 0x7F800000),
    "float64": Format(np.uint64, 0x7FF0000000000000),
}


@dataclass
class Tally:
    """Of one weight: how many values are no number, infinite, the largest finite one; whether any is not 0."""

    nans: int = 0
    infinite: int = 0
    largest: int = 0
    nonzero: bool = False

    def add(self, block: np.ndarray, form: Format) -> None:
        """Count in a block of the type's words. The rare values are counted only where there are some."""
        bits = block & form.word(form.magnitude)
        most = int(bits.max(initial=0))
        self.nonzero = self.nonzero or most > 0
        if most >= form.infinity - 1:
            self.nans += int(np.count_nonzero(bits > form.infinity))
            self.infinite += int(np.count_nonzero(bits == form.infinity))
            self.largest += int(np.count_nonzero(bits == form.infinity - 1))


@dataclass(frozen=True)
class Scan:
    """SHA-256 in hexadecimal of every file; what each external floating-point weight holds, by its place."""

    digests: Mapping[str, str]
    tallies: Mapping[Place, Tally]


def scan(package: "Opened") -> Scan:
    """Read every file of the package once, in order, whatever names it has. A few blocks are in memory at a time."""
    tallies = {place: Tally() for place in places(package) if place.dtype in FORMATS}
    digests = dict[str, str]()
    with ThreadPoolExecutor(1) as hashing, ThreadPoolExecutor(1) as looking:
        for names in _files(package):
            here = sorted((p for p in tallies if p.location in names), key=lambda p: p.offset)
            whole = [p for p in here if not p.offset % FORMATS[p.dtype].word().itemsize]
            digest = _read(package.path(names[0]), whole, tallies, hashing, looking)
            digests |= dict.fromkeys(names, digest)
            for place in here:
                if (
                    place not in whole and place.nbytes
                ):  # an element may lie in two blocks, as OpenVINO packs them
                    bytes_ = np.memmap(package.path(names[0]), np.uint8, "r", place.offset, place.nbytes)
                    _look(bytes_, place.offset, [place], tallies)
    return Scan(digests, tallies)


def _files(package: "Opened") -> Iterable[list[str]]:
    """The names of each file: graphs that need the same weights have links to one."""
    found: dict[tuple[int, int], list[str]] = {}
    for name in package.files:
        stat = package.path(name).stat()
        found.setdefault((stat.st_dev, stat.st_ino), []).append(name)
    return found.values()


def _read(
    path: Path,
    here: list[Place],
    tallies: Mapping[Place, Tally],
    hashing: ThreadPoolExecutor,
    looking: ThreadPoolExecutor,
) -> str:
    """The SHA-256 of a file, whose weights are tallied on the way."""
    digest, waiting, first = hashlib.sha256(), deque[tuple[Future[None], ...]](), 0
    for start, block in _blocks(path):
        end = start + len(block)
        while first < len(here) and here[first].offset + here[first].nbytes <= start:
            first += 1
        within = [p for p in here[first:] if p.offset < end and p.offset + p.nbytes > start]
        waiting.append(
            (hashing.submit(digest.update, block.data), looking.submit(_look, block, start, within, tallies))
        )
        if len(waiting) >= _AHEAD:
            _finish(waiting)
    while waiting:
        _finish(waiting)
    return digest.hexdigest()


def _finish(waiting: deque[tuple[Future[None], ...]]) -> None:
    for future in waiting.popleft():
        future.result()


def _blocks(path: Path) -> Iterator[tuple[int, np.ndarray]]:
    """The bytes of a file, block by block, with where each begins. A block's memory is used again later."""
    buffers = [np.empty(_BLOCK, np.uint8) for _ in range(_AHEAD + 1)]
    start = turn = 0
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffers[turn].data):
            yield start, buffers[turn][:count]
            start, turn = start + count, (turn + 1) % len(buffers)


def _look(block: np.ndarray, start: int, within: list[Place], tallies: Mapping[Place, Tally]) -> None:
    for place in within:
        form = FORMATS[place.dtype]
        begin = max(place.offset - start, 0)
        end = min(place.offset + place.nbytes - start, len(block))
        for at in range(begin, end, _PIECE):
            tallies[place].add(block[at : min(at + _PIECE, end)].view(form.word), form)
