"""The only module that knows fsync, rename, locks, hard links and free space.

Tested on Linux. macOS and Windows are kept possible: what differs is in `_lock` and the functions that sync.
"""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO

from cabochon.errors import PackageError

__all__ = [
    "alone",
    "aside",
    "copy",
    "forget",
    "free_space",
    "hard_link",
    "has_links",
    "link_over",
    "refuse",
    "replace",
    "require_space",
    "retire",
    "sha256",
    "staged",
    "sweep",
    "sync",
]

_WINDOWS = os.name == "nt"
_PIECE = 4 << 20  # bytes


def refuse(out: Path, source: Path | None = None) -> None:
    """Raise PackageError where `out` cannot be a new folder: it exists, or is below a file or `source`.

    Its path must be text: libraries take paths in UTF-8, so that no runtime would open a package elsewhere.
    """
    if (shown := os.fsencode(out.absolute()).decode("utf-8", "backslashreplace")) != str(out.absolute()):
        raise PackageError(
            "OUT is no UTF-8 text; expected a path of characters", at=shown, remedy="choose another name"
        )
    if os.path.lexists(out):
        what = "exists already" if out.is_dir() else "is a file"
        raise PackageError(
            f"OUT {what}; expected a name that is free",
            at=str(out),
            remedy="delete it or choose another name",
        )
    above = next(parent for parent in out.absolute().parents if os.path.lexists(parent))
    if not above.is_dir():
        raise PackageError(
            f"OUT lies below {above}, which is not a folder", at=str(out), remedy="choose another name"
        )
    if source is not None and out.resolve().is_relative_to(source.resolve()):
        raise PackageError(
            f"OUT lies inside {source}, which is read",
            at=str(out),
            remedy="choose a folder outside of it",
        )


def free_space(folder: Path) -> int:
    """The bytes that are free on the disk that `folder` lies on, or will lie on."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    return shutil.disk_usage(there).free


def require_space(folder: Path, nbytes: int) -> None:
    """Raise PackageError where the disk that `folder` lies on has less than `nbytes` free."""
    free = free_space(folder)
    if free < nbytes:
        raise PackageError(
            f"the package needs {nbytes:,} bytes; {free:,} are free on this disk",
            at=str(folder),
            remedy=f"free {nbytes - free:,} bytes, or choose a folder on another disk",
        )


@contextmanager
def staged(out: Path) -> Generator[Path]:
    """A folder beside `out` to write into: renamed to `out` when the block ends well, removed otherwise.

    Everything is on the disk before the rename, so that `out` is complete whenever it exists. What a killed
    run left behind is removed by the next one: who holds the lock knows that any stage it finds is a dead
    run's. Raises PackageError for what the system refuses.
    """
    with _beside(out, "stage") as stage:
        yield stage
        _sync_tree(stage)
        refuse(out)
        stage.rename(out)
        _sync_folder(out.parent)


@contextmanager
def aside(out: Path) -> Generator[Path]:
    """A folder beside `out` for what is needed on the way to it: removed when the block ends, however it ends.

    A killed run's is removed as `staged` says. Raises PackageError for what the system refuses.
    """
    with _beside(out, "aside") as folder:
        yield folder


@contextmanager
def _beside(out: Path, purpose: str) -> Generator[Path]:
    """A new folder beside `out`, which nobody else writes meanwhile; afterwards nothing stands under its name."""
    refuse(out)
    with _explained(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with _locked(out):
            for leftover in _leftovers(out):
                shutil.rmtree(leftover)
            folder = out.with_name(f".{out.name}.{purpose}-{os.getpid()}")
            folder.mkdir()
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)


def sweep(out: Path) -> None:
    """Remove what killed runs left beside `out`. Raises PackageError where a living one writes it, or the system
    refuses."""
    lock = out.with_name(f".{out.name}.lock")
    if out.parent.is_dir() and (lock.exists() or _leftovers(out)):
        with _explained(out), _locked(out):
            for leftover in _leftovers(out):
                shutil.rmtree(leftover)


def retire(out: Path) -> None:
    """Remove the folder `out`, all of it at once: what a kill leaves of it no longer has its name, and is removed as
    `staged` says. Raises PackageError as `sweep` does."""
    with _explained(out), _locked(out):
        old = out.with_name(f".{out.name}.aside-{os.getpid()}")
        out.rename(old)
        shutil.rmtree(old)


@contextmanager
def alone(path: Path) -> Generator[None]:
    """One run at a time is in the block of this `path`; others wait. Raises PackageError for what the system
    refuses."""
    with _explained(path):
        lock = path.with_name(f".{path.name}.lock")
        file = _lock(lock, wait=True)
        try:
            yield
        finally:
            with suppress(OSError):
                lock.unlink()
            if file is not None:
                file.close()


def _leftovers(out: Path) -> list[Path]:
    left = re.compile(rf"\.{re.escape(out.name)}\.(stage|aside)-\d+")
    return [path for path in out.parent.iterdir() if left.fullmatch(path.name)]


@contextmanager
def _explained(out: Path) -> Generator[None]:
    """What the system says about a file becomes a PackageError with a remedy."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        reason = (error.strerror or str(error)).lower()
        message = f"the package could not be written: {reason}"
        if error.filename is not None:
            message += f" ({error.filename})"
        remedy = (
            "free space or choose a folder on another disk"
            if full
            else "check the folder and its permissions"
        )
        raise PackageError(f"{message}; nothing was left behind", at=str(out), remedy=remedy) from error


@contextmanager
def _locked(out: Path) -> Generator[None]:
    """One run at a time writes `out`. The system drops the lock when the process dies, however it dies."""
    path = out.with_name(f".{out.name}.lock")
    file = _lock(path)
    if file is None:
        raise PackageError(
            "another build is writing this package", at=str(out), remedy="wait for it or choose another name"
        )
    try:
        yield
    finally:
        with suppress(OSError):  # Windows does not remove an open file
            path.unlink()
        file.close()


def _lock(path: Path, *, wait: bool = False) -> BinaryIO | None:
    """The open, locked file; None where another process holds it, unless we `wait` for it."""
    while True:
        file = path.open("ab")
        try:
            if _WINDOWS:
                import msvcrt

                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)  # pyright: ignore
            else:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            # Whoever held it may have removed the file between our open and our lock: then it counts no more.
            if os.path.lexists(path) and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except OSError as error:
            file.close()
            if error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
                return None
            raise
        file.close()


def hard_link(source: Path, name: Path) -> str | None:
    """Make `name` another name of the file `source`. Where the system refuses, its reason."""
    try:
        os.link(source, name)
    except OSError as error:
        if error.errno == errno.EXDEV:
            return "the checkpoint lies on another filesystem"
        return f"the system refuses a hard link: {(error.strerror or str(error)).lower()}"
    return None


def has_links(folder: Path) -> bool:
    """Whether the disk that `folder` lies on lets a file have two names."""
    one, other = (folder / f".links-{os.getpid()}-{i}" for i in (1, 2))
    try:
        one.touch()
        return hard_link(one, other) is None
    finally:
        one.unlink(missing_ok=True)
        other.unlink(missing_ok=True)


def link_over(source: Path, name: Path, aside: Path) -> str | None:
    """Make the file `name` another name of `source`, at once, by way of the free name `aside` on the same disk. Where
    the system refuses, its reason."""
    reason = hard_link(source, aside)
    if reason is None:
        aside.replace(name)
        aside.unlink(missing_ok=True)  # rename does nothing where both are names of one file
    return reason


def replace(path: Path, data: bytes) -> None:
    """Make `data` the content of the file `path`, whole or not at all. Raises PackageError as `staged` does."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with _explained(path):
        try:
            with aside.open("wb") as file:
                file.write(data)
                file.flush()
                sync(file)
            aside.replace(path)
            _sync_folder(path.parent)
        finally:
            aside.unlink(missing_ok=True)


def copy(source: Path, destination: Path) -> None:
    """The content of `source` as a file of its own, through any symlink."""
    shutil.copyfile(source, destination)


def sha256(path: Path, advance: Callable[[int], object] = lambda nbytes: None) -> str:
    """The SHA-256 of a file, in hexadecimal, read in pieces; `advance` is told the bytes of each."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            advance(len(piece))
    return digest.hexdigest()


def sync(file: IO[bytes]) -> None:
    """Bring what was written so far to the disk."""
    getattr(os, "fdatasync", os.fsync)(file.fileno())


def forget(file: IO[bytes], start: int, end: int) -> None:
    """Give back the memory that holds bytes `start` to `end`, which are on the disk.

    A large file would fill the memory with pages, and the system would look for ones to free while it is asked for
    more. Building 9.26 GB in f16 took 19 to 20 s of system time where pages were kept until an eighth of the memory was
    left, and 7 to 9 without them; 3 GB of 24 were free then, and 11 (two cores of an AMD EPYC, 2026-11). Who reads the
    file next reads it from the disk.
    """
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file.fileno(), start, end - start, os.POSIX_FADV_DONTNEED)


def _sync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_dir():
            _sync_folder(path)
        else:
            with path.open("rb+" if _WINDOWS else "rb") as file:
                os.fsync(file.fileno())
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    if _WINDOWS:  # has no such thing
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
