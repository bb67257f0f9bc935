"""cabochon compare: two packages side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cabochon.cli.options import AsJson, Threads
from cabochon.cli.output import print_json, print_table, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cabochon.parity import Comparison
    from cabochon.parity.comparison import Pair

__all__ = ["compare"]


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="A package.", show_default=False)],
    b: Annotated[
        Path, typer.Argument(metavar="B", help="Another one of the same model.", show_default=False)
    ],
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Compare two packages: sizes, ports, metadata, and what they answer to the same prompts.

    Of a pair the target is compared.
    """
    from cabochon.parity import compare

    found = compare(a, b, threads=threads)
    if as_json:
        print_json(found.as_json())
    else:
        print_comparison(found)


def print_comparison(found: "Comparison") -> None:
    """A comparison for people."""
    print_table(
        ("file", "a>", "b>"),
        [(name, *("" if n is None else size(n) for n in sizes)) for name, sizes in found.sizes.items()],
    )
    differing = {**found.metadata, **found.ports}
    if differing:
        print()
        print_table(("differs", "a", "b"), [(name, str(a), str(b)) for name, (a, b) in differing.items()])
    print_pairs(found.ran, found.pairs)
    if found.usual:
        print_pairs(found.ran_usually, found.usual)


def print_pairs(ran: "Sequence[str]", pairs: "Sequence[Pair]") -> None:
    """What ran both, and figures by prompt."""
    print(f"\na: {ran[0]}\nb: {ran[1]}")
    print_table(
        ("prompt", "relative difference>", "least cosine>", "same top-1>", "same greedy tokens>"),
        [
            (
                p.prompt,
                f"{p.relative:.2e}",
                f"{p.min_cosine:.8f}",
                f"{p.agreement:.1%}",
                f"{p.equal_tokens} of {p.new_tokens}",
            )
            for p in pairs
        ],
    )
