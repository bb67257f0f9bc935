"""Where bytes are said to lie: the references of .onnx files and of OpenVINO IR, each as it is written."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from cabochon.validation.graph import Graph
from cabochon.validation.inside import resolved
from cabochon.validation.memo import once
from cabochon.validation.net import Net, spelled, weights_of

if TYPE_CHECKING:
    from cabochon.validation.opened import Opened

__all__ = ["Place", "Range", "constants", "external", "places", "ranges"]


@dataclass(frozen=True)
class Range:
    """`nbytes` of a tensor of `dtype` and `shape` are said to begin at `offset` of the file `location`.

    `at` names the tensor; `folder` is what the location is relative to. `offset` and `length` are as they are
    written, `location` None where there is none. `nbytes` is what shape and type take (-1: a shape that is none),
    `bits` what an element takes.
    """

    at: str
    folder: str
    location: str | None
    offset: str | None
    length: str | None
    dtype: str
    shape: tuple[int, ...]
    bits: int
    nbytes: int

    @property
    def start(self) -> int | None:
        """The offset in bytes, 0 where it is not said; None where what is said is no number."""
        return _number(self.offset or "0")

    @property
    def said(self) -> int | None:
        """The length in bytes; None where it is not said or no number."""
        return _number(self.length) if self.length is not None else None


@dataclass(frozen=True)
class Place:
    """The bytes of a tensor in a file of the package: a range that holds."""

    location: str
    offset: int
    nbytes: int
    dtype: str


def _number(text: str) -> int | None:
    """A decimal integer of at most 20 digits, as references are written."""
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= 20 else None


def external(package: "Opened") -> Iterator[Range]:
    """The references to external data of every graph, those in subgraphs and attributes included."""
    for graph in package.graphs.values():
        yield from once(graph, _external)


def _external(graph: Graph) -> tuple[Range, ...]:
    folder = graph.folder().as_posix()
    return tuple(
        Range(
            f"{graph.path}: {name}",
            folder,
            *(said.location, said.offset, said.length),
            *(weight.dtype, weight.shape, weight.bits, weight.nbytes),
        )
        for name, weight in graph.tensors.items()
        if (said := weight.external) is not None
    )


def ranges(package: "Opened") -> Iterator[Range]:
    """The references of every graph and of every OpenVINO IR file that can be read."""
    yield from external(package)
    yield from constants(package)


def constants(package: "Opened") -> Iterator[Range]:
    """The references of every OpenVINO IR file."""
    for net in package.nets.values():
        yield from once(net, _constants)


def _constants(net: Net) -> tuple[Range, ...]:
    folder, weights = PurePosixPath(net.path).parent.as_posix(), weights_of(net.path)
    return tuple(
        Range(
            f"{net.path}: {c.layer}",
            *(folder, weights, c.offset, c.size),
            *(spelled(c.dtype), c.shape, c.bits, c.nbytes),
        )
        for c in net.constants
    )


def places(package: "Opened") -> dict[Place, list[str]]:
    """Where tensors beside the graphs lie, of those whose range holds; each with the tensors that lie there."""
    return once(package, _places)


def _places(package: "Opened") -> dict[Place, list[str]]:
    found = dict[Place, list[str]]()
    for references, packed in ((external(package), False), (constants(package), True)):
        for one in references:
            name = resolved(package, one.folder, one.location)
            if name is not None and name in package.files and _holds(one, package.files[name], packed):
                place = Place(name, one.start or 0, one.nbytes, one.dtype)
                found.setdefault(place, []).append(one.at)
    return found


def _holds(one: Range, size: int, packed: bool) -> bool:
    """The range lies in a file of `size` bytes; unless it is `packed`, at a multiple of the element's size."""
    start, step = one.start, 1 if packed else max(one.bits // 8, 1)
    return (
        start is not None
        and start >= 0
        and start + one.nbytes <= size
        and one.nbytes >= 0
        and not start % step
    )
