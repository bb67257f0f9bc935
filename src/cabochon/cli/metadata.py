"""cabochon metadata: the inference metadata of a package in other versions, and its schema."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cabochon.cli.options import AsJson, Package
from cabochon.cli.output import print_json

__all__ = ["Dialect", "Version", "metadata"]

metadata = typer.Typer(no_args_is_help=True, help="The inference metadata of a package, and its schema.")


class Dialect(StrEnum):
    """The versions that are written."""

    v1 = "v1"
    v1_8 = "v1.8"


class Version(StrEnum):
    """The versions that are known."""

    v1 = "v1"
    v1_1 = "v1.1"
    v1_2 = "v1.2"
    v1_3 = "v1.3"
    v1_4 = "v1.4"
    v1_5 = "v1.5"
    v1_6 = "v1.6"
    v1_7 = "v1.7"
    v1_8 = "v1.8"


@metadata.command()
def convert(
    package: Package,
    dialect: Annotated[Dialect, typer.Option(help="The version to write.", show_default=False)],
    out: Annotated[Path, typer.Option(metavar="OUT", help="The folder to make.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Make a folder with the document of PACKAGE in another version, and everything else as it is.

    v1 is the canonical form, v1.8 what the released onnx-genai reads: there the document becomes the loop that this
    runtime generates from. Files are hard links to those of PACKAGE where the disk allows it.
    """
    from cabochon.metadata.folder import convert_package

    made = convert_package(package, out, dialect.value)
    if as_json:
        print_json(made)
        return
    print(f"{made.path}: {made.dialect}" + (f"; files were copied, {made.copied}" if made.copied else ""))
    for remark in made.remarks:
        print(f"- {remark}")


@metadata.command()
def schema(
    dialect: Annotated[Version, typer.Option(help="The version.", show_default=False)],
) -> None:
    """Print the JSON Schema of a version of inference_metadata.yaml."""
    from cabochon.metadata.schema import json_schema

    print_json(json_schema(dialect.value))
