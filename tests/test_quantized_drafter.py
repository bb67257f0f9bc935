"""Quantized drafters of both heads against the NumPy oracle on what their blocks stand for."""

from pathlib import Path

import numpy as np
import pytest

import quantized
from cabochon.checkpoint import open_checkpoint
from cabochon.dialects import TARGETS
from cabochon.gemma4 import drafter_tensors, read_drafter_config, trace_drafter
from cabochon.parity.dequantized import HEAD, TABLE, read_dequantized
from cabochon.parity.subject import Subject
from cabochon.parity.widened import widen
from checkpoints import TINY
from drafters import Drafter, Truth
from graphs import difference
from packages import MINIATURE

EXACT = 1e-4
CHECKPOINTS = {
    "ordered": TINY / "assistant",
    "dense": TINY / "assistant-dense",
    "trained": MINIATURE / "assistant",
}
BUILT = [
    ("default", "Q4_K_M", "ordered"),
    ("default", "Q4_K_M", "trained"),
    ("default", "Q4_K_M-mixed", "dense"),
    ("default", "NF4", "ordered"),
    ("onnx-standard", "Q4_K_M", "ordered"),
    ("onnx-standard", "Q8", "dense"),
    ("cuda", "Q4_K_M", "dense"),
    ("webgpu", "Q8", "ordered"),
]


class Quantized(Drafter):
    """The twin of a quantized drafter."""

    def __init__(self, out: Path, folder: Path, target: str, recipe: str) -> None:
        checkpoint = open_checkpoint(folder)
        config = read_drafter_config(checkpoint.config)
        precision = quantized.precision(recipe, target, activations="f32")
        tensors = drafter_tensors(checkpoint.tensors, config).used
        graph = quantized.write(trace_drafter(config, tensors, TARGETS[target], precision), out)
        self.dtype, self.blocks = np.float32, read_dequantized(graph)
        self.session = Subject.open(widen(out, out / "twin"), threads=1).session


@pytest.mark.parametrize(("target", "recipe", "head"), BUILT)
def test_steps_are_what_the_blocks_say(tmp_path: Path, target: str, recipe: str, head: str) -> None:
    drafter, truth = Quantized(tmp_path, CHECKPOINTS[head], target, recipe), Truth(CHECKPOINTS[head])
    stand = quantized.Stand(truth.weights, drafter.blocks)
    assert max(stand.apart.values()) < (0.01 if recipe == "Q8" else 0.16)
    assert len(stand.replaced) >= 4 * 5 + 2
    if HEAD in stand.replaced:  # the head of a drafter that looks nothing up
        stand.replaced = {TABLE if name == HEAD else name: x for name, x in stand.replaced.items()}
    truth.weights = stand
    rng = np.random.default_rng(5)
    for length in (5, 23):
        shared, x = (
            truth.keys(rng, length),
            rng.standard_normal((1, 1, 2 * truth.backbone)).astype(np.float32),
        )
        logits, state = drafter.run(x, shared)
        expected = truth.step(x[0, 0], shared)
        assert difference(logits[0, 0], expected[0]) < EXACT
        assert difference(state[0, 0], expected[1]) < EXACT
