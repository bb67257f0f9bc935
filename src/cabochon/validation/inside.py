"""What a name inside a package leads to."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cabochon.validation.opened import Opened

__all__ = ["fault", "resolved"]


def resolved(package: "Opened", folder: str, name: str | None) -> str | None:
    """The path inside the package that `name` means in `folder`; None where it could lead out or is no path.

    A name is refused for what it says, whatever stands there: absolute, with "..", a drive, a backslash.
    """
    return _resolved(folder, name)


@lru_cache(maxsize=4096)  # every weight of a graph names the same few files
def _resolved(folder: str, name: str | None) -> str | None:
    if not name or "\\" in name or "\0" in name or name in (".", "./") or len(name) > 4096:
        return None
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or PureWindowsPath(name).drive:
        return None
    return (PurePosixPath(folder) / path).as_posix()


def fault(package: "Opened", folder: str, name: str | None, sizes: Mapping[str, int]) -> str:
    """What is wrong with a named file: "outside", "absent", "empty"; "" where it is there."""
    path = resolved(package, folder, name)
    if path is None:
        return "outside"
    if path not in sizes:
        return "absent"
    return "" if sizes[path] else "empty"
