"""Where each weight lies in a package: in model.onnx.data, or in a file of the checkpoint that is linked."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import onnx_ir as ir

from cabochon.graph import Stored

__all__ = ["DATA", "GRAPH", "Layout", "Link", "Place", "lay_out", "stored_weights"]

GRAPH, DATA = "model.onnx", "model.onnx.data"

# A runtime maps a file in whole pages: 4 KiB on most systems. Windows maps from multiples of 64 KiB only (and
# some ARM machines have such pages), which is kept for what is worth mapping by itself.
_PAGE, _GRANULE, _LARGE = 1 << 12, 1 << 16, 1 << 20


@dataclass(frozen=True)
class Place:
    """A range of bytes in a file of the package."""

    location: str
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Layout:
    """The place of each weight by name, in the order of first use.

    `data` is the name of the file to write, of `nbytes` bytes, None where every weight is linked. `links` are
    the names under which files of the checkpoint stand in the package; `copied` says why a weight that was to
    be linked is not.
    """

    places: Mapping[str, Place]
    data: str | None
    nbytes: int
    links: Mapping[str, Path] = field(default_factory=dict)
    copied: Mapping[str, str] = field(default_factory=dict)


class Link(Protocol):
    """Tries to make a file of the checkpoint a file of the package."""

    def __call__(self, source: Path, name: str) -> str | None:
        """None where it stands under `name`, else the reason why it cannot."""
        ...


def stored_weights(model: ir.Model) -> list[Stored]:
    """The weights of the model, each once, in the order in which its nodes first ask for them."""
    found: dict[str, Stored] = {}
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        for value in node.inputs:
            if value is not None and isinstance(value.const_value, Stored):
                found.setdefault(value.const_value.name or "", value.const_value)
    for value in model.graph.initializers.values():  # a weight that is an output, or that nothing uses
        if isinstance(value.const_value, Stored):
            found.setdefault(value.const_value.name or "", value.const_value)
    return list(found.values())


def lay_out(weights: Iterable[Stored], link: Link | None = None) -> Layout:
    """Give every weight its place: one behind the other, or, given `link`, where the checkpoint has it."""
    weights = list(weights)
    if link is None:
        return _append(weights, DATA, {}, {}, {})
    reasons = {_name(weight): reason for weight in weights if (reason := _unlinkable(weight))}
    names, refused = _link_files(_files(weights, reasons), bool(reasons), link)
    places: dict[str, Place] = {}
    for weight in weights:
        if weight.span is not None and weight.span[0] in names and _name(weight) not in reasons:
            places[_name(weight)] = Place(names[weight.span[0]], weight.span[1], weight.nbytes)
        elif weight.span is not None:
            reasons.setdefault(_name(weight), refused.get(weight.span[0], ""))
    links = {name: file for file, name in names.items()}
    return _append(weights, DATA, places, links, reasons)


def _append(
    weights: list[Stored],
    data: str,
    linked: Mapping[str, Place],
    links: Mapping[str, Path],
    copied: Mapping[str, str],
) -> Layout:
    """Places in the file to write for all weights that have none yet."""
    places, end = dict[str, Place](), 0
    for weight in weights:
        if place := linked.get(_name(weight)):
            places[_name(weight)] = place
            continue
        step = _GRANULE if weight.nbytes >= _LARGE else _PAGE
        start = -(-end // step) * step
        places[_name(weight)] = Place(data, start, weight.nbytes)
        end = start + weight.nbytes
    return Layout(places, data if len(linked) < len(weights) else None, end, links, copied)


def _unlinkable(weight: Stored) -> str | None:
    """Why the weight's bytes cannot be used where the checkpoint has them; None where they can."""
    if weight.span is None:
        source = weight.sources[0]
        same_dtype = source.array().dtype == weight.dtype.numpy()
        return "only a part of a tensor is needed" if same_dtype else f"the checkpoint holds {source.dtype}"
    if weight.span[1] % weight.dtype.itemsize:
        return f"the checkpoint has it at byte {weight.span[1]}, which is no multiple of its element's size"
    return None


def _files(weights: list[Stored], reasons: Mapping[str, str]) -> list[Path]:
    """The files that linkable weights lie in, in the order of first use."""
    spans = (weight.span for weight in weights if _name(weight) not in reasons)
    return list(dict.fromkeys(span[0] for span in spans if span is not None))


def _link_files(
    files: list[Path], some_are_copied: bool, link: Link
) -> tuple[dict[Path, str], dict[Path, str]]:
    """The names of the files that could be linked, and for the others the reason.

    One file that holds everything takes the place of model.onnx.data; several are numbered.
    """
    names, refused = dict[Path, str](), dict[Path, str]()
    for file, name in zip(files, _link_names(len(files), some_are_copied), strict=True):
        reason = link(file, name)
        if reason is None:
            names[file] = name
        else:
            refused[file] = reason
    return names, refused


def _link_names(count: int, some_are_copied: bool) -> Iterator[str]:
    if count == 1 and not some_are_copied:
        yield DATA
    else:
        yield from (f"checkpoint-{i:05d}-of-{count:05d}.safetensors" for i in range(1, count + 1))


def _name(weight: Stored) -> str:
    return weight.name or ""
