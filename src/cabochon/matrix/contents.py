"""What the files of weights of a variant hold, known from the checkpoint's headers: two that hold the same are one."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from cabochon.checkpoint import Tensor
from cabochon.checkpoint.tensor import BITS
from cabochon.dialects import Target
from cabochon.package.layout import Layout, inside, lay_out, twins
from cabochon.recipes import Part, Weight

__all__ = ["Content", "contents", "stored"]


@dataclass(frozen=True)
class Content:
    """A file of weights. `path`: in its package. `key`: the same where all bytes are, by construction: the same weights
    in the same order, type and places. `read`: the bytes of the checkpoint that it is computed from. `names`: how many
    it has in the package.
    """

    path: str
    nbytes: int
    key: str
    read: int
    names: int = 1

    def within(self, folder: str) -> "Content":
        """The same, of a package that lies in `folder` of another."""
        return replace(self, path=inside(folder, self.path))


def contents(weights: Mapping[str, Iterable[Weight]], target: Target) -> tuple[Content, ...]:
    """The files of a package with these `weights`, by the folder of each graph, and with the layout of `target`.

    Of a file with two names the first is named. Raises TargetError for a weight that the target cannot read.
    """
    held = {name: tuple(some) for name, some in weights.items()}
    both, found = twins(held), dict[str, Content]()
    for folder, some in held.items():
        layout = lay_out(some, None, both, target.file_bytes)
        for name, group in _by_file(some, layout).items():
            shared = name if name not in layout.files else inside(folder, name)
            known = found.get(shared)
            found[shared] = (
                replace(known, names=known.names + 1)
                if known
                else _content(inside(folder, name), group, layout)
            )
    return tuple(found.values())


def _by_file(weights: Iterable[Weight], layout: Layout) -> dict[str, list[Weight]]:
    groups = dict[str, list[Weight]]()
    for weight in weights:
        if weight.nbytes:
            groups.setdefault(layout.places[weight.name].location, []).append(weight)
    return groups


def _content(path: str, weights: list[Weight], layout: Layout) -> Content:
    places = [layout.places[weight.name] for weight in weights]
    said = repr([(place.offset, place.nbytes, *_recipe(w)) for place, w in zip(places, weights, strict=True)])
    return Content(
        path,
        places[-1].offset + places[-1].nbytes,
        hashlib.sha256(said.encode()).hexdigest(),
        sum(_read(weight) for weight in weights),
    )


def _recipe(weight: Weight) -> Iterator[Any]:
    """All that decides over the bytes of a weight."""
    tensor = weight.tensor
    yield from (str(tensor.file), tensor.offset, tensor.name, tensor.dtype, tensor.shape, weight.precision)
    if isinstance(weight, Part):
        packing = weight.packing
        if packing.importance is not None:
            raise ValueError("scales that follow a text are not compared")
        yield from (weight.what, packing.scheme, packing.columns, packing.rows, packing.width, packing.across)
    else:
        yield from (weight.columns, weight.rows)


def _read(weight: Weight) -> int:
    """Scales and zero points are left by the pass that computes the codes."""
    tensor = weight.tensor
    if isinstance(weight, Part):
        numbers = prod(weight.packing.shape) if weight.what == "codes" else 0
    else:
        numbers = prod(weight.shape)
    return stored(tensor, numbers)


def stored(tensor: Tensor, numbers: int) -> int:
    """The bytes of so many numbers of a tensor in the checkpoint."""
    return numbers * BITS[tensor.dtype] // 8
