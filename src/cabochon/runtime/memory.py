"""How much memory there is, and how much a request takes. The only place that asks the operating system."""

import os
from pathlib import Path

from cabochon.errors import RequestError
from cabochon.runtime.ports import Ports

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def available() -> int | None:
    """Bytes that can be had without swapping, a container's limit included; None where the system does not say."""
    known = [n for n in (_meminfo(), _cgroup()) if n is not None]
    return min(known) if known else _sysconf()


def _meminfo() -> int | None:
    try:
        lines = MEMINFO.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


def _cgroup() -> int | None:
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        used = int((CGROUP / "memory.current").read_text())
        reclaimable = next(
            int(line.split()[1])
            for line in (CGROUP / "memory.stat").read_text().splitlines()
            if line.startswith("inactive_file ")
        )
    except (OSError, ValueError, StopIteration):
        return None
    return None if limit == "max" else int(limit) - used + reclaimable


def _sysconf() -> int | None:
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def needed(ports: Ports, *, rows: int, tokens: int, chunk: int, sliding: int, heads: int) -> int:
    """Bytes a request of `tokens` tokens in each of `rows` rows takes at its peak.

    Caches count twice, because a step reads the past and writes the present. `sliding` is the most columns a sliding
    cache keeps between steps, `chunk` the most tokens of one step; attention holds a chunk's float32 scores of one
    layer ([heads, chunk, tokens]) and their mask (one byte each).
    """
    chunk = min(chunk, tokens)
    full = ports.column_bytes(False) * tokens
    bounded = ports.column_bytes(True) * min(tokens, sliding + chunk)
    scores = chunk * tokens * (4 * heads + 1)
    logits = rows * ports.vocabulary * (ports.dtype.itemsize + 8)
    return 2 * rows * (full + bounded) + scores + logits


def check_fits(need: int, have: int | None, *, held: int, tokens: int) -> None:
    """Raise RequestError when `need` bytes, of which `held` are already taken, exceed the `have` that are free."""
    if have is None or need - held <= have:
        return
    raise RequestError(
        f"{tokens} tokens of context need about {need:,} bytes of caches and working memory, "
        f"{held:,} bytes of it already held; {have:,} bytes are available",
        at="memory",
        remedy="ask for fewer new tokens, a shorter prompt, fewer rows, or a smaller prefill_chunk",
    )
