"""The variants that stand in a folder, as their own records tell of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cabochon import sums
from cabochon.errors import PackageError
from cabochon.matrix.standing import read_record
from cabochon.matrix.variants import VARIANTS, Variant

__all__ = ["Package", "bytes_of", "present"]


@dataclass(frozen=True)
class Package:
    """One variant on disk: its record (`provenance.json`), and its files by name with their SHA-256."""

    variant: Variant
    path: Path
    record: Mapping[str, Any]
    digests: Mapping[str, str]

    @property
    def folder(self) -> str:
        """Its name."""
        return self.variant.folder

    @property
    def pair(self) -> bool:
        """Whether it has a drafter."""
        return "assistant" in self.record

    @property
    def decodes(self) -> str:
        """The folder of the package that answers, the target of a pair, below that of all variants."""
        return f"{self.folder}/target" if self.pair else self.folder

    @property
    def full(self) -> bool:
        """Whether it is of several components."""
        return any("decoder/" in name for name in self.digests)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The bytes of its files by their SHA-256: what has two names in it counts once."""
        files = {digest: self.path / name for name, digest in self.digests.items()}
        return {digest: path.stat().st_size for digest, path in files.items() if path.is_file()}

    @property
    def nbytes(self) -> int:
        """Of its files."""
        return sum(self.sizes.values())

    def build(self, key: str) -> Any:
        """What the record says of the build."""
        return (self.record.get("build") or {}).get(key)


def present(out: Path) -> list[Package]:
    """Those that stand below `out`, whole, in the order of the table."""
    return [found for variant in VARIANTS.values() if (found := _package(variant, out / variant.folder))]


def bytes_of(variant: Variant, out: Path) -> int:
    """The bytes of the package of a variant that stands below `out`, as the index counts them."""
    found = _package(variant, out / variant.folder)
    return found.nbytes if found else 0


def _package(variant: Variant, path: Path) -> Package | None:
    try:
        return Package(variant, path, read_record(path), sums.read(path))
    except PackageError:
        return None
