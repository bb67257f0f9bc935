"""cabochon build: one package."""

import sys
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated

import typer

from cabochon.cli.calibrating import Calibrate, CalibrateLimit, statistics
from cabochon.cli.options import AllowMissing, AsJson, AssistantRevision, License, Revision, Source
from cabochon.cli.output import print_json, size

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from cabochon.package import Built

__all__ = ["Bar", "Stateful", "build"]

Stateful = Annotated[
    bool, typer.Option("--stateful", help="Of openvino-ir: the decoder keeps its caches itself, for one row.")
]


class ModelKind(StrEnum):
    """What is built of a checkpoint."""

    text = "text"
    full = "full"
    drafter = "drafter"


class Weights(StrEnum):
    """How weights get into a package."""

    copy = "copy"
    link = "link"


def build(
    source: Source,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder of the package; must not exist.", show_default=False)
    ],
    model: Annotated[
        ModelKind,
        typer.Option(
            help="text: the decoder alone; full: images and sound too; drafter: SOURCE is an assistant."
        ),
    ] = ModelKind.text,
    assistant: Annotated[
        str | None,
        typer.Option(
            metavar="ASSISTANT",
            help="Build a pair: SOURCE, or a package built from it, with the checkpoint of its assistant.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[str, typer.Option(help="Where it is to run: see `cabochon list targets`.")] = "default",
    precision: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE.toml",
            help="How weights are stored: see `cabochon list precisions`, or the path of a recipe of your own.",
        ),
    ] = "f16",
    revision: Revision = None,
    assistant_revision: AssistantRevision = None,
    weights: Annotated[
        Weights, typer.Option(help="link: a hard link to the checkpoint's file where its bytes are the same.")
    ] = Weights.copy,
    license: License = None,
    allow_missing: AllowMissing = None,
    stateful: Stateful = False,
    calibrate: Calibrate = None,
    calibrate_limit: CalibrateLimit = None,
    logits_to_keep: Annotated[
        int,
        typer.Option(
            min=0,
            max=2**63 - 1,
            help="Default of the graph's optional input: logits of the last K tokens; 0 is all. 1 is fixed, for "
            "runtimes that feed no such input.",
        ),
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Build a package from a checkpoint, or of two.

    It is written beside OUT and gets its name when it is whole: an interrupted build leaves nothing under that name.
    """
    from cabochon import build
    from cabochon.dialects.conversions import CONVERSIONS

    if calibrate_limit is not None and calibrate is None:
        raise typer.BadParameter("--calibrate-limit goes with --calibrate")
    if assistant_revision is not None and assistant is None:
        raise typer.BadParameter("--assistant-revision goes with --assistant")
    traced = CONVERSIONS[target].of if target in CONVERSIONS else target
    with Bar(silent=as_json) as bar:
        found = statistics(
            source,
            out,
            calibrate,
            model=model.value,
            target=traced,
            precision=precision,
            revision=revision,
            limit=calibrate_limit,
            writing=bar,
        )
        built = build(
            source,
            out,
            model=model.value,
            assistant=assistant,
            target=target,
            stateful=stateful,
            precision=precision,
            revision=revision,
            assistant_revision=assistant_revision,
            weights=weights.value,
            license=license,
            allow_missing=tuple(allow_missing or ()),
            logits_to_keep=logits_to_keep,
            calibration=found,
            command=["cabochon", *sys.argv[1:]],
            progress=bar,
        )
    print_json(built) if as_json else print_built(built)


def print_built(built: "Built") -> None:
    """A package that was built, for people."""
    linked = ", weights linked" if built.linked else ""
    print(
        f"{built.path}: {built.target} {built.precision}, {size(built.nbytes)} in {built.seconds:.1f} s{linked}"
    )
    for remark in built.remarks:
        print(f"- {remark}")


class Bar:
    """A progress bar on a terminal's standard error, with rate and time left, for as long as bytes are written."""

    def __init__(self, *, silent: bool = False) -> None:
        self._silent = silent
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> "Bar":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.done()

    def start(self, nbytes: int) -> None:
        """Show the bar, on a terminal; `nbytes` are to be written."""
        if self._silent:
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        console = Console(stderr=True)
        if not console.is_terminal:
            return
        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        self._bar = Progress("writing", *columns, console=console, transient=True)
        self._task = self._bar.add_task("writing", total=nbytes)
        self._bar.start()

    def advance(self, nbytes: int) -> None:
        """`nbytes` more are written."""
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, nbytes)

    def done(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
