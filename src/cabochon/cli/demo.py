"""cabochon demo: the whole way on the shipped miniature."""

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cabochon.cli.options import AsJson
from cabochon.cli.output import print_json, print_table, size
from cabochon.errors import PackageError

if TYPE_CHECKING:
    from cabochon.demo import Account

__all__ = ["demo"]


def demo(
    out: Annotated[
        Path | None,
        typer.Option(help="Folder to keep the packages in; else they are removed.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build, check and run the miniature that comes with cabochon. Exit code 1 if a check fails."""
    from cabochon.demo import demo

    if out is not None:
        require_room(out)
    with tempfile.TemporaryDirectory(prefix="cabochon-demo-") as aside:
        account = demo(out or Path(aside))
    if as_json:
        print_json({"passed": account.passed, **vars(account)})
    else:
        print_account(account)
    raise typer.Exit(0 if account.passed else 1)


def require_room(out: Path) -> None:
    """Raise PackageError, before anything is built, where the packages cannot be new folders in `out`."""
    from cabochon.demo.tour import VARIANTS
    from cabochon.files import refuse
    from cabochon.runtime.folder import DECODERS

    marks = ("provenance.json", "inference_metadata.yaml", *DECODERS)
    is_file = os.path.lexists(out) and not out.is_dir()
    if is_file or any((out / mark).is_file() for mark in marks):
        raise PackageError(
            f"is a {'file' if is_file else 'package'}; expected a folder to put packages in, or a name that is free",
            at=str(out),
            remedy="choose another name",
        )
    for target, precision in VARIANTS:
        refuse(out / f"{target}-{precision}")


def print_account(account: "Account") -> None:
    """An account for people."""
    print("A trained model of 3 million parameters, shaped like Gemma 4 E2B, built three times:\n")
    print_table(
        ("target", "precision", "size>", "seconds>"),
        [(p.target, p.precision, size(p.nbytes), f"{p.seconds:.2f}") for p in account.packages],
    )
    print("\nChecked against recorded answers of transformers:\n")
    print_table(
        ("", "", "found"), [("ok" if c.passed else "FAILED", c.statement, c.found) for c in account.checks]
    )
    first = account.packages[0]
    print(f"\nSampled from {first.target} {first.precision} (all it has read is the King James Bible):")
    for sample in account.samples:
        print(f"\n> {sample.prompt}\n{sample.text.strip()}\n[{sample.speed:.0f} tokens a second]")
    print("\nEverything holds." if account.passed else "\nSomething does not hold.")
