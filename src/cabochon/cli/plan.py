"""cabochon plan: the dry run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cabochon.cli.options import AsJson, Revision
from cabochon.cli.output import print_json, print_table, size

if TYPE_CHECKING:
    from cabochon.planning import Cache, Plan

__all__ = ["plan"]


def plan(
    source: Annotated[
        str | None,
        typer.Argument(metavar="SOURCE", help="A checkpoint: a folder or a hub id.", show_default=False),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A config.json alone, instead of SOURCE.", show_default=False)
    ] = None,
    revision: Revision = None,
    as_json: AsJson = False,
) -> None:
    """Say what building a checkpoint takes, and which target can carry it in which precision. Reads no weights."""
    if (source is None) == (config is None):
        raise typer.BadParameter("give SOURCE or --config, one of them")
    from cabochon.planning import plan

    found = plan(source, config=config, revision=revision)
    if as_json:
        print_json(found)
    else:
        print_plan(found)


def print_plan(plan: "Plan") -> None:
    """A plan for people."""
    stored = f"{plan.parameters:,} parameters, {size(plan.nbytes)} in {plan.tensors} tensors"
    print(f"{plan.source}: {plan.model_type}, {stored}")
    if plan.refused:
        print(f"Not built: {plan.refused}")
    print()
    print_table(
        ("part", "tensors>", "parameters>", "stored>"),
        [(part.name, str(part.tensors), f"{part.parameters:,}", size(part.nbytes)) for part in plan.parts],
    )
    print()
    print_table(
        ("largest tensors", "shape", "elements>", "stored>", ""),
        [
            (
                t.name,
                " x ".join(map(str, t.shape)),
                f"{t.elements:,}",
                size(t.nbytes),
                "" if t.int32 else "beyond int32",
            )
            for t in plan.largest
        ],
    )
    print(f"\nBuilding takes less than {size(plan.build_memory)} of memory, and the disk space below.")
    if plan.cache.full or plan.cache.sliding:
        print(cache_in_words(plan.cache))
    print()
    print_table(
        ("target", "precision", "verdict", "disk>", "memory to run>"),
        [(v.target, v.precision, v.status, size(v.disk), size(v.memory)) for v in plan.verdicts],
    )
    print()
    for v in plan.verdicts:
        if v.reason and v.reason != plan.refused:
            print(f"- {v.target} {v.precision}: {v.reason}")
    warnings = {f"{v.target}: {warning}": None for v in plan.verdicts for warning in v.warnings}
    for line in (*warnings, *plan.remarks):
        print(f"- {line}")


def cache_in_words(cache: "Cache") -> str:
    """What keys and values take."""
    sliding = f" + {cache.sliding:,} B for the last {cache.window} tokens" if cache.window else ""
    longest = f"{size(cache.longest)} at {cache.max_positions:,} tokens"
    unevicted = f"{size(cache.longest_unevicted)} if nothing is evicted"
    return f"Keys and values at 16 bits: {cache.full:,} B a token{sliding}; {longest} ({unevicted})."
