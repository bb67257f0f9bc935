"""cabochon matrix: all variants of a model."""

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cabochon.cli.build import ModelKind
from cabochon.cli.options import AllowMissing, AssistantRevision, License, Revision, Source
from cabochon.cli.output import plain, print_json, print_table, size
from cabochon.errors import PackageError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from cabochon.matrix import Event, Matrix, Ran

__all__ = ["matrix"]


def matrix(
    source: Source,
    out: Annotated[
        Path | None,
        typer.Argument(
            metavar="OUT",
            help="Folder of all variants. What stands there is kept, and the rest is built.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        ModelKind | None,
        typer.Option(help="text or full; by default full where SOURCE is multimodal.", show_default=False),
    ] = None,
    assistant: Annotated[
        str | None,
        typer.Option(metavar="ASSISTANT", help="Make each variant a pair with this.", show_default=False),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GLOB",
            help='Variants whose folders fit, such as "Q4_K_M/*", and what they need; repeatable.',
            show_default=False,
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All variants, not the usual ones alone.")] = False,
    shard: Annotated[
        str | None,
        typer.Option(metavar="I/N", help="The I-th of N parts: one for each machine.", show_default=False),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Build anew what stands there and is something else, or damaged."),
    ] = False,
    verify: Annotated[bool, typer.Option("--verify", help="Hash every file of what stands there.")] = False,
    listing: Annotated[
        bool, typer.Option("--list", help="Say what would be built, and its sizes; write nothing.")
    ] = False,
    revision: Revision = None,
    assistant_revision: AssistantRevision = None,
    license: License = None,
    allow_missing: AllowMissing = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each event.")] = False,
) -> None:
    """Build all variants of a checkpoint into one folder, with an index; or those that are not there yet.

    Run it again after an interruption, or on several machines with --shard. Exit code 1 where a variant is not there in
    the end.
    """
    from cabochon.matrix import build_matrix, plan_matrix

    if model is ModelKind.drafter:
        raise typer.BadParameter("expected text or full", param_hint="--model")
    if assistant_revision is not None and assistant is None:
        raise typer.BadParameter("--assistant-revision goes with --assistant")
    if listing and (verify or replace):
        raise typer.BadParameter("--list writes nothing: no --verify, --replace")
    asked: dict[str, Any] = {
        "model": model and model.value,
        "assistant": assistant,
        "only": tuple(only or ()),
        "every": every,
        "shard": None if shard is None else _shard(shard),
        "revision": revision,
        "assistant_revision": assistant_revision,
    }
    if listing:
        planned = plan_matrix(source, **asked)
        print_json(_listed(planned)) if as_json else print_matrix(planned)
        return
    if out is None:
        raise typer.BadParameter("give OUT, or --list")
    with Lines() if as_json else Bars() as watch:
        ran = build_matrix(
            source,
            out,
            **asked,
            license=license,
            allow_missing=tuple(allow_missing or ()),
            replace=replace,
            verify=verify,
            watch=watch,
        )
    if not as_json:
        print_ran(ran)
    if not ran.complete:
        raise typer.Exit(1)


def _shard(text: str) -> tuple[int, int]:
    from cabochon.matrix.shards import read_shard

    try:
        return read_shard(text)
    except PackageError as error:
        raise typer.BadParameter(error.message, param_hint="--shard") from None


def _listed(planned: "Matrix") -> dict[str, Any]:
    """A plan as data: with what is computed for each variant, where those before it stand."""
    rows, seen, read = list[dict[str, Any]](), set[str](), 0
    for unit in planned.units:
        new = [file for file in unit.files if file.key not in seen]
        read += sum(file.read for file in new)
        seen |= {file.key for file in new}
        rows.append(
            {
                "folder": unit.folder,
                "precision": unit.variant.precision,
                "target": unit.variant.target,
                "needs": unit.variant.needs,
                "nbytes": unit.nbytes,
                "new_bytes": sum(file.nbytes for file in new) + unit.documents,
                "read_bytes": sum(file.read for file in new),
                "refused": unit.refused,
            }
        )
    reads = round(read / max(planned.source_bytes, 1), 2)
    return {
        "source": planned.source,
        "model": planned.model,
        "variants": rows,
        "source_bytes": planned.source_bytes,
        "reads": reads,
        "remarks": planned.remarks,
    }


def print_matrix(planned: "Matrix") -> None:
    """What would be built, for people."""
    said = _listed(planned)
    rows = said["variants"]
    print_table(
        ("folder", "made of", "size>", "new on disk>", ""),
        [
            (row["folder"], row["needs"] or "", size(row["nbytes"]), size(row["new_bytes"]), row["refused"])
            for row in rows
        ],
    )
    new = sum(row["new_bytes"] for row in rows)
    print(
        f"\n{len(rows)} variants, {size(sum(row['nbytes'] for row in rows))}; {size(new)} on a disk with hard links."
    )
    print(f"The checkpoint's {size(said['source_bytes'])} are read {said['reads']} times.")
    for remark in said["remarks"]:
        print(f"- {remark}")


def print_ran(ran: "Ran") -> None:
    """What became of each variant, for people."""
    print_table(
        ("folder", "", "size>", "linked>", "seconds>"),
        [
            (
                o.folder,
                o.status,
                size(o.nbytes),
                size(o.linked_bytes) if o.linked else "",
                f"{o.seconds:.1f}" if o.seconds else "",
            )
            for o in ran.variants
        ],
    )
    print(
        f"\n{ran.index}: the index. The checkpoint's {size(ran.source_bytes)} were read {ran.reads} times",
        end="",
    )
    print(f" ({ran.reads_unlinked} without links)." if ran.reads_unlinked > ran.reads else ".")
    if ran.equal_files:
        print(f"{ran.equal_files} other files that are the same, {size(ran.equal_bytes)}, are linked.")
    said = dict.fromkeys(line for o in ran.variants for line in o.remarks)
    for line in said:
        print(f"- {_named([o.folder for o in ran.variants if line in o.remarks], len(ran.variants))}{line}")
    for outcome in ran.variants:
        if outcome.reason:
            print(f"- {outcome.folder}: {outcome.reason}")


def _named(folders: list[str], count: int) -> str:
    return "" if len(folders) == count else f"{', '.join(folders)}: "


class Lines:
    """Each event as a line of JSON on standard output."""

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, event: "Event") -> None:
        """Print it."""
        said: dict[str, Any] = {
            "event": event.event,
            "folder": event.folder,
            "done": event.done,
            "total": event.total,
        }
        print_json(
            {key: value for key, value in said.items() if value != ""} | plain(event.said), indent=None
        )


class Bars:
    """One bar over all variants on standard error: which is being built, rate, time left."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._folders: list[str] = []

    def __enter__(self) -> "Bars":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, event: "Event") -> None:
        """Move it."""
        if event.event == "planned":
            self._folders = list(event.said["building"])
            self._start(event.total)
        if self._bar is None or self._task is None:
            return
        if event.event == "started":
            which = f"{event.folder} ({self._folders.index(event.folder) + 1} of {len(self._folders)})"
            self._bar.update(self._task, description=which)
        self._bar.update(self._task, completed=event.done)

    def _start(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        console = Console(stderr=True)
        if not console.is_terminal:
            return
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
        self._task = self._bar.add_task("", total=total)
        self._bar.start()
