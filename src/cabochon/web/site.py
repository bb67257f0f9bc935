"""All files of the page for one package by their URLs: what the server serves and what a static site is written of."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from cabochon import files
from cabochon.errors import PackageError
from cabochon.web.libraries import FOLDER, import_map, local_files
from cabochon.web.manifest import FILES, manifest

__all__ = ["INDEX", "Site", "assemble", "write"]

INDEX, MANIFEST = "index.html", "web.json"
PAGE = Path(__file__).with_name("page")
IMPORT_MAP = re.compile(r'(<script type="importmap">).*?(</script>)', re.DOTALL)


@dataclass(frozen=True)
class Site:
    """`files`: bytes, or the real path, of each file by its URL, relative and unquoted; `manifest` is its web.json."""

    files: Mapping[str, Path | bytes]
    manifest: Mapping[str, Any]

    @property
    def nbytes(self) -> int:
        """Of all files together."""
        return sum(len(f) if isinstance(f, bytes) else f.stat().st_size for f in self.files.values())


def assemble(package: str | Path, libraries: str | Path | None = None) -> Site:
    """The page for a package. `libraries` is a node_modules; None: the page names a CDN instead.

    Raises PackageError for a package that no browser can run, and for libraries that are not those pinned.
    """
    path, local = Path(package), libraries is not None
    said = manifest(path)
    index = _with_import_map((PAGE / INDEX).read_text(encoding="utf-8"), import_map(local=local))
    found: dict[str, Path | bytes] = {
        **dict(_inside(PAGE)),
        INDEX: index.encode(),
        MANIFEST: json.dumps(said, ensure_ascii=False, indent=1).encode(),
        **{FILES + name: file for name, file in _served(path, said)},
    }
    return Site(found | (local_files(Path(libraries)) if libraries is not None else {}), said)


def _with_import_map(page: str, modules: Mapping[str, Any]) -> str:
    text = json.dumps(modules, indent=1)
    return IMPORT_MAP.sub(lambda found: f"{found[1]}\n{text}\n{found[2]}", page, count=1)


def _served(package: Path, said: Mapping[str, Any]) -> Iterator[tuple[str, Path]]:
    """The files of a package but for those of components that the page does not load."""
    graphs = {unquote(graph["file"]).removeprefix(FILES) for graph in said["graphs"].values()}
    held = dict(_inside(package))
    unused = {
        name.removesuffix("model.onnx")
        for name in held
        if name.endswith("/model.onnx") and name not in graphs
    }
    for name, file in held.items():
        if not any(name.startswith(folder) for folder in unused):
            yield name, file


def _inside(folder: Path) -> Iterator[tuple[str, Path]]:
    """Name and real path of each file; without hidden ones and those that a symlink has elsewhere."""
    root = folder.resolve()
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        real = path.resolve()
        hidden = any(part.startswith((".", "__pycache__")) for part in name.parts)
        if real.is_file() and real.is_relative_to(root) and not hidden:
            yield name.as_posix(), real


def write(site: Site, out: Path) -> None:
    """Write a static site: whole or not at all. Files of the package and libraries are hard links where possible.

    Raises PackageError where `out` exists or cannot be written.
    """
    _refuse_inside(out, site)
    with files.staged(out) as stage:
        for name, file in site.files.items():
            place = stage / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(file, bytes):
                place.write_bytes(file)
            elif not name.startswith((FILES, FOLDER)) or files.hard_link(file, place) is not None:
                files.copy(file, place)


def _refuse_inside(out: Path, site: Site) -> None:
    """A site within its package would become part of it."""
    package = next(file for name, file in site.files.items() if name == FILES + "SHA256SUMS")
    assert isinstance(package, Path)
    if out.resolve().is_relative_to(package.parent):
        raise PackageError(
            "SITE lies inside the package", at=str(out), remedy="choose a folder outside of it"
        )
