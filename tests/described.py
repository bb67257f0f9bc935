"""The facts of a build that writes nothing, for tests of what is said about a package."""

import shutil
from pathlib import Path
from typing import Any

from cabochon.checkpoint import open_checkpoint
from cabochon.dialects import TARGETS
from cabochon.gemma4 import read_text_config, text_tensors
from cabochon.package.build import trace
from cabochon.package.facts import Digest, Facts
from cabochon.package.license import find_license
from cabochon.recipes import PRECISIONS
from checkpoints import TINY

DIGESTS = {"model.onnx": Digest(10, "aa"), "model.onnx.data": Digest(20, "bb")}


def facts(
    source: Path = TINY / "text", target: str = "default", precision: str = "f16", **changes: Any
) -> Facts:
    """As `build` gathers them, with some of them changed."""
    checkpoint = open_checkpoint(source)
    config = read_text_config(checkpoint.config)
    tensors, license = text_tensors(checkpoint.tensors, config), find_license(checkpoint.files)
    row, column = TARGETS[target], PRECISIONS[precision]
    traced = trace(checkpoint, config, tensors, row, column, license, 0, None)
    return Facts(**{**vars(traced), "digests": DIGESTS, **changes})


def hub_snapshot(root: Path, card: str | None = None) -> Path:
    """The tiny text checkpoint where a hub's cache would have it."""
    folder = root / "models--google--gemma-4-tiny" / "snapshots" / ("0123456789abcdef" * 3)[:40]
    shutil.copytree(TINY / "text", folder)
    folder.chmod(0o755)
    if card is not None:
        (folder / "README.md").write_text(card)
    return folder
