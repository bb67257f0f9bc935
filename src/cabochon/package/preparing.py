"""A checkpoint read and judged: all that is known of a package before anything is traced or written."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from cabochon import files
from cabochon.checkpoint import Checkpoint, open_checkpoint
from cabochon.dialects import Target
from cabochon.gemma4 import TextTensors
from cabochon.package.kinds import Kind
from cabochon.package.layout import Layout, Layouts, Link, lay_out, twins
from cabochon.package.license import License, find_license
from cabochon.package.order import Order
from cabochon.package.side_files import require, travelling
from cabochon.recipes import Weight
from cabochon.recipes.recipe_file import require_applicable

__all__ = ["Prepared", "copied", "prepare"]

_SPARE = 1 << 20  # bytes; graph and documents are not known in size before they are written


@dataclass(frozen=True)
class Prepared:
    """A checkpoint with what it holds. `recipes`: the weights of each graph by its folder, "" for the package's own, in
    their order; `absent`: remarks on files that the checkpoint lacks."""

    kind: Kind
    order: Order
    checkpoint: Checkpoint
    config: Any  # what `kind.read` makes of config.json
    tensors: TextTensors
    license: License
    recipes: Mapping[str, tuple[Weight, ...]]
    absent: tuple[str, ...]

    def layouts(self, folder: Path) -> Layouts:
        """Where each weight lies in `folder`, in which the folders of the graphs are made. What is linked is linked
        there now. Raises TargetError for a weight that the target cannot read from a file."""
        both, parts = twins(self.recipes), dict[str, Layout]()
        target = self.order.target
        for name, recipes in self.recipes.items():
            (folder / name).mkdir(exist_ok=True)
            link = _linker(folder / name, target) if self.order.linking else None
            parts[name] = lay_out(recipes, link, both, target.file_bytes)
        return Layouts(parts)

    def size(self, layout: Layouts) -> int:
        """The bytes that the package takes, about."""
        along = travelling(self.checkpoint.files)
        return layout.nbytes + sum(self.checkpoint.files[name].stat().st_size for name in along) + _SPARE


def prepare(source: str | Path, kind: Kind, order: Order, revision: str | None, out: Path) -> Prepared:
    """Read and check everything but the bytes of weights.

    Raises SourceError for the checkpoint, TargetError for a target that cannot carry it, PackageError where it lacks
    files or `out` lies in it.
    """
    checkpoint = open_checkpoint(source, revision=revision, check=kind.read)
    files.refuse(out, checkpoint.root)
    absent = require(checkpoint.files, order.allow_missing, kind.needed)
    config = kind.read(checkpoint.config)
    precision = order.precision
    order.target.require(precision.activations, kind.head_sizes(config), precision.methods)
    tensors = kind.tensors(checkpoint.tensors, config)
    require_applicable(precision, tensors.used, kind.component)
    licensed = find_license(checkpoint.files, order.license)
    precision = kind.fitted(config, tensors.used, precision)
    recipes = kind.weights(config, tensors.used, order.target, precision)
    return Prepared(
        kind, replace(order, precision=precision), checkpoint, config, tensors, licensed, recipes, absent
    )


def copied(layout: Layouts) -> Iterator[str]:
    """Remarks on what is linked, and on what was to be and is not."""
    reasons = layout.copied
    for reason, names in groupby(sorted(reasons, key=reasons.__getitem__), reasons.__getitem__):
        first, *others = names
        rest = f" and {len(others)} more" if others else ""
        yield f"copied, not linked: {first}{rest}: {reason}"
    if layout.links:
        yield f"{', '.join(layout.links)}: another name of the checkpoint's file; a change in one is in both"


def _linker(folder: Path, target: Target) -> Link:
    def link(source: Path, name: str) -> str | None:
        nbytes, limit = source.stat().st_size, target.file_bytes
        if limit is not None and nbytes > limit:
            return f"the file has {nbytes:,} bytes, {target.name} reads files of at most {limit:,}"
        return files.hard_link(source, folder / name)

    return link
