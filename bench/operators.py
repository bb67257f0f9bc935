"""Where the time of a decode step goes, by onnxruntime's profiler."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import running
from bench.beside import counted
from bench.table import Row

SHOWN = 5  # operators
RUNS = 8


def shares(package: Path, work: Path, threads: int, depth: int) -> Row:
    """The operators that take most; sliding caches are cut to their window."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, threads
    options.enable_profiling, options.profile_file_prefix = True, str(work / "profile")
    decoder = running.Decoder(package, options)
    step = decoder.prepared(1, depth, 1)
    for _ in range(RUNS):
        step()
    events = json.loads(Path(decoder.session.end_profiling()).read_text(encoding="utf-8"))
    spent = by_operator(events)
    whole = sum(spent.values())
    listed = [f"{name} {time / whole:.0%}" for name, time in spent.most_common(SHOWN)]
    rest = whole - sum(time for _, time in spent.most_common(SHOWN))
    return Row(
        f"where a decode step after {depth} goes, {counted(threads)}, onnxruntime's profiler",
        f"{', '.join(listed)}, the rest {rest / whole:.0%}",
    )


def by_operator(events: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """Microseconds in the kernels of each operator, the first run left out."""
    runs = sorted(event["ts"] + event["dur"] for event in events if event["name"] == "model_run")
    spent: Counter[str] = Counter()
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time") and event["ts"] >= runs[0]:
            spent[event["args"]["op_name"]] += event["dur"]
    return spent
