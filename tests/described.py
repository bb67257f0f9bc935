"""The facts of a build that writes nothing, for tests of what is said about a package."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from cabochon.package.facts import Digest, TextFacts
from cabochon.package.filling import trace
from cabochon.package.kinds import KINDS
from cabochon.package.layout import lay_out
from cabochon.package.order import order
from cabochon.package.preparing import Prepared, prepare
from cabochon.package.side_files import NEEDED
from checkpoints import TINY


def facts(
    source: Path = TINY / "text", target: str = "default", precision: str = "f16", **changes: Any
) -> TextFacts:
    """As `build` gathers them, with some of them changed."""
    known = prepared(source, target, precision)
    traced = trace(known)
    assert isinstance(traced, TextFacts)
    nbytes = lay_out(known.recipes[""]).nbytes
    digests = {"model.onnx": Digest(10, "aa"), "model.onnx.data": Digest(nbytes, "bb")}
    return replace(traced, **{"digests": digests, **changes})


def prepared(source: Path, target: str = "default", precision: str = "f16", model: str = "text") -> Prepared:
    """A checkpoint read for a build, whatever files it lacks."""
    asked = order(target, precision, "copy", None, NEEDED, 0, None)
    return prepare(source, KINDS[model], asked, None, Path("nowhere"))


def hub_snapshot(root: Path, card: str | None = None) -> Path:
    """The tiny text checkpoint where a hub's cache would have it."""
    folder = root / "models--google--gemma-4-tiny" / "snapshots" / ("0123456789abcdef" * 3)[:40]
    shutil.copytree(TINY / "text", folder)
    folder.chmod(0o755)
    if card is not None:
        (folder / "README.md").write_text(card)
    return folder
