"""Import time, and the size of a fresh environment."""

import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from bench.checkpoints import ROOT
from bench.table import Row

REPEATS = 9
TOOLS = (
    "pip",
    "setuptools",
    "pkg_resources",
    "_distutils_hack",
    "distutils-precedence",
)  # what venv itself brings


def import_time() -> Row:
    """`import cabochon` in a fresh process, beyond what starting Python takes; interleaved, medians."""
    runs = [(_started("import cabochon"), _started("pass")) for _ in range(REPEATS + 1)][1:]
    whole, empty = (median(column) for column in zip(*runs, strict=True))
    return Row(
        "`import cabochon`", f"{whole - empty:.3f} s", f"starting Python: {empty:.3f} s",
        aim="< 0.3 s", met=whole - empty < 0.3,
    )  # fmt: skip


def _started(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - start


def install_size() -> Row:
    """A new virtual environment with cabochon and what it needs, without the installer and without bytecode."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        pip = [
            f"{folder}/bin/python",
            "-m",
            "pip",
            "install",
            "-q",
            "--no-compile",
            "--disable-pip-version-check",
        ]
        subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), str(ROOT)], check=True)
        files = list(_counted(Path(folder)))
        size = sum(path.stat().st_size for path in files) / 1e6
        packages = len(
            {
                p
                for p in Path(folder).glob("lib/python*/site-packages/*.dist-info")
                if not p.name.startswith(TOOLS)
            }
        )
    return Row(
        "fresh install without parity", f"{size:.0f} MB, {packages} packages", aim="< 250 MB without bytecode",
        met=size < 250,
    )  # fmt: skip


def _counted(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder / "lib"):
        folders[:] = [f for f in folders if f != "__pycache__" and not f.startswith(TOOLS)]
        yield from (Path(place, name) for name in names if not name.endswith(".pyc"))
