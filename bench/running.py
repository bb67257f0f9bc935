"""Prefill, decoding at depth, and the full-size package once. Random weights take the time of trained ones."""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.table import Row
from bench.watch import python

PROMPT = 256
DEPTHS = (256, 2048, 8192, 32768)
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

    def __init__(self, package: Path) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = 3
        self.session = ort.InferenceSession(
            package / "model.onnx", options, providers=["CPUExecutionProvider"]
        )
        self.value: Callable[[Any], Any] = ort.OrtValue.ortvalue_from_numpy
        metadata = self.session.get_modelmeta().custom_metadata_map
        self.window = int(metadata["cabochon.sliding_window"])

    def seconds(self, new: int, depth: int, keep: int, repeats: int) -> float:
        """Median time of feeding `new` tokens with `depth` tokens in the caches; sliding ones hold the window."""
        binding = self.session.io_binding()
        for name, array in self._feeds(new, depth, keep):
            binding.bind_ortvalue_input(name, self.value(array))
        times = [self._once(binding) for _ in range(repeats + 1)]
        return median(times[1:])

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


def prefill(package: Path, repeats: int = 3) -> Row:
    """A prompt's last logits against all logits, interleaved."""
    decoder = Decoder(package)
    runs = [(decoder.seconds(PROMPT, 0, 1, 1), decoder.seconds(PROMPT, 0, 0, 1)) for _ in range(repeats)]
    last, every = (median(column) for column in zip(*runs, strict=True))
    return Row(
        f"prefill of {PROMPT} tokens, `logits_to_keep=1`", f"{last:.2f} s", f"all logits: {every:.2f} s",
        f"{every / last:.2f} × faster", "≥ 3.5 ×", every / last >= 3.5,
    )  # fmt: skip


def decoding(package: Path, repeats: int = 7) -> list[Row]:
    """One token at growing depth, sliding caches cut to their window as the runtime does."""
    decoder = Decoder(package)
    found = {depth: decoder.seconds(1, depth, 1, repeats) for depth in DEPTHS}
    base = found[DEPTHS[0]]
    return [
        Row(f"decode one token after {depth}", f"{1e3 * s:.0f} ms", ratio=f"{s / base:.2f} of {DEPTHS[0]}")
        for depth, s in found.items()
    ]


def load_and_run(package: Path) -> Row:
    """The full-size package in a process of its own: load, first token, eight more."""
    run = python(GENERATE, str(package))
    load, first, nine = run.said
    return Row(
        "full E2B f16 text package on this CPU",
        f"load {load:.1f} s, first token {first:.1f} s, then {(nine - first) / 8:.2f} s a token",
        f"peak {run.anonymous / 1e9:.1f} GB anonymous, {run.resident / 1e9:.1f} GB resident",
    )
