"""One package, from a checkpoint to its final name.

What traces graphs (onnx_ir and sympy with it) takes a second or two to import. It is imported and used by a thread of
its own, while this one writes the weights already: nothing imported at the top of this module may need it.
"""

import gc
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cabochon import __version__, files
from cabochon.checkpoint import Checkpoint, open_checkpoint
from cabochon.dialects import TARGETS, Target
from cabochon.errors import PackageError, TargetError
from cabochon.gemma4 import TextConfig, TextTensors, read_text_config, text_tensors, text_weights
from cabochon.package.layout import Layout, Link, lay_out
from cabochon.package.license import License, find_license
from cabochon.package.side_files import require, travelling
from cabochon.package.writer import Digest, Progress, Silent, write_files
from cabochon.recipes import PRECISIONS, Precision, Recipe

if TYPE_CHECKING:
    from cabochon.package.facts import Facts

__all__ = ["Built", "build", "trace"]

_Known = tuple[
    Checkpoint, TextConfig, TextTensors, Target, Precision, License, int, Sequence[str] | None
]  # what `trace` takes

_SPARE = 1 << 20  # bytes; graph and documents are not known in size before they are written
_MOST_KEPT = 2**31 - 1  # no model has as many positions


@dataclass(frozen=True)
class Built:
    """What a build made. `nbytes`: of the package without linked files; `remarks`: what to know."""

    path: Path
    target: str
    precision: str
    nbytes: int
    seconds: float
    remarks: tuple[str, ...]
    linked: bool


def build(
    source: str | Path,
    out: str | Path,
    *,
    target: str = "default",
    precision: str = "f16",
    revision: str | None = None,
    weights: Literal["copy", "link"] = "copy",
    license: str | None = None,
    allow_missing: Collection[str] = (),
    logits_to_keep: int = 0,
    command: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Built:
    """Build the text package `out` from the checkpoint `source`, a folder or a hub id.

    `weights="link"` makes the checkpoint's own files part of the package, as hard links, where the bytes are
    the same, and copies the rest. `license` counts where the source says nothing. `allow_missing` names what
    may be absent: "tokenizer", "generation_config", "chat_template". `command` is recorded as given.

    Nothing stands under `out` before everything does. Raises SourceError for the checkpoint, TargetError for
    a target that cannot carry the precision, PackageError for `out` or a full disk.
    """
    started, out = time.monotonic(), Path(out)
    chosen, stored = _choose(target, precision)
    _check(weights, license, logits_to_keep)
    files.refuse(out)
    checkpoint = open_checkpoint(source, revision=revision, check=read_text_config)
    files.refuse(out, checkpoint.root)
    absent = require(checkpoint.files, allow_missing)
    config = read_text_config(checkpoint.config)
    chosen.require(precision, (layer.head_dim for layer in config.layers))
    tensors, licensed = text_tensors(checkpoint.tensors, config), find_license(checkpoint.files, license)
    recipes = list(text_weights(config, tensors.used, chosen, stored))
    known = (checkpoint, config, tensors, chosen, stored, licensed, logits_to_keep, command)
    with files.staged(out) as stage, ThreadPoolExecutor(1) as aside:
        layout, told = lay_out(recipes, _linker(stage) if weights == "link" else None), progress or Silent()
        files.require_space(stage.parent, _size(checkpoint, layout))
        graph = aside.submit(_graph, known, layout, stage)
        digests = write_files(_unless_failed(graph, recipes), layout, stage, told)
        facts = _finished(graph.result(), digests, layout, stage)
        told.done()
        nbytes = sum(
            path.stat().st_size
            for path in stage.rglob("*")
            if path.is_file() and path.name not in layout.links
        )
    remarks = (*absent, *_remarks(facts, layout, license))
    return Built(out, target, precision, nbytes, time.monotonic() - started, remarks, bool(layout.links))


def _choose(target: str, precision: str) -> tuple[Target, Precision]:
    for what, name, known in (("target", target, TARGETS), ("precision", precision, PRECISIONS)):
        if name not in known:
            raise TargetError(f"unknown {what} {name!r}; expected one of {', '.join(known)}")
    TARGETS[target].require(precision)
    return TARGETS[target], PRECISIONS[precision]


def _check(weights: str, license: str | None, logits_to_keep: int) -> None:
    if weights not in ("copy", "link"):
        raise PackageError(f"weights is {weights!r}; expected 'copy' or 'link'")
    if license and not license.isprintable():
        raise PackageError(f"license is {license!a}; expected an identifier, such as apache-2.0")
    if not 0 <= logits_to_keep <= _MOST_KEPT:
        raise PackageError(f"logits_to_keep is {logits_to_keep}; expected 0, for all, or up to {_MOST_KEPT}")


def trace(
    checkpoint: Checkpoint,
    config: TextConfig,
    tensors: TextTensors,
    target: Target,
    precision: Precision,
    license: License,
    logits_to_keep: int,
    command: Sequence[str] | None,
) -> "Facts":
    """The traced model and what is known of it before anything is written."""
    from cabochon.gemma4 import trace_text
    from cabochon.package.facts import Facts

    model = trace_text(config, tensors.used, target, precision, logits_to_keep=logits_to_keep)
    model.producer_name, model.producer_version = "cabochon", __version__
    said = None if command is None else tuple(command)
    return Facts(checkpoint, config, tensors, model, target, precision, license, {}, (), logits_to_keep, said)


def _graph(known: _Known, layout: Layout, stage: Path) -> "Facts":
    """Trace and place the graph: what goes on beside the writing of the weights."""
    from cabochon.package.assembly import place_graph

    _settle()
    return place_graph(trace(*known), layout, stage)


@cache
def _settle() -> None:
    """What was imported stays for good: once told, the collector does not walk through sympy's hundred thousands of
    objects any more, least of all when the process ends, which took half a second."""
    gc.freeze()


def _finished(facts: "Facts", digests: dict[str, Digest], layout: Layout, stage: Path) -> "Facts":
    """Complete the package in `stage`, where the graph and the files of weights, with these `digests`, stand."""
    from cabochon.package.assembly import complete

    facts = replace(facts, digests={**facts.digests, **digests}, linked=tuple(layout.links))
    complete(facts, stage)
    return facts


def _size(checkpoint: Checkpoint, layout: Layout) -> int:
    """The bytes that a package takes, about."""
    along = sum(checkpoint.files[name].stat().st_size for name in travelling(checkpoint.files))
    return layout.nbytes + along + _SPARE


def _unless_failed(other: "Future[Facts]", recipes: Iterable[Recipe]) -> Iterator[Recipe]:
    """The recipes, for as long as the `other` thread has not failed: there is no use in writing on."""
    for recipe in recipes:
        if other.done():
            other.result()
        yield recipe


def _linker(stage: Path) -> Link:
    return lambda source, name: files.hard_link(source, stage / name)


def _remarks(facts: "Facts", layout: Layout, license: str | None) -> Iterator[str]:
    yield from facts.checkpoint.remarks
    yield from facts.config.remarks
    if caveat := facts.target.caveats.get(facts.precision.name):
        yield f"{facts.precision.name} on {facts.target.name}: {caveat}"
    for reason, names in groupby(
        sorted(layout.copied, key=layout.copied.__getitem__), layout.copied.__getitem__
    ):
        first, *others = names
        rest = f" and {len(others)} more" if others else ""
        yield f"copied, not linked: {first}{rest}: {reason}"
    if layout.links:
        yield f"{', '.join(layout.links)}: another name of the checkpoint's file; a change in one is in both"
    if license and license != facts.license.id:
        yield f"--license {license} is not used: {facts.license.evidence}"
    if facts.license.id == "unknown":
        yield f"the licence is unknown: {facts.license.evidence}"
