"""Graph and weights to disk: converted, hashed, written and synced at once, with a few blocks in memory."""

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from io import FileIO
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx_ir as ir

from cabochon.errors import GraphError
from cabochon.files import forget, sync
from cabochon.graph import Stored
from cabochon.package.layout import Layout

__all__ = ["Progress", "Silent", "serialize", "write_weights"]

_AHEAD = 16  # blocks in flight, 64 MB: computing goes on while the disk takes its time
_SYNC_EVERY = 32 << 20  # bytes


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


class Silent:
    """A Progress that says nothing."""

    def start(self, nbytes: int) -> None:
        """See Progress."""

    def advance(self, nbytes: int) -> None:
        """See Progress."""

    def done(self) -> None:
        """See Progress."""


def serialize(model: ir.Model, layout: Layout) -> bytes:
    """The bytes of model.onnx, the same for the same model; its weights are references to where they lie.

    The model's `Stored` initializers are replaced by these references.
    """
    for graph in model.graphs():
        for value in graph.initializers.values():
            if isinstance(weight := value.const_value, Stored):
                value.const_value = _reference(weight, layout)
    return ir.to_proto(model).SerializeToString(deterministic=True)


def _reference(weight: Stored, layout: Layout) -> ir.ExternalTensor:
    name = weight.name or ""
    place = layout.places[name]
    return ir.ExternalTensor(
        place.location, place.offset, place.nbytes, weight.dtype, shape=weight.shape, name=name
    )


def write_weights(weights: Iterable[Stored], layout: Layout, path: Path, progress: Progress) -> str:
    """Write the new file `path`: the `weights` that `layout` places in it. Returns its SHA-256, hexadecimal.

    This thread converts, one hashes, one writes, one brings to the disk what was written so far, and all of
    them let go of Python's lock. Raises TensorError for a value that its new type cannot hold, OSError for a
    full disk.
    """
    digest, waiting = hashlib.sha256(), deque[tuple[Future[None], Future[int]]]()
    with path.open("xb", buffering=0) as file, _lane() as hashing, _lane() as writing, _lane() as syncing:
        written = synced = 0
        syncs = syncing.submit(_to_disk, file, 0, 0)
        for block in _blocks(weights, layout):
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


def _blocks(weights: Iterable[Stored], layout: Layout) -> Iterator[np.ndarray]:
    """The bytes of the data file from its start to its end, zeros between the weights."""
    end = 0
    for weight in weights:
        place = layout.places[weight.name or ""]
        if place.location != layout.data:
            continue
        if place.offset > end:
            yield np.zeros(place.offset - end, np.uint8)
        end = place.offset
        for block in weight.blocks():
            yield block.reshape(-1).view(np.uint8)
            end += block.nbytes
        if end != place.offset + place.nbytes:
            found = end - place.offset
            raise GraphError(f"{found} bytes were computed; expected {place.nbytes}", at=weight.name or "")


def _write(file: FileIO, block: np.ndarray) -> int:
    rest = block.data
    while len(rest):
        rest = rest[file.write(rest) :]
    return block.nbytes
