"""What `--calibrate` of `cabochon build` takes, and the statistics it asks for."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cabochon.errors import RequestError

if TYPE_CHECKING:
    from cabochon.package import Progress
    from cabochon.recipes.statistics import Statistics

__all__ = ["Calibrate", "CalibrateLimit", "statistics"]

Calibrate = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A text: the f32 model is run over it, and scales are searched for what its weights are multiplied with. "
        "Needs 4 bytes a parameter beside OUT meanwhile.",
        show_default=False,
    ),
]
CalibrateLimit = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="Of that text only the first N windows of 511 tokens.", show_default=False
    ),
]


def statistics(
    source: str,
    out: Path,
    text: Path | None,
    *,
    model: str,
    target: str,
    precision: str,
    revision: str | None,
    limit: int | None,
    writing: "Progress",
) -> "Statistics | None":
    """What the text says of the weights; None without one.

    Raises RequestError, before anything is written, where nothing that is built is searched for; and TargetError or
    ConfigError as the build would.
    """
    if text is None:
        return None
    from cabochon.calibration import calibrate
    from cabochon.cli.eval import Bar
    from cabochon.package.order import order

    if model == "drafter":
        raise RequestError(
            "a drafter; expected a model that reads text by itself", at="--calibrate", remedy="leave it out"
        )
    if "k-quant" not in order(target, precision, "copy", None, (), 0, None).precision.methods:
        raise RequestError(
            f"{precision} searches for no scales; expected a precision that does, such as Q4_K_M",
            at="--calibrate",
            remedy="leave it out, or choose another precision",
        )
    with Bar() as bar:
        return calibrate(source, text, out, revision=revision, limit=limit, writing=writing, progress=bar)
