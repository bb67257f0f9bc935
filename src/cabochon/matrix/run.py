"""A matrix into its folder, variant by variant. What stands there is all that a run knows of those before it."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Literal

from cabochon import files
from cabochon.checkpoint import open_checkpoint
from cabochon.checkpoint.fingerprint import fingerprint
from cabochon.errors import PackageError
from cabochon.matrix.donors import to_compute
from cabochon.matrix.index import refuse_other, write_index
from cabochon.matrix.linking import link_equal
from cabochon.matrix.making import Making, Recipe
from cabochon.matrix.outcome import Outcome, Ran
from cabochon.matrix.plan import Unit, plan_matrix
from cabochon.matrix.present import present
from cabochon.matrix.standing import Inputs, Standing, standing
from cabochon.matrix.watch import Watch
from cabochon.package.license import find_license

__all__ = ["build_matrix"]


def build_matrix(
    source: str | Path,
    out: str | Path,
    *,
    model: Literal["text", "full"] | None = None,
    assistant: str | Path | None = None,
    only: Sequence[str] = (),
    every: bool = False,
    shard: tuple[int, int] | None = None,
    revision: str | None = None,
    assistant_revision: str | None = None,
    license: str | None = None,
    allow_missing: Collection[str] = (),
    replace: bool = False,
    verify: bool = False,
    watch: Watch | None = None,
) -> Ran:
    """Build the variants of the checkpoint `source` below `out`, and an index of what stands there.

    Without `model` all of a multimodal checkpoint is built, else its text; with `assistant` each variant is a pair.
    `only` (patterns), `every` and `shard` choose variants as `plan_matrix` says; `license` and `allow_missing` are
    those of `build`. A variant that stands there and was built from the same by the same version is kept: its record
    and small files are looked at, and with `verify` every file is hashed. Files of weights that hold the same as those
    of another variant are linked.

    A variant that cannot be built does not keep others from it: see `Ran.variants`. Raises SourceError for the
    checkpoint, PackageError for `out`, a disk too small for all of it, and, unless `replace`, for what stands in the
    place of a variant and is another package or damaged.
    """
    started, out = time.monotonic(), Path(out)
    opened = open_checkpoint(source, revision=revision)
    beside = None if assistant is None else open_checkpoint(assistant, revision=assistant_revision)
    files.refuse(out / ".matrix", opened.root)
    refuse_other(out)
    roots = opened.root, None if beside is None else beside.root
    plan = partial(plan_matrix, roots[0], model=model, assistant=roots[1])
    matrix = plan(only=only, every=every, shard=shard)
    said = {
        "--model": None if matrix.model == "text" else matrix.model,
        "--assistant": assistant,
        "--revision": revision,
        "--assistant-revision": assistant_revision,
        "--license": license,
    }
    command = (str(source), *_options(said), *_options(("--allow-missing", name) for name in allow_missing))
    inputs = Inputs(
        fingerprint(opened),
        None if beside is None else fingerprint(beside),
        find_license(opened.files, license).id,
    )
    making = Making(
        out,
        matrix,
        Recipe(*roots, license, allow_missing, command),
        inputs,
        lambda only: plan(only=only).units,
        watch or (lambda event: None),
    )
    out.mkdir(parents=True, exist_ok=True)
    outcomes = tuple(_outcomes(making, replace, verify))
    index = write_index(out)
    with files.alone(index):
        equal = link_equal(out, [package.folder for package in present(out)])
    return _report(making, outcomes, equal, index, time.monotonic() - started)


def _options(said: Mapping[str, object] | Iterator[tuple[str, str]]) -> list[str]:
    """Those that are given, as words of a command."""
    pairs = said.items() if isinstance(said, Mapping) else said
    return [word for name, value in pairs if value is not None for word in (name, str(value))]


def _outcomes(making: Making, replacing: bool, verify: bool) -> Iterator[Outcome]:
    """Keep what stands there, and build the rest in the order in which files are shared."""
    out, asked = making.out, [unit for unit in making.matrix.units if not unit.refused]
    for unit in asked:
        with suppress(PackageError):  # another run writes it: it is told when its turn comes
            files.sweep(out / unit.folder)
    found = {unit.folder: standing(out, unit, making.inputs, verify=verify) for unit in asked}
    _require_ours(out, found, replacing)
    kept = {folder for folder, it in found.items() if it.state == "whole"}
    for unit in asked:
        if unit.folder in kept:
            making.know(unit, checked=verify)
    making.look_around()
    costs = _costs(making, [unit for unit in asked if unit.folder not in kept])
    making.total = sum(costs.values())
    making.tell("planned", kept=sorted(kept), building=list(costs), bytes=making.total)
    for unit in making.matrix.units:
        if unit.refused:
            outcome = Outcome(unit.folder, "refused", unit.refused)
        elif unit.folder in kept:
            outcome = making.keep(unit)
        else:
            replaced = found[unit.folder].state != "absent"
            outcome = making.make(unit, costs[unit.folder], replacing=replaced)
            making.done += costs[unit.folder]
        said = asdict(outcome)
        making.tell(said.pop("status"), said.pop("folder"), **said)
        yield outcome


def _require_ours(out: Path, found: Mapping[str, Standing], replacing: bool) -> None:
    """Raise PackageError where something stands that is neither to be kept nor to be replaced."""
    if foreign := [f"{folder}: {it.why}" for folder, it in found.items() if it.state == "foreign"]:
        raise PackageError(
            "what stands in the place of variants is none of cabochon's:\n" + "\n".join(foreign),
            at=str(out),
            remedy="choose another OUT, or move it away: --replace replaces packages alone",
        )
    wrong = {folder: it for folder, it in found.items() if it.state in ("other", "damaged")}
    if wrong and not replacing:
        what = {"other": "is another package", "damaged": "is damaged"}
        lines = [f"{folder} {what[it.state]}: {it.why}" for folder, it in wrong.items()]
        raise PackageError(
            f"{len(wrong)} of the variants that stand there are not what is asked for:\n" + "\n".join(lines),
            at=str(out),
            remedy="choose another OUT, leave them out with --only, or have them built anew with --replace",
        )


def _costs(making: Making, building: list[Unit]) -> dict[str, int]:
    """By folder the bytes that are written for each. Raises PackageError where the disk has not as many."""
    with files.aside(making.out / "links") as probe:
        links = files.has_links(probe)
    taken = to_compute(building, making.donors, links=links)
    free = files.free_space(making.out)
    if (needed := sum(taken.values())) > free:
        most = sorted(taken.items(), key=lambda item: -item[1])[:3]
        raise PackageError(
            f"{len(building)} variants need {needed:,} bytes; {free:,} are free on this disk. Most is for "
            + ", ".join(f"{folder} ({nbytes:,})" for folder, nbytes in most)
            + ("" if links else ". The disk has no hard links, so that nothing is shared"),
            at=str(making.out),
            remedy=f"free {needed - free:,} bytes, choose another disk, or build some of them: --only, --shard",
        )
    return to_compute(building, making.donors)


def _report(
    making: Making, outcomes: tuple[Outcome, ...], equal: tuple[int, int], index: Path, seconds: float
) -> Ran:
    matrix = making.matrix
    built = {outcome.folder for outcome in outcomes if outcome.status == "built"}
    read = sum(outcome.read_bytes for outcome in outcomes)
    alone = sum(file.read for unit in matrix.units if unit.folder in built for file in unit.files)
    whole = max(matrix.source_bytes, 1)
    ran = Ran(
        making.out, matrix.model, outcomes, matrix.source_bytes, read, round(read / whole, 3),
        round(alone / whole, 3), *equal, round(seconds, 3), index, matrix.remarks,
    )  # fmt: skip
    said = {key: value for key, value in asdict(ran).items() if key != "variants"}
    making.tell("finished", complete=ran.complete, **said)
    return ran
