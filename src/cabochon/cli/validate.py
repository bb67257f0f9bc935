"""cabochon validate: a package judged by its files."""

from typing import TYPE_CHECKING, Annotated

import typer

from cabochon.cli.options import AsJson, Package
from cabochon.cli.output import print_json
from cabochon.errors import RequestError

if TYPE_CHECKING:
    from cabochon.validation import Verdict

__all__ = ["validate"]

Codes = list[str] | None


def validate(
    package: Package,
    quick: Annotated[bool, typer.Option("--quick", help="Read no bytes of weights.")] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Run the graphs, and check what the metadata claims of them.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings are errors.")] = False,
    select: Annotated[
        Codes,
        typer.Option(
            help="Only these rules: a code or its beginning, such as STA or STA003; repeatable.",
            show_default=False,
        ),
    ] = None,
    ignore: Annotated[Codes, typer.Option(help="Not these rules; repeatable.", show_default=False)] = None,
    source: Annotated[
        str | None,
        typer.Option(
            help="The checkpoint it was built from: every weight is derived again and compared.",
            show_default=False,
        ),
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Keep the verdict in the package: evidence/validation.json.")
    ] = False,
    as_json: AsJson = False,
    as_sarif: Annotated[
        bool, typer.Option("--sarif", help="Print SARIF 2.1.0, which code-scanning services read.")
    ] = False,
) -> None:
    """Look at a package as a whole: metadata, graphs, files, weights. See `cabochon list rules`.

    Everything that is wrong is said at once. Exit code 1 if there are errors, 0 if there are only warnings.
    """
    if as_json and as_sarif:
        raise typer.BadParameter("give one of --json and --sarif")
    if record and (select or ignore):
        raise typer.BadParameter("the record of a package is of all rules: not with --select or --ignore")
    from cabochon.validation import reports
    from cabochon.validation import validate as judge

    try:
        verdict = judge(
            package,
            quick=quick,
            execute=execute,
            strict=strict,
            select=select or (),
            ignore=ignore or (),
            source=source,
        )
    except RequestError as error:
        raise typer.BadParameter(error.message) from None
    if record:
        reports.record(verdict, package)
    print_verdict(verdict, as_json, as_sarif)
    raise typer.Exit(0 if verdict.passed else 1)


def print_verdict(verdict: "Verdict", as_json: bool, as_sarif: bool) -> None:
    """In the form that was asked for."""
    from cabochon.validation import reports

    if as_sarif:
        print_json(reports.sarif(verdict))
    elif as_json:
        print_json(reports.as_json(verdict))
    else:
        print(reports.text(verdict))
