"""The README's commands that need OpenVINO."""

import sys
from pathlib import Path

import pytest

from test_readme import COMMANDS, folder, shell

pytest.importorskip("openvino", reason="openvino is not installed: pip install cabochon[openvino]")

__all__ = ["folder"]  # the fixture


@pytest.mark.skipif(sys.platform == "win32", reason="the README's commands are written for a POSIX shell")
def test_every_command_for_openvino(folder: Path) -> None:
    lines = [line for line in COMMANDS if "openvino" in line]
    assert [line.split()[1] for line in lines] == ["build", "convert"]
    for line in (*lines, "cabochon run e2b-ir --prompt 'And it came to pass' --greedy --max-new-tokens 4"):
        done = shell(line, folder)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
