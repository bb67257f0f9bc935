"""Prefill, decoding at depth, and the full-size package once. Random weights take the time of trained ones."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import cabochon
from bench.table import Row
from bench.watch import python
from cabochon.planning.verdicts import Verdict

PROMPT = 256
DEPTHS = (256, 2048, 8192, 32768)
DEEP = 2048
SPELLINGS = ("default", "onnx-standard", "cuda")
FED = "f32 graph fed to onnxruntime directly, E2B's layers, vocabulary of 32768"
LOAD = """
import json, sys
sys.path.insert(0, sys.argv[2])
import onnxruntime as ort
from bench.watch import status
before = status()
session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
print(json.dumps([before, status()]))
"""
GENERATE = """
import json, sys, time, cabochon
start = time.perf_counter()
model = cabochon.load(sys.argv[1])
loaded = time.perf_counter()
model.generate("Once upon a time", max_new_tokens=1, temperature=0)
first = time.perf_counter()
model.generate("Once upon a time", max_new_tokens=9, temperature=0)
print(json.dumps([loaded - start, first - loaded, time.perf_counter() - first]))
"""


class Decoder:
    """A package's graph, fed with values as onnxruntime holds them: what the graph costs, without Python."""

    def __init__(self, package: Path, options: Any = None) -> None:
        import onnxruntime as ort

        options = options or ort.SessionOptions()
        options.log_severity_level = 3
        self.session = ort.InferenceSession(
            package / "model.onnx", options, providers=["CPUExecutionProvider"]
        )
        self.value: Callable[[Any], Any] = ort.OrtValue.ortvalue_from_numpy
        metadata = self.session.get_modelmeta().custom_metadata_map
        self.window = int(metadata["cabochon.sliding_window"])

    def prepared(self, new: int, depth: int, keep: int) -> Callable[[], float]:
        """Feeding `new` tokens with `depth` tokens in the caches, once run already; sliding caches hold the window.

        What is returned does it again and says how many seconds it took.
        """
        binding = self.session.io_binding()
        for name, array in self._feeds(new, depth, keep):
            binding.bind_ortvalue_input(name, self.value(array))
        self._once(binding)
        return lambda: self._once(binding)

    def _once(self, binding: Any) -> float:
        for port in self.session.get_outputs():
            binding.bind_output(port.name, "cpu")
        start = time.perf_counter()
        self.session.run_with_iobinding(binding)
        return time.perf_counter() - start

    def _feeds(self, new: int, depth: int, keep: int) -> list[tuple[str, np.ndarray]]:
        rng = np.random.default_rng(0)
        feeds = [
            ("input_ids", rng.integers(3, 2000, (1, new))),
            ("attention_mask", np.ones((1, depth + new), np.int64)),
            ("logits_to_keep", np.array(keep)),
        ]
        for port in self.session.get_inputs():
            if port.name.startswith("past_key_values."):
                length = min(depth, self.window - 1) if "sliding" in str(port.shape[2]) else depth
                shape = (1, port.shape[1], length, port.shape[3])
                feeds.append((port.name, rng.standard_normal(shape, np.float32).astype(_dtype(port.type))))
        return feeds


def _dtype(name: str) -> type:
    return np.float16 if name == "tensor(float16)" else np.float32


def interleaved(ways: Iterable[Callable[[], float]], repeats: int) -> list[float]:
    """The median of each, measured in turns, so that a slow moment of the machine falls on all of them."""
    ways = list(ways)
    runs = [[way() for way in ways] for _ in range(repeats)]
    return [median(column) for column in zip(*runs, strict=True)]


def memory(package: Path) -> Row:
    """A session of the f32 package with onnxruntime's defaults, against the weights that are multiplied."""
    run = python(LOAD, str(package / "model.onnx"), f"{Path(__file__).parents[1]}")
    before, after = run.said
    anonymous, mapped = (after[key] - before[key] for key in ("RssAnon", "RssFile"))
    weights = multiplied(package / "model.onnx")
    ratio = (anonymous + mapped) / weights
    return Row(
        f"memory of a loaded session, {FED}",
        f"{anonymous / 1e9:.2f} GB anonymous, {mapped / 1e9:.2f} GB file-backed",
        f"weights that are multiplied: {weights / 1e9:.2f} GB",
        f"{ratio:.2f}",
        "≤ 1.25 × (weights held once)",
        ratio <= 1.25,
    )


def multiplied(graph: Path) -> int:
    """Bytes of the external tensors that are not only gathered from, row by row."""
    import onnx

    model = onnx.load_model(str(graph), load_external_data=False).graph
    used = {name for node in model.node if node.op_type != "Gather" for name in node.input}
    outside = [tensor for tensor in model.initializer if tensor.external_data and tensor.name in used]
    entries = ({item.key: item.value for item in tensor.external_data} for tensor in outside)
    return sum(int(entry["length"]) for entry in entries)


def prefill(package: Path, repeats: int = 3) -> Row:
    """A prompt's last logits against all logits, interleaved; the whole vocabulary, since the head is what differs."""
    decoder = Decoder(package)
    last, every = interleaved((decoder.prepared(PROMPT, 0, keep) for keep in (1, 0)), repeats)
    return Row(
        f"prefill of {PROMPT} tokens, `logits_to_keep=1`, full E2B f16 fed to onnxruntime directly",
        f"{last:.2f} s",
        f"all logits: {every:.2f} s",
        f"{every / last:.2f} × faster",
        "≥ 3.5 ×",
        every / last >= 3.5,
    )


def decoding(decoder: Decoder, repeats: int = 7) -> Iterator[Row]:
    """One token at growing depth, sliding caches cut to their window as the runtime does."""
    base = 0.0
    for depth in DEPTHS:
        (seconds,) = interleaved([decoder.prepared(1, depth, 1)], repeats)
        base = base or seconds
        yield Row(
            f"decode one token after {depth}, {FED}",
            f"{1e3 * seconds:.0f} ms",
            ratio=f"{seconds / base:.2f} of {DEPTHS[0]}",
        )


def spellings(packages: Mapping[str, Path], precision: str, repeats: int = 15) -> Iterator[Row]:
    """One token after DEEP in the graphs of several targets, all on the CPU provider, interleaved."""
    steps = [Decoder(package).prepared(1, DEEP, 1) for package in packages.values()]
    found = dict(zip(packages, interleaved(steps, repeats), strict=True))
    ours = found.pop("default")
    for target, seconds in found.items():
        yield Row(
            f"decode one token after {DEEP}, {precision} graph of `default` fed directly, E2B's attention with a "
            "feed-forward of 768",
            f"{1e3 * ours:.1f} ms",
            f"graph of `{target}`, CPU provider too: {1e3 * seconds:.1f} ms",
            f"{ours / seconds:.2f}",
        )


def planned(source: Path) -> Verdict:
    """What `cabochon plan` says of the default target in f16."""
    return next(v for v in cabochon.plan(source).verdicts if (v.target, v.precision) == ("default", "f16"))


def disk(package: Path, plan: Verdict) -> Row:
    """Planned bytes against those that were written, whole folder."""
    written = sum(file.stat().st_size for file in package.rglob("*") if file.is_file())
    ratio = plan.disk / written
    return Row(
        "full E2B f16: planned disk",
        f"{plan.disk / 1e9:.3f} GB",
        f"written: {written / 1e9:.3f} GB",
        f"{ratio:.4f}",
        "within 5 %",
        abs(ratio - 1) <= 0.05,
    )


def load_and_run(package: Path, plan: Verdict) -> Iterator[Row]:
    """The full-size package in a process of its own: load, first token, eight more; and the memory planned for it."""
    run = python(GENERATE, str(package))
    load, first, nine = run.said
    peak = f"peak {run.anonymous / 1e9:.1f} GB anonymous, {run.resident / 1e9:.1f} GB resident"
    yield Row(
        "full E2B f16 text package through `cabochon.load` on this CPU",
        f"load {load:.1f} s, first token {first:.1f} s, then {(nine - first) / 8:.2f} s a token",
        peak,
    )
    yield Row(
        "full E2B f16: planned memory to run",
        f"{plan.memory / 1e9:.1f} GB",
        peak,
        f"{plan.memory / run.resident:.2f} of resident, {plan.memory / run.anonymous:.2f} of anonymous",
    )
