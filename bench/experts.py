"""A mixture of experts at its real width: 26B-A4B with 12 of its 30 layers, Q4_K_M. What building takes, what a token
takes and where it goes, and how many weights of experts it reads.

    python -m bench.experts            # 28 GB of disk

Layers are all alike but for their kind, and 12 are two rounds of five sliding and one full one: what a layer costs
holds for 30.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench import building, checkpoints, operators, running
from bench.beside import counted
from bench.table import Row
from bench.watch import python

PRECISION = "Q4_K_M"
LAYERS = 12
WHAT = f"26B-A4B with {LAYERS} of 30 layers, {PRECISION}"
ANONYMOUS = 500e6
TOOK, PROFILED = 7, 3  # steps
LOADED = """
import json, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from bench import running
from bench.watch import status
decoder = running.Decoder(Path(sys.argv[1]))
loaded = status()
step = decoder.prepared(1, running.PROMPT, 1)
for _ in range(4): step()
print(json.dumps([loaded, status()]))
"""


def a4b(scale: float = 1.0) -> dict[str, Any]:
    """The published text geometry with 12 of its layers: 21 GB in bf16; scaled, fewer experts."""
    raw = json.loads((checkpoints.E2B.parent / "26b-a4b.json").read_text(encoding="utf-8"))
    text = raw["text_config"]
    text |= {"num_hidden_layers": LAYERS, "layer_types": text["layer_types"][:LAYERS]}
    text["num_experts"] = max(text["top_k_experts"], int(text["num_experts"] * scale))
    return checkpoints._scaled(text, scale)


def experts(work: Path, scale: float, _: int, given: Path | None = None) -> Iterator[Row]:
    """All rows; a checkpoint that is made for them goes as soon as the package is there."""
    config, package = a4b(scale), work / "a4b-q4"
    source = given or building.checkpoint(config, work / "a4b")
    nbytes = sum(file.stat().st_size for file in source.glob("*.safetensors"))
    run = building.build(source, package, PRECISION)
    if given is None:
        shutil.rmtree(source)
    written = sum(file.stat().st_size for file in package.rglob("*") if file.is_file())
    yield Row(
        f"build {WHAT}",
        f"{run.seconds:.0f} s, {run.anonymous / 1e6:.0f} MB anonymous; {nbytes / 1e9:.1f} GB read, "
        f"{written / 1e9:.2f} GB written",
        aim=f"< {ANONYMOUS / 1e6:.0f} MB",
        met=run.anonymous < ANONYMOUS,
    )
    yield memory(package)
    yield from (step(package, threads) for threads in (2, 1))
    yield read(package, work, config)


def memory(package: Path) -> Row:
    """Of a session before and after some steps: weights of experts stay in the file."""
    loaded, after = python(LOADED, str(package), f"{Path(__file__).parents[1]}").said
    said = (
        f"{m['RssAnon'] / 1e9:.2f} GB anonymous, {m['RssFile'] / 1e9:.2f} mapped" for m in (loaded, after)
    )
    return Row(f"memory of a loaded session, {WHAT}", f"{next(said)}; after four steps {next(said)}")


def step(package: Path, threads: int) -> Row:
    """One token after a prompt."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    once = running.Decoder(package, options).prepared(1, running.PROMPT, 1)
    took = median(once() for _ in range(TOOK))
    return Row(
        f"a token after {running.PROMPT}, {WHAT}, {counted(threads)}",
        f"{took * 1e3:.0f} ms, {took / LAYERS * 1e3:.0f} ms a layer",
    )


def read(package: Path, work: Path, config: Mapping[str, Any]) -> Row:
    """Which experts a token reads, by the profiler: each look-up of rows is one weight of one expert."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    options.enable_profiling, options.profile_file_prefix = True, str(work / "profile")
    decoder = running.Decoder(package, options)
    once = decoder.prepared(1, running.PROMPT, 1)
    for _ in range(PROFILED):
        once()
    events = json.loads(Path(decoder.session.end_profiling()).read_text(encoding="utf-8"))
    found = looked_up(events) / (PROFILED + 1)  # one more in `prepared`
    chosen = config["top_k_experts"] * LAYERS * 2
    spent = operators.by_operator(events)
    del spent["Loop"]  # whose time is that of its body, which is counted
    whole = sum(spent.values())
    listed = ", ".join(f"{name} {time / whole:.0%}" for name, time in spent.most_common(operators.SHOWN))
    return Row(
        f"weights of experts that a token reads, {WHAT}",
        f"{found:g} of {config['num_experts'] * LAYERS * 2}: {chosen} are chosen; time: {listed}",
        aim="the chosen ones alone",
        met=found == chosen,
    )


def looked_up(events: Sequence[Mapping[str, Any]]) -> int:
    """How often rows of experts' weights were taken; no other weight of a layer is looked up in."""
    found = (e["name"] for e in events if e.get("args", {}).get("op_name") == "GatherBlockQuantized")
    return sum(name.endswith("_kernel_time") and "layers." in name for name in found)


def main() -> None:
    """Measures and prints each row as it is known."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.experts", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--scale", type=float, default=1.0, help="shrinks everything, to try the script out")
    parser.add_argument("--work", type=Path, help="a folder on the disk to measure (the current one)")
    parser.add_argument(
        "--source", type=Path, help="a checkpoint that `building.checkpoint(a4b(), ...)` made"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cabochon-bench-", dir=asked.work or Path.cwd()) as place:
        for row in experts(Path(place), asked.scale, 1, asked.source):
            print(row.line(), flush=True)


if __name__ == "__main__":
    main()
