"""cabochon parity: a package against the model it was built from."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from cabochon.cli.options import AsJson, Package, Threads
from cabochon.cli.output import print_json

__all__ = ["parity"]


def parity(
    package: Package,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="The checkpoint it was built from, of a drafter its target's; not needed with --known.",
            show_default=False,
        ),
    ] = None,
    assistant: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="Of a drafter, alone or in a pair: the assistant's checkpoint.",
            show_default=False,
        ),
    ] = None,
    known: Annotated[
        bool,
        typer.Option("--known", help="Compare with published answers of real checkpoints; needs no torch."),
    ] = False,
    new_tokens: Annotated[int, typer.Option(min=32, help="Greedy tokens to compare for each prompt.")] = 32,
    threads: Threads = None,
    scratch: Annotated[
        Path | None, typer.Option(help="Folder for what is needed during the check only.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    r"""Compare a package with the checkpoint it was built from, and write evidence into it.

    Logits and hidden states of one forward pass (L4), and greedy tokens (L5), against transformers, which is asked for
    with: pip install 'cabochon\[parity]'. Of a full package what it makes of images, sound and video is compared, each
    component by itself, and the whole. A drafter is compared step by step on its target's real states, and a pair
    generates with and without it, beside transformers' assisted generation. Exit code 1 if a comparison fails.
    """
    if source is None and not known:
        raise typer.BadParameter("name the SOURCE, or pass --known")
    from cabochon.parity import check

    evidence = check(
        package, source, assistant=assistant, known=known, new_tokens=new_tokens, threads=threads,
        scratch=scratch, progress=silent if as_json else tell,
    )  # fmt: skip
    if as_json:
        print_json(evidence.as_json())
    else:
        for verdict in evidence.verdicts:
            print(f"{'pass' if verdict.passed else 'FAIL'}  {verdict.level}: {verdict.summary}")
            print(f"      {package / verdict.file}" if verdict.file else "")
    raise typer.Exit(0 if evidence.passed else 1)


def tell(line: str) -> None:
    """What is being compared right now."""
    print(line, file=sys.stderr, flush=True)


def silent(_: str) -> None:
    """Nothing."""
