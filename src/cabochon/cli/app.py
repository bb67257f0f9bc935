"""The program: its commands, its exit codes.

0 success, 1 an error or a failed check, 2 usage, 130 interrupted.
"""

import os
import sys
from typing import Annotated, NoReturn

import typer

from cabochon import __version__
from cabochon.cli.build import build
from cabochon.cli.chat import chat
from cabochon.cli.compare import compare
from cabochon.cli.demo import demo
from cabochon.cli.list import list_rows
from cabochon.cli.output import print_error
from cabochon.cli.parity import parity
from cabochon.cli.plan import plan
from cabochon.cli.run import run
from cabochon.errors import CabochonError

__all__ = ["app", "main"]

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


for command in (plan, build, run, chat, parity, compare, demo):
    app.command()(command)
app.command("list")(list_rows)


def main() -> NoReturn:
    """Run the program and leave with its exit code. What can go wrong ends in a message, never in a traceback."""
    try:
        app(prog_name="cabochon")
    except CabochonError as error:
        print_error(error)
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # whoever read us left: nothing to tell
    except OSError as error:
        print_error(CabochonError(error.strerror or str(error), at=str(error.filename or "")))
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(1)
