"""Weights to disk: converted, hashed, written and synced at once, with a few blocks in memory."""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from io import FileIO
from itertools import groupby
from pathlib import Path
from typing import Protocol

import numpy as np

from cabochon import files
from cabochon.errors import GraphError
from cabochon.files import forget, sha256, sync
from cabochon.package.layout import Layout, Weight

__all__ = ["Digest", "Progress", "Silent", "Written", "write_files", "write_weights"]

_AHEAD = 16  # blocks in flight, 64 MB: computing goes on while the disk takes its time
_SYNC_EVERY = 32 << 20  # bytes


@dataclass(frozen=True)
class Digest:
    """Size in bytes and SHA-256 in hexadecimal of a file."""

    nbytes: int
    sha256: str


class Progress(Protocol):
    """Is told how a build goes on. Its methods are called from the thread that called `build`."""

    def start(self, nbytes: int) -> None:
        """Writing begins; there are `nbytes` bytes to write, or to hash where they are linked."""
        ...

    def advance(self, nbytes: int) -> None:
        """`nbytes` bytes more are written, or hashed."""
        ...

    def done(self) -> None:
        """Everything is written."""
        ...


@dataclass(frozen=True)
class Written:
    """The files of weights that stand already, where each lies and its digest: `twins`, which other graphs of the
    package have, by name; `given`, which another package has, by path in the stage. `linked`: the digests of files of
    the checkpoint."""

    twins: dict[str, tuple[Path, Digest]] = field(default_factory=dict[str, tuple[Path, Digest]])
    given: Mapping[Path, tuple[Path, Digest]] = field(default_factory=dict[Path, tuple[Path, Digest]])
    linked: dict[Path, Digest] = field(default_factory=dict[Path, Digest])


class Silent:
    """A Progress that says nothing."""

    def start(self, nbytes: int) -> None:
        """See Progress."""

    def advance(self, nbytes: int) -> None:
        """See Progress."""

    def done(self) -> None:
        """See Progress."""


def write_files(
    weights: Iterable[Weight],
    layout: Layout,
    stage: Path,
    progress: Progress,
    before: Written,
) -> dict[str, Digest]:
    """The files of weights in `stage` and their digests. Those that are linked stand there already; what they
    hold is hashed, and checked as what is written: TensorError for what is no finite number.

    What stands `before` is neither computed, hashed nor written again, and what comes is added to it.
    """
    digests = {name: _linked(stage / name, file, before, progress) for name, file in layout.links.items()}
    given = _place_given(layout, stage, before)
    weights = (weight for weight in weights if layout.places[weight.name].location not in given)
    ours, apart = _parted(weights, layout)
    rest = {name: nbytes for name, nbytes in layout.files.items() if name not in given}
    digests |= given | write_weights(ours, replace(layout, files=rest), stage, progress)
    for weight in apart:
        alone = layout.alone(weight.name)
        name = alone.places[weight.name].location
        if name in before.twins:
            twin, digests[name] = before.twins[name]
            _link_or_copy(twin, stage / name)
        else:
            digests |= write_weights([weight], alone, stage, progress)
            before.twins[name] = stage / name, digests[name]
    return digests


def _place_given(layout: Layout, stage: Path, before: Written) -> dict[str, Digest]:
    """The files that are given, into `stage`, and their digests."""
    sizes = dict[str, int]()
    for place in layout.places.values():
        sizes[place.location] = max(sizes.get(place.location, 0), place.offset + place.nbytes)
    found = {name: before.given[stage / name] for name in sizes if stage / name in before.given}
    for name, (file, digest) in found.items():
        if not sizes[name] == digest.nbytes == file.stat().st_size:
            raise GraphError(f"{file} is given, of {digest.nbytes} bytes; expected {sizes[name]}", at=name)
        _link_or_copy(file, stage / name)
        if name not in layout.files:
            before.twins[name] = stage / name, digest
    return {name: digest for name, (_, digest) in found.items()}


def _link_or_copy(file: Path, name: Path) -> None:
    if files.hard_link(file, name) is not None:
        files.copy(file, name)


def _linked(path: Path, source: Path, before: Written, progress: Progress) -> Digest:
    """The digest of a linked file, of which several graphs may have a name."""
    nbytes = path.stat().st_size
    if source in before.linked:
        progress.advance(nbytes)
    else:
        before.linked[source] = Digest(nbytes, sha256(path, progress.advance))
    return before.linked[source]


def _parted(weights: Iterable[Weight], layout: Layout) -> tuple[Iterator[Weight], list[Weight]]:
    """The weights of the graph's own files, one by one, and behind the last of them those that have a file each."""
    apart = list[Weight]()

    def ours() -> Iterator[Weight]:
        for weight in weights:
            if weight.name in layout.twins:
                apart.append(weight)
            else:
                yield weight

    return ours(), apart


def write_weights(
    weights: Iterable[Weight], layout: Layout, folder: Path, progress: Progress
) -> dict[str, Digest]:
    """Write the new files of `layout` into `folder`, with the `weights` that it places in them. Returns their digests.

    Those that it places elsewhere are looked through alone: raises TensorError for a value that its new type cannot
    hold, as for what is written; OSError for a full disk.
    """
    digests = dict[str, Digest]()
    for name, group in groupby(_in_turn(weights, layout), lambda turn: turn[0]):
        blocks = _blocks((weight for _, weight in group), layout, name)
        if name in layout.files:
            digests[name] = Digest(layout.files[name], _write_file(blocks, folder / name, progress))
        else:
            deque(blocks, maxlen=0)
    return digests


def _in_turn(weights: Iterable[Weight], layout: Layout) -> Iterator[tuple[str, Weight]]:
    """The weights, each with the file being written when its turn comes; "" where there is none to write."""
    name = next(iter(layout.files), "")
    for weight in weights:
        location = layout.places[weight.name].location
        name = location if location in layout.files else name
        yield name, weight


def _write_file(blocks: Iterable[np.ndarray], path: Path, progress: Progress) -> str:
    """Write the new file `path`: these blocks of bytes. Returns its SHA-256, hexadecimal.

    This thread converts, one hashes, one writes, one brings to the disk what was written so far, and all of
    them let go of Python's lock.
    """
    digest, waiting = hashlib.sha256(), deque[tuple[Future[None], Future[int]]]()
    with path.open("xb", buffering=0) as file, _lane() as hashing, _lane() as writing, _lane() as syncing:
        written = synced = 0
        syncs = syncing.submit(_to_disk, file, 0, 0)
        for block in blocks:
            waiting.append((hashing.submit(digest.update, block.data), writing.submit(_write, file, block)))
            if len(waiting) > _AHEAD:
                written += _finish(waiting, progress)
            if written - synced >= _SYNC_EVERY and syncs.done():
                syncs.result()
                syncs, synced = syncing.submit(_to_disk, file, synced, written), written
        while waiting:
            _finish(waiting, progress)
    return digest.hexdigest()


def _to_disk(file: FileIO, start: int, end: int) -> None:
    sync(file)
    forget(file, start, end)


def _lane() -> ThreadPoolExecutor:
    """A thread that does one thing after the other."""
    return ThreadPoolExecutor(max_workers=1)


def _finish(waiting: deque[tuple[Future[None], Future[int]]], progress: Progress) -> int:
    """Wait until the oldest block is hashed and written; its size in bytes."""
    hashed, written = waiting.popleft()
    hashed.result()
    nbytes = written.result()
    progress.advance(nbytes)
    return nbytes


def _blocks(weights: Iterable[Weight], layout: Layout, name: str) -> Iterator[np.ndarray]:
    """The bytes of the file `name` from its start to its end, zeros between the weights."""
    end = 0
    for weight in weights:
        place = layout.places[weight.name]
        if place.location != name:
            deque(weight.blocks(), maxlen=0)  # linked: looked through only, and in memory by now
            continue
        if place.offset > end:
            yield np.zeros(place.offset - end, np.uint8)
        end = place.offset
        for block in weight.blocks():
            yield block.reshape(-1).view(np.uint8)
            end += block.nbytes
        if end != place.offset + place.nbytes:
            found = end - place.offset
            raise GraphError(f"{found} bytes were computed; expected {place.nbytes}", at=weight.name)


def _write(file: FileIO, block: np.ndarray) -> int:
    rest = block.data
    while len(rest):
        rest = rest[file.write(rest) :]
    return block.nbytes
