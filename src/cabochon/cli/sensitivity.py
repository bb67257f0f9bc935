"""cabochon sensitivity: which weights need more bits."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cabochon.cli.eval import Bar
from cabochon.cli.options import AsJson, Package, Threads
from cabochon.cli.output import print_json, print_table, size

if TYPE_CHECKING:
    from cabochon.calibration import Sensitivity

__all__ = ["sensitivity"]


def sensitivity(
    package: Package,
    text: Annotated[
        Path, typer.Option(metavar="FILE", help="The text: UTF-8, as it is.", show_default=False)
    ],
    precision: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE.toml", help="The recipe whose roles are measured, one after the other."
        ),
    ] = "Q4_K_M",
    calibrate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Another text, whose statistics guide the search.", show_default=False
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Only the first so many windows of 511 tokens.")] = 16,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Measure which weights of PACKAGE, a text package in f32, suffer most in blocks.

    Each role that the recipe puts into blocks is put there alone, everything else staying f32; the worst comes first:
    by divergence from f32 for what 8 bits would take more.
    """
    from cabochon.calibration import sensitivity

    with Bar() as bar:
        found = sensitivity(
            package,
            text,
            precision=precision,
            calibrate=calibrate,
            limit=limit,
            threads=threads,
            progress=bar,
        )
    print_json(found.as_json()) if as_json else print_sensitivity(found)


def print_sensitivity(found: "Sensitivity") -> None:
    """For people."""
    print(
        f"{found.text}: {found.scored:,} tokens in windows of 511; f32 has a perplexity of "
        f"{found.perplexity:.4f}\n"
    )
    columns = ("in blocks alone", "bits>", "bytes>", "perplexity>", "KL from f32>", "same top-1>")
    print_table(
        (*columns, "8 bits take more>", "KL a MB of that>"),
        [
            (
                " ".join(role.addresses),
                str(role.bits),
                size(role.nbytes),
                f"{role.perplexity:.4f}",
                f"{role.divergence:.6f} ± {role.divergence_error:.6f}",
                f"{role.agreement:.2%}",
                size(role.more),
                f"{role.harm:.4g}",
            )
            for role in found.roles
        ],
    )
