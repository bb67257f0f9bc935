"""cabochon eval: how well a package predicts a text."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cabochon.cli.options import (
    AsJson,
    Package,
    Provider,
    ProviderOptions,
    Threads,
    read_provider_options,
)
from cabochon.cli.output import print_json, print_table, size

if TYPE_CHECKING:
    from cabochon.evaluation import Divergence, Evaluation, Figures

__all__ = ["evaluate"]


def evaluate(
    package: Package,
    text: Annotated[
        Path, typer.Option(metavar="FILE", help="The text: UTF-8, as it is.", show_default=False)
    ],
    against: Annotated[
        Path | None,
        typer.Option(metavar="PACKAGE", help="A reference of the same model.", show_default=False),
    ] = None,
    window: Annotated[int, typer.Option(min=1, help="Tokens scored in a window.")] = 511,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many windows.", show_default=False)
    ] = None,
    record: Annotated[
        bool,
        typer.Option("--record", help="Keep it in the package: evidence/evaluation.json, and in README.md."),
    ] = False,
    threads: Threads = None,
    provider: Provider = None,
    provider_option: ProviderOptions = None,
    as_json: AsJson = False,
) -> None:
    """Measure the perplexity of PACKAGE over a text, and with --against what divides it from a reference.

    The text is cut into windows, each behind <bos>, all tokens of which are scored; what does not fill a window is left
    out. Of a pair the target is measured. Compare figures of one text and one window.
    """
    from cabochon.evaluation import evaluate
    from cabochon.evaluation import record as keep

    with Bar() as bar:
        found = evaluate(
            package, text, against=against, window=window, limit=limit, threads=threads, provider=provider,
            provider_options=read_provider_options(provider_option), progress=bar,
        )  # fmt: skip
    kept = keep(found) if record else None
    if as_json:
        print_json(found.as_json())
    else:
        print_evaluation(found)
        if kept:
            print(f"\nkept in {found.package.package / kept}")


class Bar:
    """A progress bar on standard error, for people only: elsewhere it shows nothing."""

    def __enter__(self) -> "Bar":
        """Nothing shows before the first window is done."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("windows"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        console = Console(stderr=True)
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("windows", total=None)
        self._bar.start()
        return self

    def __call__(self, done: int, total: int) -> None:
        """So many windows are done."""
        self._bar.update(self._task, completed=done, total=total)

    def __exit__(self, *_: object) -> None:
        """Gone without a trace."""
        self._bar.stop()


def print_evaluation(found: "Evaluation") -> None:
    """For people."""
    print(f"{found.text.name or 'text'}: {found.protocol}\n")
    print_sides([side for side in (found.package, found.against) if side])
    if found.divergence is not None:
        print()
        print_divergence(found.divergence)


def print_sides(sides: "list[Figures]") -> None:
    """A column for each package: its path may take several lines, a figure may not."""
    rows = [
        ("folder", *(str(side.package) for side in sides)),
        ("built as", *(f"{side.target}, {side.precision}" for side in sides)),
        ("weights", *(size(side.weights.nbytes) for side in sides)),
        ("bits a weight", *(_bits(side) for side in sides)),
        ("loss", *(f"{side.loss:.5f}" for side in sides)),
        ("perplexity", *(f"{side.perplexity:.4f}" for side in sides)),
    ]
    print_table(("", "package>", "reference>")[: len(sides) + 1], rows)


def _bits(side: "Figures") -> str:
    return "unknown" if side.weights.bits is None else f"{side.weights.bits:.2f}"


def print_divergence(found: "Divergence") -> None:
    """What divides the first from the second."""
    tails = ", ".join(f"{p} % below {value:.3g}" for p, value in found.percentiles.items())
    worst = found.worst
    print(f"KL divergence from the reference: {found.mean:.4g} nats a token; {tails}")
    print(
        f"most: {worst.divergence:.3g} at window {worst.window}, position {worst.position}: "
        f"{worst.before!r}, then {worst.token!r}"
    )
    print(f"same likeliest token: {found.agreement:.2%}")
    print(f"log of the ratio of perplexities: {found.log_ratio:+.6f} ± {found.log_ratio_error:.6f}")
