"""Files of weights that stand already, by what they hold: linked from there, not computed again."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from cabochon import files, sums
from cabochon.matrix.plan import Unit
from cabochon.package.writer import Digest

__all__ = ["Donors", "to_compute"]


@dataclass(frozen=True)
class _Donor:
    """`checked`: that its bytes are those that were summed has been seen in this run."""

    path: Path
    digest: Digest
    checked: bool


class Donors:
    """What was written in this run, or stood there before. What stood there is hashed before it is used first."""

    def __init__(self) -> None:
        self._known = dict[str, _Donor]()

    def add(self, out: Path, unit: Unit, *, checked: bool) -> None:
        """The files of a unit that is whole."""
        package = out / unit.folder
        digests = sums.read(package)
        for file in unit.files:
            known = self._known.get(file.key)
            if file.path in digests and (known is None or (checked and not known.checked)):
                digest = Digest(file.nbytes, digests[file.path])
                self._known[file.key] = _Donor(package / file.path, digest, checked)

    def has(self, key: str) -> bool:
        """Whether a file that holds this stands already."""
        return key in self._known

    def given(self, unit: Unit) -> dict[str, tuple[Path, Digest]]:
        """By path in the package of `unit` where each file stands already, and its digest."""
        found = ((file.path, self._checked(file.key)) for file in unit.files)
        return {path: (donor.path, donor.digest) for path, donor in found if donor}

    def _checked(self, key: str) -> _Donor | None:
        donor = self._known.get(key)
        if donor is None or donor.checked:
            return donor
        if donor.path.is_file() and files.sha256(donor.path) == donor.digest.sha256:
            self._known[key] = replace(donor, checked=True)
        else:
            del self._known[key]
        return self._known.get(key)


def to_compute(units: Iterable[Unit], donors: Donors, *, links: bool = True) -> dict[str, int]:
    """By folder the bytes that are written for each of `units`, one behind the other; where the disk has no links, the
    bytes of all that it holds."""
    seen, found = set[str](), dict[str, int]()
    for unit in units:
        new = {f.key: f.nbytes for f in unit.files if not links or not (donors.has(f.key) or f.key in seen)}
        seen |= new.keys()
        found[unit.folder] = sum(new.values()) + unit.documents
    return found
