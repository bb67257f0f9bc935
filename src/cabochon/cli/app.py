"""The program: its commands, and what becomes of an error."""

import io
import os
import sys
from typing import Annotated

import typer

from cabochon import __version__
from cabochon.cli.bench import bench
from cabochon.cli.build import build
from cabochon.cli.chat import chat
from cabochon.cli.compare import compare
from cabochon.cli.convert import convert
from cabochon.cli.demo import demo
from cabochon.cli.eval import evaluate
from cabochon.cli.inspect import inspect
from cabochon.cli.list import list_rows
from cabochon.cli.matrix import matrix
from cabochon.cli.metadata import metadata
from cabochon.cli.output import print_error
from cabochon.cli.parity import parity
from cabochon.cli.plan import plan
from cabochon.cli.probe import probe
from cabochon.cli.run import run
from cabochon.cli.sensitivity import sensitivity
from cabochon.cli.validate import validate
from cabochon.cli.web import web
from cabochon.errors import CabochonError

__all__ = ["app", "execute"]

app = typer.Typer(
    name="cabochon",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def print_version(asked: bool) -> None:
    """--version: print it and leave."""
    if asked:
        print(f"cabochon {__version__}")
        raise typer.Exit


@app.callback()
def cabochon(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and leave."),
    ] = False,
) -> None:
    """Turn a Gemma 4 checkpoint into an ONNX package, and run it."""


for command in (plan, build, convert, matrix, run, chat, bench, inspect):
    app.command()(command)
for command in (validate, parity, probe, compare, sensitivity, web, demo):
    app.command()(command)
app.command("eval")(evaluate)
app.command("list")(list_rows)
app.add_typer(metadata, name="metadata")


def execute() -> int:
    """Run the program on the arguments it was called with; its exit code."""
    take_any_text()
    try:
        return finished()
    except CabochonError as error:
        print_error(error)
    except BrokenPipeError:
        pass  # whoever read us left: nothing to tell
    except OSError as error:
        print_error(CabochonError(error.strerror or str(error), at=str(error.filename or "")))
    let_go_of_output()
    return 1


def finished() -> int:
    """The exit code of a run of which everything was written."""
    try:
        app(prog_name="cabochon")
    except SystemExit as left:
        print(end="", flush=True)
        return int(left.code or 0)
    return 0


def take_any_text() -> None:
    """Bytes that are no text are refused where they are used, and named where they are said."""
    for stream, errors in (
        (sys.stdin, "surrogateescape"),
        (sys.stdout, "backslashreplace"),
        (sys.stderr, "backslashreplace"),
    ):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def let_go_of_output() -> None:
    """What standard output did not take is dropped, lest the interpreter try again when it leaves."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
