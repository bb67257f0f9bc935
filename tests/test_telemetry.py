"""onnxruntime tells nobody what is built, validated and run here, unless it is asked to."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from packages import Packages

RUN = """
import sys
import cabochon
cabochon.validate(sys.argv[1])
print(len(cabochon.load(sys.argv[1], threads=1).generate([2, 5], max_new_tokens=2, greedy=True).ids))
"""


@pytest.mark.parametrize(
    ("asked", "kept"),
    [({}, False), ({"ORT_DISABLE_TELEMETRY": "0"}, True), ({"ORT_DISABLE_TELEMETRY": "1"}, False)],
)
def test_nothing_is_kept_to_be_sent(packages: Packages, tmp_path: Path, asked: dict[str, str], kept: bool):
    """Where it may, onnxruntime lays an id of the machine and a database of events into the home folder."""
    nowhere = {"https_proxy": "http://127.0.0.1:9", "HOME": str(tmp_path)}
    environment = {"PATH": os.environ["PATH"], **nowhere, **asked}
    command = [sys.executable, "-c", RUN, str(packages("tiny"))]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout == "2\n", done.stderr
    assert any("onnxruntime" in path.name for path in tmp_path.rglob("*")) is kept
