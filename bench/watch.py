"""Runs a child process and watches the memory it takes."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Watched:
    """Seconds from start to end, peaks of anonymous and of all resident memory in bytes, its last line of output."""

    seconds: float
    anonymous: int
    resident: int
    said: Any


def python(code: str, *arguments: str, pause: float = 0.005, threads: int | None = None) -> Watched:
    """Runs Python code in a child; its last line of output is read as JSON. Raises where it fails."""
    environment = os.environ | ({"OMP_NUM_THREADS": str(threads)} if threads else {})
    start = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True, env=environment
    )
    anonymous = resident = 0
    while child.poll() is None:
        found = status(child.pid)
        anonymous, resident = max(anonymous, found.get("RssAnon", 0)), max(resident, found.get("VmRSS", 0))
        time.sleep(pause)
    seconds = time.perf_counter() - start
    output = child.stdout.read() if child.stdout else ""
    if child.returncode:
        raise RuntimeError(f"a measured process ended with {child.returncode}: {output.strip()[-200:]}")
    last = output.strip().splitlines()[-1:] or ["null"]
    return Watched(seconds, anonymous, resident, json.loads(last[0]))


def status(pid: int | str = "self") -> dict[str, int]:
    """Memory lines of /proc/PID/status in bytes; empty once the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    fields = (line.split() for line in lines if line.endswith(" kB"))
    return {field[0].rstrip(":"): int(field[1]) * 1024 for field in fields}
