"""Where media comes from: a path, bytes or an open file, turned into something that a decoder reads from its start."""

import io
import os
from pathlib import Path
from typing import Any, BinaryIO

from cabochon.errors import RequestError

__all__ = ["Source", "name_of", "opened"]

Source = str | Path | bytes | bytearray | memoryview | BinaryIO


def name_of(source: Any, kind: str) -> str:
    """What errors call `source`: its path, or what it is."""
    if isinstance(source, str | os.PathLike):
        return str(os.fspath(source))
    if isinstance(source, bytes | bytearray | memoryview):
        return f"{kind} of {memoryview(source).nbytes} bytes"
    return str(getattr(source, "name", f"{kind} ({type(source).__name__})"))


def opened(source: Any, kind: str, also: str) -> io.BufferedIOBase | io.BytesIO:
    """`source` as a seekable file, to be closed by the caller. `also` names what else is taken, for the error."""
    at = name_of(source, kind)
    if isinstance(source, str | os.PathLike):
        return _file(Path(source), at)
    data = source.read() if hasattr(source, "read") else source
    if not isinstance(data, bytes | bytearray | memoryview):
        what = (
            f"{type(source).__name__} cannot be read as {kind}; expected a path, bytes, an open file, {also}"
        )
        raise RequestError(what, at=at)
    if not memoryview(data).nbytes:
        raise RequestError(
            "is empty: no bytes at all", at=at, remedy="the file was perhaps read to its end before"
        )
    return io.BytesIO(data)


def _file(path: Path, at: str) -> io.BufferedIOBase:
    if str(path).startswith(("http:/", "https:/", "data:")):
        what = "is an address; nothing is fetched from the network here"
        raise RequestError(what, at=at, remedy="fetch it first, and give its bytes or a file")
    try:
        if not path.stat().st_size and path.is_file():
            raise RequestError("is empty: 0 bytes", at=at)
        return path.open("rb")
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        raise RequestError(what, at=at, remedy="check the path and the permissions") from error
