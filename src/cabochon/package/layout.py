"""Where each weight lies in a package: in the model.onnx.data of its graph, in a file of the checkpoint that is linked,
or, where two graphs need it, in a file of its own that has a name in the folder of each.

Where files may have so many bytes only, those of a graph go on in model.onnx.data_1, model.onnx.data_2, and so on.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from cabochon.checkpoint import Tensor
from cabochon.errors import TargetError

__all__ = [
    "DATA",
    "GRAPH",
    "Layout",
    "Layouts",
    "Link",
    "Place",
    "Weight",
    "data_bytes",
    "inside",
    "lay_out",
    "twins",
]

GRAPH, DATA = "model.onnx", "model.onnx.data"

# A runtime maps a file in whole pages: 4 KiB on most systems. Windows maps from multiples of 64 KiB only (and
# some ARM machines have such pages), which is kept for what is worth mapping by itself.
_PAGE, _GRANULE, _LARGE = 1 << 12, 1 << 16, 1 << 20


class Weight(Protocol):
    """What is written: a `recipes.Recipe`."""

    @property
    def name(self) -> str:
        """Its name in the graph."""
        ...

    @property
    def shape(self) -> Sequence[int]:
        """Of its elements."""
        ...

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        ...

    @property
    def sources(self) -> tuple[Tensor, ...]:
        """The checkpoint tensors it is computed from."""
        ...

    @property
    def span(self) -> tuple[Path, int] | None:
        """The file and the offset in bytes where the checkpoint has exactly its bytes, if it has."""
        ...

    def blocks(self) -> Iterator[np.ndarray]:
        """Its bytes in order, as C-contiguous arrays of a few megabytes."""
        ...


@dataclass(frozen=True)
class Place:
    """A range of bytes in a file of the package."""

    location: str
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Layout:
    """The place of each weight of a graph by name, in the order of the files.

    `files` are those to write, in their order, and the bytes of each. `links` are the names under which files of
    the checkpoint stand in the folder; `copied` says why a weight that was to be linked is not. `twins` are the
    weights that another graph has too, each in a file of its own.
    """

    places: Mapping[str, Place]
    files: Mapping[str, int]
    links: Mapping[str, Path] = field(default_factory=dict)
    copied: Mapping[str, str] = field(default_factory=dict)
    twins: Collection[str] = ()

    @property
    def nbytes(self) -> int:
        """The bytes to write, without those of `twins`."""
        return sum(self.files.values())

    def alone(self, name: str) -> "Layout":
        """The layout of one of the twins."""
        place = self.places[name]
        return Layout({name: place}, {place.location: place.nbytes})


@dataclass(frozen=True)
class Layouts:
    """Of a package with several graphs: the layout of each by its folder, "" for the package's own."""

    parts: Mapping[str, Layout]

    @property
    def nbytes(self) -> int:
        """The bytes to write; what has two names counts once."""
        twins = {name: part.places[name].nbytes for part in self.parts.values() for name in part.twins}
        return sum(part.nbytes for part in self.parts.values()) + sum(twins.values())

    @property
    def links(self) -> dict[str, Path]:
        """The files of the checkpoint by their paths in the package."""
        return {
            inside(folder, name): file
            for folder, part in self.parts.items()
            for name, file in part.links.items()
        }

    @property
    def copied(self) -> dict[str, str]:
        """Why a weight that was to be linked is not."""
        return {name: why for part in self.parts.values() for name, why in part.copied.items()}


def inside(folder: str, name: str) -> str:
    """The path of a file in a folder of a package; "" is the package's own."""
    return f"{folder}/{name}" if folder else name


def twins(parts: Mapping[str, Iterable["Weight"]]) -> set[str]:
    """The names of the weights that more than one graph has."""
    counts = Counter(weight.name for weights in parts.values() for weight in weights)
    return {name for name, count in counts.items() if count > 1}


class Link(Protocol):
    """Tries to make a file of the checkpoint a file of the package."""

    def __call__(self, source: Path, name: str) -> str | None:
        """None where it stands under `name`, else the reason why it cannot."""
        ...


def lay_out(
    weights: Iterable[Weight],
    link: Link | None = None,
    twins: Collection[str] = (),
    limit: int | None = None,
) -> Layout:
    """Give every weight its place: one behind the other, or, given `link`, where the checkpoint has it.

    Those that are `twins` and not linked get a file each. `limit`: the most bytes of a file, None for any number.
    Raises TargetError for a weight that is larger.
    """
    weights = list(weights)
    for weight in weights:
        _require_within(weight, limit)
    if link is None:
        return _layout(weights, {}, {}, {}, twins, limit)
    copied = {weight.name: reason for weight in weights if (reason := _unlinkable(weight))}
    copied |= _not_worth_it(weights, copied)
    linkable = [(weight, weight.span) for weight in weights if weight.span and weight.name not in copied]
    sources = list(dict.fromkeys(file for _, (file, _) in linkable))
    links, refused = _link_files(sources, link, alone=not copied)
    names = {file: name for name, file in links.items()}
    places: dict[str, Place] = {}
    for weight, (file, offset) in linkable:
        if file in refused:
            copied[weight.name] = refused[file]
        else:
            places[weight.name] = Place(names[file], offset, weight.nbytes)
    return _layout(weights, places, links, copied, twins, limit)


def _require_within(weight: Weight, limit: int | None) -> None:
    if limit is not None and weight.nbytes > limit:
        raise TargetError(
            f"takes {weight.nbytes:,} bytes; the target reads files of at most {limit:,}",
            at=weight.name,
            remedy="choose a precision with fewer bits, or another target",
        )


def _layout(
    weights: list[Weight],
    linked: Mapping[str, Place],
    links: Mapping[str, Path],
    copied: Mapping[str, str],
    twins: Collection[str],
    limit: int | None,
) -> Layout:
    """All weights in order; those that are neither `linked` nor `twins` one behind the other in the files to write."""
    apart = [weight.name for weight in weights if weight.name in twins and weight.name not in linked]
    ours = [weight for weight in weights if weight.name not in linked and weight.name not in apart]
    behind = zip(ours, _behind([weight.nbytes for weight in ours], limit), strict=True)
    written = {weight.name: Place(_named(file), start, weight.nbytes) for weight, (file, start) in behind}
    alone = {weight.name: Place(f"{weight.name}.data", 0, weight.nbytes) for weight in weights}
    found = {**alone, **written, **linked}
    ends = {place.location: place.offset + place.nbytes for place in written.values()}
    return Layout(
        {weight.name: found[weight.name] for weight in weights},
        {name: nbytes for name, nbytes in ends.items() if nbytes},
        links,
        copied,
        apart,
    )


def data_bytes(sizes: Iterable[int], limit: int | None = None) -> int:
    """The bytes of the files that hold weights of these `sizes`, in bytes, one behind the other; see `lay_out`."""
    sizes = list(sizes)
    ends = {file: start + nbytes for nbytes, (file, start) in zip(sizes, _behind(sizes, limit), strict=True)}
    return sum(ends.values())


def _named(file: int) -> str:
    return f"{DATA}_{file}" if file else DATA


def _behind(sizes: Iterable[int], limit: int | None) -> Iterator[tuple[int, int]]:
    """The file of each weight, counted from 0, and where it begins there: behind the one before, or in a new file."""
    file = end = 0
    for nbytes in sizes:
        start = _start(end, nbytes)
        if limit is not None and start + nbytes > limit:
            file, start = file + 1, 0
        end = start + nbytes
        yield file, start


def _start(end: int, nbytes: int) -> int:
    """Where a weight of `nbytes` begins that stands behind what ends at `end`."""
    step = _GRANULE if nbytes >= _LARGE else _PAGE
    return -(-end // step) * step


def _unlinkable(weight: Weight) -> str | None:
    """Why the weight's bytes cannot be used where the checkpoint has them; None where they can."""
    if weight.span is None:
        source = weight.sources[0]
        whole = math.prod(weight.shape) == math.prod(source.shape)
        return f"the checkpoint holds {source.dtype}" if whole else "only a part of a tensor is needed"
    # onnxruntime 1.32 reads any offset right on the CPU (seven operators, f32 and f16, tried at 12 offsets); what
    # maps the bytes as an array of elements needs whole ones.
    if weight.span[1] % max(weight.nbytes // max(math.prod(weight.shape), 1), 1):
        return f"the checkpoint has it at byte {weight.span[1]}, which is no multiple of its element's size"
    return None


def _not_worth_it(weights: list[Weight], copied: Mapping[str, str]) -> dict[str, str]:
    """Of the weights that are not `copied` those in a file whose other weights are: it would be there twice over."""
    used: dict[Path, int] = {}
    lost: dict[Path, int] = {}
    for weight in weights:
        counts, file = (lost if weight.name in copied else used), weight.sources[0].file
        counts[file] = counts.get(file, 0) + weight.sources[0].nbytes
    rest = {file for file, nbytes in used.items() if nbytes < lost.get(file, 0)}
    reason = "most of the file is stored otherwise"
    return {w.name: reason for w in weights if w.name not in copied and w.sources[0].file in rest}


def _link_files(sources: list[Path], link: Link, alone: bool) -> tuple[dict[str, Path], dict[Path, str]]:
    """The files that could be linked by their names in the package, and of the others the reason.

    One file that holds everything (`alone`) takes the place of model.onnx.data; others are numbered.
    """
    links, refused, count = dict[str, Path](), dict[Path, str](), len(sources)
    for i, file in enumerate(sources, 1):
        name = DATA if alone and count == 1 else f"checkpoint-{i:05d}-of-{count:05d}.safetensors"
        reason = link(file, name)
        if reason is None:
            links[name] = file
        else:
            refused[file] = reason
    return links, refused
