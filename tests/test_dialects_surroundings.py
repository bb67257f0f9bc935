"""Attention of encoders in blocks: right at every length, and never more than one block's scores in memory."""

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from cabochon.dialects import TARGETS

DIALECTS = ("default", "onnx-standard", "cuda", "webgpu")
Run = Callable[..., np.ndarray]


def traced(target: str, heads: int, size: int, groups: int, precision: str = "f32") -> bytes:
    g = TARGETS[target].drafter_dialect("attention")
    q = g.input("q", precision, "batch", heads, "sequence", size)
    k, v = (g.input(name, precision, "batch", groups, "sequence", size) for name in "kv")
    around = g.surroundings(g.input("real", "bool", "batch", "sequence"))
    g.output("y", g.attend_within(q, k, v, around), "batch", "sequence", heads * size)
    model = ir.to_proto(g.model({}))
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def runner(target: str, heads: int = 4, size: int = 8, groups: int = 2, precision: str = "f32") -> Run:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        traced(target, heads, size, groups, precision), options, providers=["CPUExecutionProvider"]
    )
    return lambda *values: session.run(None, dict(zip(("q", "k", "v", "real"), values, strict=True)))[0]


def values(batch: int, length: int, heads: int = 4, size: int = 8, groups: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng([batch, length])
    shapes = [(batch, count, length, size) for count in (heads, groups, groups)]
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def expected(q: np.ndarray, k: np.ndarray, v: np.ndarray, real: np.ndarray) -> np.ndarray:
    """In f64, some queries at a time."""
    batch, heads, length, size = q.shape
    y = np.zeros((batch, length, heads, size))
    for b in range(batch):
        for h in range(heads):
            group = h * k.shape[1] // heads
            keys, carried = (x[b, group, real[b]].astype(np.float64) for x in (k, v))
            for start in range(0, length, 1000):
                share = np.exp(q[b, h, start : start + 1000] @ keys.T)
                y[b, start : start + 1000, h] = share @ carried / share.sum(-1, keepdims=True)
    return y.reshape(batch, length, -1)


@pytest.mark.parametrize("target", DIALECTS)
def test_lengths_around_the_size_of_a_block(target: str) -> None:
    run = runner(target)
    for length in (1, 2, 7, 191, 192, 193, 383, 384, 385, 630):
        q, k, v = values(3, length)
        real = np.random.default_rng(length).random((3, length)) < 0.6
        real[:, length // 2] = True
        assert np.abs(run(q, k, v, real) - expected(q, k, v, real)).max() < 1e-5, length


@pytest.mark.parametrize("target", DIALECTS)
def test_a_row_where_nothing_is_real_has_numbers(target: str) -> None:
    q, k, v = values(3, 200)
    real = np.ones((3, 200), bool)
    real[1] = False
    found = runner(target)(q, k, v, real)
    assert np.isfinite(found).all()
    assert np.abs(found - expected(q, k, v, np.ones_like(real)))[[0, 2]].max() < 1e-5


@pytest.mark.parametrize("target", DIALECTS)
@pytest.mark.parametrize(("batch", "length"), [(0, 5), (2, 0), (0, 0)])
def test_nothing_at_all(target: str, batch: int, length: int) -> None:
    found = runner(target)(*values(batch, length), np.ones((batch, length), bool))
    assert found.shape == (batch, length, 32)


@pytest.mark.parametrize("target", ["onnx-standard", "cuda"])
def test_the_longest_rows(target: str) -> None:
    """10,080 patches, the most of an image: other kernels gave NaN from about 2,430 on."""
    q, k, v = values(1, 10_080, 1, 4, 1)
    real = np.arange(10_080)[None] % 7 > 0
    found = runner(target, 1, 4, 1)(q, k, v, real)
    assert np.abs(found - expected(q, k, v, real)).max() < 1e-5


@pytest.mark.parametrize(
    ("target", "precision"),
    [("default", "f32"), ("default", "f16"), ("onnx-standard", "f32"), ("cuda", "f32")],
)
def test_scores_are_held_for_one_block_only(target: str, precision: str) -> None:
    """Two rows of 2,520: all their scores are 194 MiB in f32, of one row 97. A process of its own tells the peak."""
    program = """
import resource, sys
import numpy as np
from graphs import NUMPY
from test_dialects_surroundings import runner, values
target, precision = sys.argv[1:]
run = runner(target, precision=precision)
given = [*(x.astype(NUMPY[precision]) for x in values(2, 2520)), np.ones((2, 2520), bool)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert np.isfinite(run(*given)).all()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    child = subprocess.run(
        [sys.executable, "-c", program, target, precision],
        capture_output=True, text=True, check=True, cwd=__file__.rpartition("/")[0],
    )  # fmt: skip
    assert int(child.stdout) < 60 << 10, "KiB"
