"""What must hold of the repository as a whole."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import cabochon

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
HEAVY = (
    "onnx",
    "onnx_ir",
    "onnxruntime",
    "torch",
    "transformers",
    "sympy",
    "huggingface_hub",
    "jinja2",
    "tokenizers",
)


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, check=True)


def sources() -> list[Path]:
    return sorted((ROOT / "src").rglob("*.py"))


def test_importing_is_light() -> None:
    loaded = python("-c", "import cabochon, sys; print(*sys.modules)").stdout.split()
    assert not set(HEAVY) & set(loaded)


def test_importing_is_fast() -> None:
    """In seconds of processor time, which a busy machine does not stretch; best of three."""
    code = "import time; t = time.process_time(); import cabochon; print(time.process_time() - t)"
    assert min(float(python("-c", code).stdout) for _ in range(3)) < 0.3


def test_public_names_are_fetched_when_asked_for() -> None:
    assert set(dir(cabochon)) == set(cabochon.__all__)
    for name in cabochon.__all__:
        assert getattr(cabochon, name) is getattr(cabochon, name)
    assert cabochon.errors.CabochonError is cabochon.CabochonError
    with pytest.raises(AttributeError, match="has no attribute 'bild'"):
        _ = cabochon.bild


def test_the_version_has_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", cabochon.__version__)


def test_every_dependency_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    pinned = {name.lower().replace("-", "_"): version for name, version in pins.items()}
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [*PROJECT["project"]["dependencies"], *(name for extra in extras for name in extra)]
    names = {re.split(r"[\[<>=~! ]", requirement)[0].lower().replace("-", "_") for requirement in wanted}
    assert names - {"cabochon"} <= pinned.keys()
    assert pinned["torch"] == "2.13.0"
    assert not [version for version in pinned.values() if "+" in version or "/" in version]


@pytest.mark.parametrize("heavy", ["torch", "transformers"])
def test_only_parity_knows(heavy: str) -> None:
    knowing = {file for file in sources() if heavy in imported(file)}
    assert all("parity" in file.parts for file in knowing)


def imported(file: Path) -> set[str]:
    """The top-level packages that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add((node.module or "").split(".")[0])
    return found


RENAMES = {"rename", "renames", "hardlink_to"}  # of a path as well
OF_THE_SYSTEM = {"fsync", "fdatasync", "sync", "link", "replace", "flock", "locking", "disk_usage", "move"}
SYSTEM = {"os", "fcntl", "msvcrt", "shutil"}


def test_only_files_knows_how_the_disk_is_kept() -> None:
    """fsync, renames, hard links, locks and free space; `path.replace(other)` is told by its one argument."""
    found = {
        f"{file.relative_to(ROOT)}:{call.lineno}"
        for file in sources()
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and keeps_the_disk(call, call.func)
    }
    assert {place.split(":")[0] for place in found} == {"src/cabochon/files.py"}, sorted(found)


def keeps_the_disk(call: ast.Call, called: ast.Attribute) -> bool:
    if isinstance(called.value, ast.Name) and called.value.id in SYSTEM:
        return called.attr in RENAMES | OF_THE_SYSTEM
    return called.attr in RENAMES or (called.attr == "replace" and len(call.args) == 1 and not call.keywords)


def test_no_place_of_one_machine_in_the_repository() -> None:
    if not shutil.which("git") or not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout: the files that belong to the repository are asked of git")
    places = [
        "/" + "work/",
        "/" + "root/",
        "/" + "home/",
        "pypi" + ".org",
        "python" + "hosted",
        ".lib" + "rary",
    ]
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=True)
    for name in listed.stdout.splitlines():
        file = ROOT / name
        if file.suffix in (".safetensors", ".npz") or not file.is_file():
            continue
        text = file.read_text("utf-8", errors="replace")
        assert not [place for place in places if place in text], name


@pytest.mark.parametrize(
    "target", ["demo", "test", "parity", "clients", "lint", "bench", "clean", "wheel", "test-all-pythons"]
)
def test_make_knows(target: str) -> None:
    assert re.search(rf"^{target}:.*## ", MAKEFILE, re.MULTILINE)


def test_the_two_commands_stand_at_the_top_of_the_readme() -> None:
    head = (ROOT / "README.md").read_text().splitlines()[:8]
    assert [line.split()[1] for line in head if line.startswith("make ")] == ["demo", "test"]


def test_continuous_integration_runs_everything() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    steps = {"lint", "test", "mutations", "members", "parity", "clients", "browser", "variants", "demo"}
    assert set(re.findall(r"^step (\w+)(?: &)?$", script, re.MULTILINE)) == steps
    assert len(re.findall(r"^step \w+ &$", script, re.MULTILINE)) == len(
        re.findall(r"^wait ", script, re.MULTILINE)
    )
    assert "set -euo pipefail" in script


SKIPS = """
import pytest
def test_one_reason(): pytest.skip("no moon")
@pytest.mark.skipif(True, reason="no moon")
def test_the_same_reason(): pass
def test_nothing_skipped(): pass
def test_silent(): pytest.skip()
@pytest.mark.skip
def test_silent_mark(): pass
"""


def test_skips_are_counted_and_none_is_silent(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(SKIPS)
    (tmp_path / "test_module.py").write_text("import pytest\npytest.skip('', allow_module_level=True)\n")
    options = [
        "-q",
        "-p",
        "tests.skips",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:hypothesispytest",
        "-p",
        "no:xdist",
    ]
    command = [sys.executable, "-m", "pytest", *options, "--continue-on-collection-errors", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert "skips: 2" in done.stdout
    assert "   2  no moon" in done.stdout
    for silent in ("test_silent", "test_silent_mark", "test_module.py"):
        assert f"{silent}: skipped without a reason" in done.stdout
    assert "1 passed, 2 skipped" in done.stdout
    assert done.returncode == 1
