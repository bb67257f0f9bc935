"""cabochon plan: the dry run."""

from collections.abc import Callable, Iterable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cabochon.cli.options import AsJson, Revision
from cabochon.cli.output import print_json, print_table, size

if TYPE_CHECKING:
    from cabochon.planning import Cache, Plan, Verdict

__all__ = ["plan"]

_PACKAGES = {
    "text": "Text package",
    "full": "Full package (--model full)",
    "drafter": "Drafter (--model drafter)",
}


def plan(
    source: Annotated[
        str | None,
        typer.Argument(metavar="SOURCE", help="A checkpoint: a folder or a hub id.", show_default=False),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A config.json alone, instead of SOURCE.", show_default=False)
    ] = None,
    assistant: Annotated[
        str | None,
        typer.Option(
            metavar="ASSISTANT",
            help="Plan a pair: the checkpoint of its assistant too, or a config.json.",
            show_default=False,
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE.toml",
            help="Plan this one alone: see `cabochon list precisions`, or the path of a recipe.",
            show_default=False,
        ),
    ] = None,
    revision: Revision = None,
    assistant_revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of the assistant's hub id.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what building a checkpoint takes, and which target can carry it in which precision. Reads no weights."""
    if (source is None) == (config is None):
        raise typer.BadParameter("give SOURCE or --config, one of them")
    if assistant_revision is not None and assistant is None:
        raise typer.BadParameter("--assistant-revision goes with --assistant")
    from cabochon.planning import plan

    found = plan(
        source,
        config=config,
        assistant=assistant,
        precision=precision,
        revision=revision,
        assistant_revision=assistant_revision,
    )
    if as_json:
        print_json(found)
    else:
        print_plan(found)


def print_plan(plan: "Plan") -> None:
    """A plan for people."""
    print(_source(plan))
    if plan.assistant:
        print(f"with {_source(plan.assistant)}")
    if plan.refused:
        print(f"Not built: {plan.refused}")
    print()
    _print_parts(plan)
    memory = f"{size(plan.build_memory)} of memory ({size(plan.packing_memory)} with weights in blocks)"
    print(f"\nBuilding takes less than {memory}, and the disk space below.")
    if plan.cache.full or plan.cache.sliding:
        print(cache_in_words(plan.cache))
    for model, verdicts in groupby(plan.verdicts, lambda verdict: verdict.model):
        print(f"\n{_PACKAGES[model]}{', in a pair' if plan.assistant else ''}:")
        _print_verdicts(list(verdicts))
    print()
    for line in (*_notes(plan), *plan.remarks):
        print(f"- {line}")


def _source(plan: "Plan") -> str:
    stored = f"{plan.parameters:,} parameters, {size(plan.nbytes)} in {plan.tensors} tensors"
    return f"{plan.source}: {plan.model_type}, {stored}"


def _print_parts(plan: "Plan") -> None:
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


def _print_verdicts(verdicts: "list[Verdict]") -> None:
    """What each target takes; and of several components what each takes in each precision, for the first target: on
    others it differs by some bytes between tables, or by zero points."""
    print_table(
        ("target", "precision", "verdict", "disk>", "memory to run>"),
        [(v.target, v.precision, v.status, size(v.disk), size(v.memory)) for v in verdicts],
    )
    first = [v for v in verdicts if v.target == verdicts[0].target]
    stored = [part.name for part in first[0].components if part.disk]
    if len(stored) > 2:
        print()
        print_table(
            (f"on disk, {first[0].target}", *(f"{name.removesuffix('_encoder')}>" for name in stored)),
            [(v.precision, *(size(part.disk) for part in v.components if part.disk)) for v in first],
        )


def _notes(plan: "Plan") -> Iterable[str]:
    """Reasons and warnings, each once, with the verdicts that it holds for."""
    yield from _said(plan, lambda v: [] if v.reason == plan.refused else v.reason.splitlines())
    yield from _said(plan, lambda v: v.warnings)


def _said(plan: "Plan", says: "Callable[[Verdict], Iterable[str]]") -> Iterable[str]:
    found: dict[str, list[Verdict]] = {}
    for verdict in plan.verdicts:
        for line in says(verdict):
            found.setdefault(line, []).append(verdict)
    for line, verdicts in found.items():
        yield f"{_named(plan, verdicts)}: {line}"


def _named(plan: "Plan", verdicts: "list[Verdict]") -> str:
    """ "cuda", "webgpu f32/f16", "cuda but f32 (full)": no more than tells them from the others."""
    found: dict[str, list[str]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.target, []).append(verdict.precision)
    every = list(dict.fromkeys(verdict.precision for verdict in plan.verdicts))
    words = (f"{target}{_among(every, names)}" for target, names in found.items())
    models = {verdict.model for verdict in verdicts}
    kinds = "" if models == {verdict.model for verdict in plan.verdicts} else f" ({' '.join(models)})"
    return ", ".join(words) + kinds


def _among(every: list[str], names: Iterable[str]) -> str:
    """ " f16/bf16", " but f32", or nothing for all: the fewest words that tell `names` from the others."""
    named = list(dict.fromkeys(names))
    others = [name for name in every if name not in named]
    if not others:
        return ""
    return f" but {'/'.join(others)}" if len(others) < len(named) else f" {'/'.join(named)}"


def cache_in_words(cache: "Cache") -> str:
    """What keys and values take."""
    sliding = f" + {cache.sliding:,} B for the last {cache.window} tokens" if cache.window else ""
    longest = f"{size(cache.longest)} at {cache.max_positions:,} tokens"
    unevicted = f"{size(cache.longest_unevicted)} if nothing is evicted"
    return f"Keys and values at 16 bits: {cache.full:,} B a token{sliding}; {longest} ({unevicted})."
