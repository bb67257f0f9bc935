"""The split of a matrix over machines: the same for everyone who plans it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from cabochon.errors import PackageError

if TYPE_CHECKING:
    from cabochon.matrix.plan import Unit

__all__ = ["read_shard", "shard_of", "split"]


def read_shard(text: str) -> tuple[int, int]:
    """ "2/3" -> (2, 3). Raises PackageError for what is none."""
    first, slash, count = text.partition("/")
    if not (slash and first.isdecimal() and count.isdecimal() and 1 <= int(first) <= int(count)):
        raise PackageError(f"shard is {text!r}; expected i/n, with i from 1 to n, such as 2/3")
    return int(first), int(count)


def shard_of(units: "Iterable[Unit]", i: int, n: int) -> "tuple[Unit, ...]":
    """The i-th of n shards, counted from 1."""
    if not 1 <= i <= n:
        raise PackageError(f"shard is {i}/{n}; expected i/n, with i from 1 to n")
    units = list(units)
    parts = split(units, min(n, len(units) or 1))
    return parts[i - 1] if i <= len(parts) else ()


def split(units: "Iterable[Unit]", n: int) -> "list[tuple[Unit, ...]]":
    """`n` parts of about as many bytes to compute, each in the order of `units`; what is made of another stays with it.

    What shares files lies together where a part takes it: of several sizes of parts the one is chosen by which the
    largest has least to compute.
    """
    units = list(units)
    even = _to_compute(units) / n
    splits = [_parts(units, n, even * (1 + i / 20)) for i in range(21)]
    best = min(splits, key=lambda parts: max(map(_to_compute, parts)))
    return [tuple(unit for unit in units if unit in part) for part in best]


def _parts(units: "list[Unit]", n: int, size: float) -> "list[list[Unit]]":
    """Each group to where it adds least, of the parts that then have no more than `size` bytes; where none is, to the
    one that then has least. The largest groups first."""
    parts: list[list[Unit]] = [[] for _ in range(n)]
    for group in sorted(_groups(units), key=lambda group: -_to_compute(group)):
        loads = [_to_compute(part) for part in parts]
        after = [_to_compute([*part, *group]) for part in parts]
        room = [i for i in range(n) if after[i] <= size]
        best = min(room, key=lambda i: after[i] - loads[i]) if room else after.index(min(after))
        parts[best] += group
    return parts


def _groups(units: "Iterable[Unit]") -> "list[list[Unit]]":
    """What is made of one another together; a unit comes behind what it is made of."""
    groups: dict[str, list[Unit]] = {}
    for unit in units:
        group = groups[unit.variant.needs] if unit.variant.needs else []
        group.append(unit)
        groups[unit.folder] = group
    return list({id(group): group for group in groups.values()}.values())


def _to_compute(units: "Iterable[Unit]") -> int:
    """Bytes; those of a file that several hold once."""
    units = list(units)
    files = {file.key: file.nbytes for unit in units for file in unit.files}
    return sum(files.values()) + sum(unit.documents for unit in units)
