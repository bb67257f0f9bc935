"""Validation: E2B at full size without its weights' bytes, and all of a package against reading and hashing it."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from bench.building import build
from bench.checkpoints import TOKENIZER, TRAVELLERS, header
from bench.table import Row
from bench.watch import Watched, python
from cabochon.gemma4.layout import layout

VALIDATE = """
import sys
from cabochon.validation import validate
verdict = validate(sys.argv[1], quick=sys.argv[2] == "quick")
import json; print(json.dumps([len(verdict.rules), [str(f) for f in verdict.errors][:3]]))
"""
SECONDS, BYTES = 3.0, 500e6
SLOWER = 1.25  # than reading and hashing


def hollow(config: dict[str, Any], work: Path) -> Path:
    """A package of this config whose files of weights are holes of the right size; all else is as a build makes it."""
    import cabochon
    from cabochon.package.writer import Digest

    source, package = work / "hollow", work / "hollow-package"
    source.mkdir()
    slots = layout(config)
    with (source / "model.safetensors").open("wb") as file:
        file.write(header(config, slots))
        file.truncate(file.tell() + sum(2 * slot.elements for slot in slots))
    (source / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name in TRAVELLERS:
        shutil.copyfile(TOKENIZER / name, source / name)

    def holes(_recipes: object, laid_out: Any, stage: Path, *_: object) -> dict[str, Digest]:
        for name, nbytes in laid_out.files.items():
            with (stage / name).open("xb") as file:
                file.truncate(nbytes)
        return {name: Digest(nbytes, "0" * 64) for name, nbytes in laid_out.files.items()}

    with patch("cabochon.package.filling.write_files", holes):
        cabochon.build(source, package, precision="f16", license="apache-2.0")
    return package


def quick(package: Path, rounds: int) -> Row:
    """Seconds and memory of a whole process that validates without reading weights."""
    runs = [_validated(package, "quick") for _ in range(rounds)]
    seconds, memory = median(run.seconds for run in runs), max(run.resident for run in runs)
    size = sum(path.stat().st_size for path in package.rglob("*"))
    return Row(
        f"validate --quick, full E2B ({size / 1e9:.1f} GB, {runs[0].said[0]} rules)",
        f"{seconds:.2f} s with starting Python, {memory / 1e6:.0f} MB resident",
        aim=f"< {SECONDS:.0f} s, < {BYTES / 1e6:.0f} MB",
        met=seconds < SECONDS and memory < BYTES,
    )


def full(name: str, source: Path, work: Path, rounds: int) -> Iterator[Row]:
    """All of a package, and `sha256sum` over the same files, in turns."""
    package = work / "validated"
    build(source, package, "f16")
    ours: list[Watched] = []
    theirs: list[float] = []
    for _ in range(rounds):
        ours.append(_validated(package, "full"))
        theirs.append(_hashed(package))
    shutil.rmtree(package)
    seconds, hashing = median(run.seconds for run in ours), median(theirs)
    ratio = seconds / hashing
    yield Row(
        f"validate {name} in full ({ours[0].said[0]} rules)",
        f"{seconds:.1f} s with starting Python, {max(run.anonymous for run in ours) / 1e6:.0f} MB anonymous",
        f"sha256sum of the same files: {hashing:.1f} s",
        f"{ratio:.2f}",
        f"≤ {SLOWER} ×",
        ratio <= SLOWER,
    )


def _validated(package: Path, how: str) -> Watched:
    found = python(VALIDATE, str(package), how)
    if found.said[1]:
        raise RuntimeError(f"the package has errors: {found.said[1]}")
    return found


def _hashed(package: Path) -> float:
    start = time.perf_counter()
    files = [str(path) for path in package.rglob("*") if path.is_file()]
    subprocess.run(["sha256sum", *files], check=True, capture_output=True)
    return time.perf_counter() - start
