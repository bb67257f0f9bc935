"""cabochon convert: a package for OpenVINO."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cabochon.cli.build import Bar, Stateful, print_built
from cabochon.cli.options import AsJson, Package
from cabochon.cli.output import print_json

__all__ = ["Form", "convert"]


class Form(StrEnum):
    """What a package can be converted into."""

    ir = "openvino-ir"
    epcontext = "openvino-epcontext"


def convert(
    package: Package,
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder of the package; must not exist.", show_default=False)
    ],
    to: Annotated[
        Form, typer.Option(help="openvino-epcontext: for ONNX Runtime's OpenVINO provider.")
    ] = Form.ir,
    stateful: Stateful = False,
    as_json: AsJson = False,
) -> None:
    """Convert a package of onnx-standard for OpenVINO; one of openvino-ir into openvino-epcontext.

    It is written beside OUT and gets its name when every weight was compared with the source's.
    """
    from cabochon.openvino import convert

    with Bar(silent=as_json) as bar:
        command = ["cabochon", *sys.argv[1:]]
        built = convert(package, out, to=to.value, stateful=stateful, command=command, progress=bar)
    print_json(built) if as_json else print_built(built)
