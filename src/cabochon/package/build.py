"""One package, from a checkpoint or two to its final name."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cabochon import files
from cabochon.errors import PackageError
from cabochon.package.filling import Given, fill, linked_bytes, remarks, written
from cabochon.package.kinds import DRAFTER, KINDS
from cabochon.package.order import Order, order
from cabochon.package.pairing import Parts, fill_pair
from cabochon.package.preparing import prepare
from cabochon.package.writer import Progress, Silent
from cabochon.recipes.statistics import Statistics

__all__ = ["Built", "build"]


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
    model: Literal["text", "full", "drafter"] = "text",
    assistant: str | Path | None = None,
    target: str = "default",
    precision: str | Path = "f16",
    revision: str | None = None,
    assistant_revision: str | None = None,
    weights: Literal["copy", "link"] = "copy",
    license: str | None = None,
    allow_missing: Collection[str] = (),
    logits_to_keep: int = 0,
    calibration: Statistics | None = None,
    given: Given | None = None,
    command: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Built:
    """Build the package `out` from the checkpoint `source`, a folder or a hub id.

    `model` is what to build: "text" for the text decoder, "full" for all components of a multimodal checkpoint,
    "drafter" for an assistant. With `assistant`, the checkpoint of one, `out` becomes a pair: the drafter, and the
    package of `source` within it, in `target/`. `source` may then be a text or full package that was built already.

    `precision` says how weights are stored: a name of the table, or the path of a recipe, a TOML file.
    `weights="link"` makes the checkpoint's own files part of the package, as hard links, where the bytes are
    the same, and copies the rest; of a package that was built already it links every file. `license` counts where the
    source says nothing. `allow_missing` names what may be absent: "tokenizer", "generation_config", "chat_template".
    `calibration`, of `cabochon.calibrate`, guides the search of scales. `given` are files of weights, by path in `out`,
    that stand in another package with the same bytes, and their digests: they are linked, or copied, and not computed.
    `command` is recorded as given.

    Nothing stands under `out` before everything does. Raises SourceError for the checkpoint, TargetError for
    a target that cannot carry the precision, PackageError for `out`, a full disk, or a pair that does not fit.
    """
    started, out = time.monotonic(), Path(out)
    asked = order(target, precision, weights, license, allow_missing, logits_to_keep, command, calibration)
    _check(model, assistant, asked)
    files.refuse(out)
    told = progress or Silent()
    if assistant is None:
        nbytes, said, linked = _one(source, out, model, asked, revision, told, given or {})
    else:
        parts = Parts(source, KINDS[model], assistant, revision, assistant_revision, given or {})
        nbytes, said, linked = fill_pair(parts, out, asked, told)
    return Built(out, target, asked.precision.name, nbytes, time.monotonic() - started, said, linked)


def _check(model: str, assistant: str | Path | None, asked: Order) -> None:
    if model not in KINDS:
        raise PackageError(f"model is {model!r}; expected one of {', '.join(KINDS)}")
    if model == DRAFTER.name and assistant is not None:
        raise PackageError(
            "an assistant is given for a drafter; expected a target to draft for",
            remedy="give the target's checkpoint, without --model drafter",
        )
    if assistant is not None and asked.logits_to_keep == 1:
        raise PackageError(
            "logits_to_keep is 1, which fixes it; a target verifies several tokens at once",
            remedy="leave it out: the runtime asks for as many positions as it needs",
        )
    if model == DRAFTER.name and asked.precision.statistics is not None:
        raise PackageError(
            "statistics are given for a drafter; they are of models that read text by themselves"
        )
    if model == DRAFTER.name and asked.logits_to_keep:
        raise PackageError(f"logits_to_keep is {asked.logits_to_keep}; a drafter has no such input")


def _one(
    source: str | Path,
    out: Path,
    model: str,
    asked: Order,
    revision: str | None,
    told: Progress,
    given: Given,
) -> tuple[int, tuple[str, ...], bool]:
    """A package of one model: its bytes, remarks, and whether files were linked."""
    known = prepare(source, KINDS[model], asked, revision, out)
    with files.staged(out) as stage:
        layouts = known.layouts(stage)
        there = sum(digest.nbytes for _, digest in given.values())
        files.require_space(stage.parent, known.size(layouts) - there)
        told.start(layouts.nbytes - there + linked_bytes(stage, layouts.links))
        facts = fill(known, layouts, stage, told, given=given)
        told.done()
        nbytes = written(stage, layouts.links)
    return nbytes, (*known.absent, *remarks(facts, layouts, asked.license)), bool(layouts.links)
