"""SHA256SUMS of a package, in the form that `sha256sum -c` reads: written, added to, verified."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from cabochon import files
from cabochon.errors import PackageError

__all__ = ["SUMS", "note", "read", "verify", "write"]

SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")


def write(package: Path, known: Mapping[str, str]) -> None:
    """The sums of every file of `package`; those `known` by name were hashed before and are not read again."""
    found = (path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file())
    sums = {name: known.get(name) or files.sha256(package / name) for name in found if name != SUMS}
    (package / SUMS).write_bytes(_text(sums))


def note(package: Path, *names: str) -> None:
    """Put the sums of the files `names`, as they are now, in the place of those before or beside the others.

    A package without sums gets none: a few lines would claim to be all of them. Where the package lies within
    another, as the target of a pair does, the sums of that one say the same.
    """
    if (package / SUMS).exists():
        now = {name: files.sha256(package / name) for name in names}
        files.replace(package / SUMS, _text(read(package) | now))
        _note_above(package.resolve(), names)


def _note_above(package: Path, names: Iterable[str]) -> None:
    try:
        listed = f"{package.name}/{SUMS}" in read(package.parent)
    except PackageError:  # no sums, or someone else's
        return
    if listed:
        note(package.parent, *(f"{package.name}/{name}" for name in (*names, SUMS)))


def verify(package: Path) -> list[str]:
    """The files whose bytes are not those that were summed, and those that are missing, by name.

    Raises PackageError where SHA256SUMS is missing or is none.
    """
    return [name for name, digest in read(package).items() if not _holds(package / name, digest)]


def read(package: Path) -> dict[str, str]:
    """File name inside `package` -> SHA-256, hexadecimal. Raises PackageError, as `verify` does."""
    try:
        lines = (package / SUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise _error(package, f"cannot be read: {error}") from None
    return dict(_parsed(package, number, line) for number, line in enumerate(lines, 1))


def _parsed(package: Path, number: int, line: str) -> tuple[str, str]:
    match = _LINE.fullmatch(line)
    path = PurePosixPath(match[2] if match else "")
    if match is None or path.is_absolute() or ".." in path.parts:
        raise _error(
            package, f"line {number} is {line[:100]!r}; expected a SHA-256 and a file of the package"
        )
    return match[2], match[1]


def _holds(path: Path, digest: str) -> bool:
    return path.is_file() and files.sha256(path) == digest


def _text(sums: Mapping[str, str]) -> bytes:
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())).encode()


def _error(package: Path, what: str) -> PackageError:
    return PackageError(what, at=str(package / SUMS), remedy="build or download the package again")
