"""The npm packages that the page imports: pinned by version and hash, served from a folder or named at a CDN."""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cabochon.errors import PackageError

__all__ = ["FOLDER", "LIBRARIES", "Library", "import_map", "local_files"]

FOLDER = "libraries/"  # where their files stand beside the page
TABLE = Path(__file__).with_name("libraries.json")


@dataclass(frozen=True)
class Library:
    """One file of an npm package. `integrity` is its hash as browsers take it, `specifiers` the names of a module."""

    package: str
    version: str
    path: str
    bytes: int
    integrity: str
    specifiers: tuple[str, ...] = ()

    def url(self, *, local: bool) -> str:
        """Where the page finds it: beside itself, relative, or at the CDN."""
        if local:
            return f"./{FOLDER}{self.package}/{self.path}"
        return _table()["cdn"].format(name=self.package, version=self.version, path=self.path)


@cache
def _table() -> Mapping[str, Any]:
    return json.loads(TABLE.read_text(encoding="utf-8"))


def _read() -> Iterator[Library]:
    for package, said in _table()["packages"].items():
        for path, file in said["files"].items():
            names = tuple(file.get("specifiers", ()))
            yield Library(package, said["version"], path, file["bytes"], file["integrity"], names)


LIBRARIES = tuple(_read())


def import_map(*, local: bool) -> dict[str, Any]:
    """The import map of the page: names of modules to URLs, and the hashes of all files.

    Those of WebAssembly stand there for the page's own code, which fetches it; a browser checks modules alone.
    """
    urls = {library: library.url(local=local) for library in LIBRARIES}
    return {
        "imports": {name: url for library, url in urls.items() for name in library.specifiers},
        "integrity": {url: library.integrity for library, url in urls.items() if library.path != "LICENSE"},
    }


def local_files(folder: Path) -> dict[str, Path]:
    """The files in a node_modules, by the name they are served under.

    Raises PackageError where one is missing or is not the one that is pinned.
    """
    return {
        library.url(local=True).removeprefix("./"): _checked(folder / library.package / library.path, library)
        for library in LIBRARIES
    }


def _checked(path: Path, library: Library) -> Path:
    asked = f"npm install {library.package}@{library.version}"
    if not path.is_file():
        raise PackageError("it is missing", at=str(path), remedy=f"{asked}, or leave out --libraries")
    digest = hashlib.sha384(path.read_bytes()).digest()
    found = f"sha384-{base64.b64encode(digest).decode()}"
    if found != library.integrity:
        raise PackageError(
            f"it is {found}; expected {library.integrity}, that of {library.package} {library.version}",
            at=str(path),
            remedy=asked,
        )
    return path.resolve()
