"""What packages of a matrix have in common becomes one file with several names."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from cabochon import files, sums

__all__ = ["link_equal"]


def link_equal(out: Path, folders: Iterable[str]) -> tuple[int, int]:
    """Make files of these packages below `out` that are the same by their sums other names of the first such file.

    Files that are written again in place of old ones, as evidence is, stay apart. What is linked to is hashed before.
    Returns the count and the bytes of the files that are no longer there twice; (0, 0) where the disk has no links.
    """
    names = dict[str, Path]()
    count = nbytes = 0
    with files.aside(out / "linking") as aside:
        if not files.has_links(aside):
            return 0, 0
        for digest, path in _files(out, folders):
            first = names.get(digest)
            if first is None or first.stat().st_dev != path.stat().st_dev:
                names[digest] = path
            elif not first.samefile(path):
                size = path.stat().st_size
                if files.sha256(first) == digest and files.link_over(first, path, aside / "link") is None:
                    count, nbytes = count + 1, nbytes + size
    return count, nbytes


def _files(out: Path, folders: Iterable[str]) -> Iterator[tuple[str, Path]]:
    for folder in folders:
        for name, digest in sums.read(out / folder).items():
            path = out / folder / name
            own = path.name in ("README.md", sums.SUMS) or path.parent.name == "evidence"
            if not own and path.is_file() and path.stat().st_size:
                yield digest, path
