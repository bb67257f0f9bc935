"""The wheel, in an environment that has nothing else: it builds, generates, and is as light as it says."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIMIT = 250_000_000  # bytes of a fresh install without the parity extra, bytecode aside
SCRIPT = """
import importlib.util, json, sys
import cabochon
from cabochon.demo import MINIATURE
from cabochon.packing import kernel
from cabochon.recipes import cast_kernel
absent = [name for name in ("torch", "transformers", "safetensors", "pytest") if not importlib.util.find_spec(name)]
built = cabochon.build(MINIATURE / "target", sys.argv[1], target="default", precision="f16")
answer = cabochon.load(built.path).generate("And it came to pass", greedy=True, max_new_tokens=16)
compiled = None not in (kernel.loaded(), cast_kernel.loaded())
print(json.dumps({"file": cabochon.__file__, "absent": absent, "ids": answer.ids, "compiled": compiled}))
"""


def execute(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the repository."""
    place = tmp_path_factory.mktemp("wheel")
    copy = place / "copy"
    shutil.copytree(
        ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
    )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    execute(sys.executable, "-m", "build", "--wheel", "--outdir", place, copy)
    return next(place.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheel: Path) -> Path:
    folder = wheel.parent / "environment"
    execute(sys.executable, "-m", "venv", "--without-pip", folder)  # which takes 9 s to install
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    execute(*pip, "install", "-qq", "--no-compile", "-c", ROOT / "constraints.txt", wheel)
    return python


def test_the_wheel_holds_what_it_needs(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    miniature = ("demo/miniature/heldout.txt", "demo/miniature/target/model.safetensors")
    needed = ("py.typed", "parity/known_answers.json", *miniature)
    assert {f"cabochon/{name}" for name in needed} <= names
    assert not [name for name in names if name.startswith("tests")]


def test_it_is_built_without_a_compiler_too(wheel: Path) -> None:
    """Quietly: packing then runs in numpy."""
    copy = wheel.parent / "copy"
    shutil.rmtree(copy / "build", ignore_errors=True)
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(wheel.parent / "plain"), str(copy)]
    done = subprocess.run(
        command, env=os.environ | {"CC": "false"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (plain,) = (wheel.parent / "plain").glob("*.whl")
    names = zipfile.ZipFile(plain).namelist()
    assert "cabochon/packing/search.py" in names
    assert not [name for name in names if Path(name).suffix in (".so", ".pyd")]


def test_it_builds_and_generates_without_torch(environment: Path, tmp_path: Path) -> None:
    found = json.loads(execute(environment, "-I", "-c", SCRIPT, tmp_path / "package"))
    assert "site-packages" in found["file"]
    assert found["compiled"] is (shutil.which("cc") is not None)
    assert found["absent"] == ["torch", "transformers", "safetensors", "pytest"]
    assert found["ids"] == [292, 418, 292, 861, 292, 378, 535, 287, 363, 1041, 597, 292, 387, 512, 292, 950]


def test_the_command_is_installed(environment: Path) -> None:
    assert execute(environment.parent / "cabochon", "--version").startswith("cabochon ")


def test_a_fresh_install_is_light(environment: Path) -> None:
    code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    site = Path(execute(environment, "-I", "-c", code).strip())
    files = [file for file in site.rglob("*") if file.is_file() and file.suffix != ".pyc"]
    ours = [file for file in files if not file.relative_to(site).parts[0].startswith(("pip", "setuptools"))]
    assert sum(file.stat().st_size for file in ours) < LIMIT
