"""Every command and every line of Python in the README is executed, with the miniature in place of a hub id."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

import cabochon
from cabochon.demo import MINIATURE
from forking import programs
from packages import TINY

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
HUB_ID = "google/gemma-4-E2B-it"


PARITY = r"cabochon parity (\S+) \S+/\S+( --assistant \S+)?"  # against a checkpoint: needs torch


def fenced(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


CONSOLE = [line[2:] for block in fenced("console") for line in block.splitlines() if line.startswith("$ ")]
TABLE = [
    match
    for line in README.splitlines()
    if line.startswith("|")
    for match in re.findall(r"`(cabochon [^`]+)`", line)
]
COMMANDS = [line for line in (*CONSOLE, *TABLE) if "cabochon" in line and "pip" not in line]
# Exit code 1 with a message: published answers exist for real checkpoints only.
FAILING = {"cabochon parity e2b --known": "no published answers"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("readme")
    (place / "config.json").write_bytes((MINIATURE / "target" / "config.json").read_bytes())
    Image.new("RGB", (40, 30), "teal").save(place / "photo.png")
    (place / "text.txt").write_text("In the beginning God created the heaven and the earth. " * 40)
    (place / "bin").mkdir()
    with programs(place / "bin"):
        yield place


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    if "--model full" in line:
        line = line.replace(HUB_ID, shlex.quote(str(TINY / "target")))  # the miniature has no encoders
    line = line.replace(f"{HUB_ID}-assistant", shlex.quote(str(MINIATURE / "assistant")))
    line = line.replace(HUB_ID, shlex.quote(str(MINIATURE / "target")))
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HF_HUB_OFFLINE": "1", "COLUMNS": "200"}
    return subprocess.run(
        line,
        shell=True,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_there_are_commands() -> None:
    words = {line.split("cabochon ")[1].split()[0] for line in COMMANDS}
    checks = {"validate", "parity", "probe", "compare", "eval", "sensitivity"}
    looks = {"inspect", "convert", "web", "matrix"}
    assert words == {"plan", "build", "run", "chat", "bench", "metadata", "list", "demo"} | checks | looks


@pytest.mark.skipif(sys.platform == "win32", reason="the README's commands are written for a POSIX shell")
def test_every_command_in_order(folder: Path) -> None:
    for line in COMMANDS:
        if re.fullmatch(PARITY, line):
            continue  # needs torch: the next test
        if line.startswith("cabochon probe") or "openvino" in line:
            continue  # needs other runtimes: the test after that, and test_readme_openvino.py
        done = shell(line, folder)
        if line in FAILING:
            assert (done.returncode, FAILING[line] in done.stderr) == (1, True), f"{line}\n{done.stderr}"
        else:
            assert done.returncode == 0, f"{line}\n{done.stderr}"


@pytest.mark.parity
@pytest.mark.skipif(sys.platform == "win32", reason="the README's commands are written for a POSIX shell")
def test_every_parity_command(folder: Path) -> None:
    found = [match for line in COMMANDS if (match := re.fullmatch(PARITY, line))]
    assert {bool(match[2]) for match in found} == {True, False}
    for line, package, assistant in ((match[0], match[1], match[2] or "") for match in found):
        build = shell(f"cabochon build {HUB_ID} {package} --precision f32{assistant}", folder)
        assert build.returncode == 0 or "exists" in build.stderr, build.stderr
        done = shell(line, folder)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.clients
@pytest.mark.skipif(sys.platform == "win32", reason="the README's commands are written for a POSIX shell")
def test_every_command_with_other_runtimes(folder: Path) -> None:
    lines = [line for line in COMMANDS if line.startswith("cabochon probe")]
    assert lines
    for line in lines:
        build = shell(f"cabochon build {HUB_ID} {line.split()[2]} --precision f32", folder)
        assert build.returncode == 0 or "exists" in build.stderr, build.stderr
        done = shell(line, folder)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("code", fenced("py"))
def test_python_with_images(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (40, 30), "teal").save("photo.png")
    cabochon.build(TINY / "target", "e2b-full", model="full", precision="f32")
    exec(compile(f"import cabochon\n{code}", "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("code", fenced("python"))
def test_python(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code.replace(HUB_ID, str(MINIATURE / "target")), "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert ", that, behold, the king's servants came" in said
    assert "('default', 'f16', 'runs')" in said
