"""Whatever a child process does, a record of it remains."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cabochon.clients.child import Ended, run

TELL = "import json, os, signal, sys, time; told = open(sys.argv[2], 'a', buffering=1); "


def child(code: str, seconds: float = 60, **request: Any) -> Ended:
    return run(["-c", TELL + code], request, seconds=seconds)


def test_it_is_asked_and_tells() -> None:
    ended = child("asked = json.load(open(sys.argv[1])); told.write(json.dumps(asked) + '\\n')", a=[1, "ü"])
    assert ended.told == ({"a": [1, "ü"]},)
    assert (ended.code, ended.fault) == (0, "")


def test_its_words_are_kept_but_not_all() -> None:
    ended = child("print('x' * 100_000); print('at the end', file=sys.stderr)")
    assert ended.words.endswith("at the end") and len(ended.words) <= 2000


@pytest.mark.parametrize(
    "code, fault, how",
    [
        ("sys.exit(3)", "crashed", "its process ended with exit code 3"),
        ("raise ValueError('no')", "crashed", "its process ended with exit code 1"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "crashed", "its process died of SIGSEGV"),
        ("os.abort()", "crashed", "its process died of SIGABRT"),
    ],
)
def test_a_death_is_told(code: str, fault: str, how: str) -> None:
    ended = child('told.write(\'{"name": 1}\\n{"cut off\'); told.flush(); ' + code)
    assert (ended.fault, ended.how) == (fault, how)
    assert ended.told == ({"name": 1},), "a line that was cut off is nothing told"


@pytest.mark.skipif(sys.platform == "win32", reason="processes in sessions of their own are POSIX")
def test_what_hangs_is_ended_with_all_that_it_started() -> None:
    code = (
        "import subprocess; p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); "
        "told.write(json.dumps({'pid': p.pid}) + '\\n'); time.sleep(600)"
    )
    started = time.monotonic()
    ended = child(code, seconds=3)
    assert time.monotonic() - started < 30
    assert (ended.code, ended.fault) == (None, "hung")
    assert ended.how == "no answer after 3 s; its process was ended"
    assert _gone(ended.told[0]["pid"])


def _gone(pid: int) -> bool:
    """Ended, if perhaps not yet waited for by whoever inherited it."""
    for _ in range(50):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.1)
    return False


def test_without_a_request_the_arguments_are_all() -> None:
    ended = run(["-c", "import sys; print(sys.argv)", "show", "folder"], seconds=60)
    assert ended.words == "['-c', 'show', 'folder']" and ended.code == 0


def test_signals_have_names() -> None:
    assert Ended((), -int(signal.SIGKILL), "", 1.0).how == "its process died of SIGKILL"
