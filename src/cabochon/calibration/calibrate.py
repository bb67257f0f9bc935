"""Statistics of a checkpoint: an f32 package of it is built aside, run over a text, and removed."""

from collections.abc import Callable
from pathlib import Path

from cabochon import files
from cabochon.calibration.collect import collect
from cabochon.evaluation.text import read_text
from cabochon.package import Progress, build
from cabochon.recipes.statistics import Statistics

__all__ = ["calibrate"]

_ABSENT = ("generation_config", "chat_template")  # running over a text asks for neither


def calibrate(
    source: str | Path,
    text: str | Path,
    out: str | Path,
    *,
    revision: str | None = None,
    limit: int | None = None,
    threads: int | None = None,
    writing: Progress | None = None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Statistics:
    """What the file `text` says of the decoder's weights of the checkpoint `source`, for building the package `out`.

    Of the text all windows count, or the first `limit`, see `collect`. An f32 package is written beside `out` first,
    where its 4 bytes a parameter must find room; it is removed whatever happens. Encoders and drafters have no
    statistics. `writing` is told of that package, `progress` the windows done and of all. Raises SourceError for the
    checkpoint, PackageError for `out` and the disk, RequestError for the text.
    """
    text, out = Path(text), Path(out)
    read_text(text)  # what is wrong with it is said before gigabytes are written
    files.refuse(out, Path(source) if Path(source).is_dir() else None)
    with files.aside(out) as folder:
        built = build(
            source,
            folder / "f32",
            precision="f32",
            revision=revision,
            allow_missing=_ABSENT,
            progress=writing,
        )
        return collect(built.path, text, limit=limit, threads=threads, progress=progress)
