"""Packing into 4 bits: speed of the compiled path and of numpy's, and errors, against the peer's formula.

The peer is Olive 0.13's k-quant for ONNX: a range that need not include 0, twenty candidate scales, least squares for
scale and offset, and only then a zero point that is a whole number. Errors are relative: the root of the sum of
weighted squared errors by the sum of weighted squares, weights √(mean x² of the block) + |x|.
"""

import os
import time
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np

from bench.checkpoints import ROOT
from bench.table import Row
from cabochon.checkpoint import open_checkpoint
from cabochon.packing import Scheme, compiled, kernel, pack, unpack

COLUMNS, BLOCK = 1536, 32
SEARCHED, PLAIN = Scheme("k-quant", 4, BLOCK, False), Scheme("round", 4, BLOCK, False)
SYMMETRIC = Scheme("k-quant", 4, BLOCK, True)  # as `default` and `cuda` have what they multiply
MINIATURE = ROOT / "src" / "cabochon" / "demo" / "miniature" / "target"
DRAWN: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
    "Gaussian": lambda rng, shape: rng.standard_normal(shape),
    "Laplace": lambda rng, shape: rng.laplace(size=shape),
    "Student-t(4)": lambda rng, shape: rng.standard_t(4, shape),
}


def peer(x: np.ndarray) -> np.ndarray:
    """What f32 [blocks, block] become after the peer's k-quant to 4 bits; scales are f16 where they are stored."""
    w = _weights(x)
    low, span = x.min(1, keepdims=True), np.ptp(x, 1, keepdims=True)
    scale, offset = span / 15, low
    code = _codes((x - low) / _or_one(scale))
    error = _sum(w * (scale * code + offset - x) ** 2)
    sw, swx = _sum(w), _sum(w * x)
    for step in range(20):
        code = _codes((14 + step / 10) / _or_one(span) * (x - low))
        swq, swqq, swqx = _sum(w * code), _sum(w * code**2), _sum(w * code * x)
        bottom = sw * swqq - swq**2
        s, m = (sw * swqx - swx * swq) / _or_one(bottom), (swqq * swx - swq * swqx) / _or_one(bottom)
        found = _sum(w * (s * code + m - x) ** 2)
        better = (found < error) & (bottom > 0)
        scale, offset, error = (
            np.where(better, new, old) for new, old in ((s, scale), (m, offset), (found, error))
        )
    zero = _codes(-offset / _or_one(scale))
    return scale.astype(np.float16).astype(np.float32) * (_codes(x / _or_one(scale) + zero) - zero)


def errors(x: np.ndarray, became: np.ndarray) -> tuple[float, float]:
    """Relative errors, weighted and plain, of f32 [blocks, block]."""
    w, off = _weights(x), (became - x) ** 2
    return float(np.sqrt((w * off).sum() / (w * x * x).sum())), float(np.sqrt(off.sum() / (x * x).sum()))


def packed_and_back(x: np.ndarray, scheme: Scheme) -> np.ndarray:
    """The same of f32 [blocks, block] with a scheme of ours."""
    return unpack(pack(x, scheme), scheme, x.shape[1])


def trained() -> np.ndarray:
    """Everything of the miniature that has two dimensions and whole blocks, f32 [blocks, block]."""
    found = [t.array() for t in open_checkpoint(MINIATURE).tensors.values() if len(t.shape) == 2]
    return np.concatenate([x.reshape(-1, BLOCK) for x in found if x.shape[1] % BLOCK == 0]).astype(np.float32)


def quality(rows: int = 512) -> Iterator[Row]:
    """Two rows for each distribution, and two for trained weights: with zero points, and without."""
    rng = np.random.default_rng(0)
    drawn = {
        name: draw(rng, (rows, COLUMNS)).astype(np.float32).reshape(-1, BLOCK) for name, draw in DRAWN.items()
    }
    for name, x in {**drawn, "trained (miniature)": trained()}.items():
        ours, nearest, theirs = (
            errors(x, y) for y in (packed_and_back(x, SEARCHED), packed_and_back(x, PLAIN), peer(x))
        )
        less = 1 - ours[0] / theirs[0]
        yield Row(
            f"error of {name} weights in 4 bits, blocks of {BLOCK}",
            f"weighted {ours[0]:.4f}, plain {ours[1]:.4f}",
            f"peer's k-quant {theirs[0]:.4f}, {theirs[1]:.4f}; to nearest {nearest[0]:.4f}, {nearest[1]:.4f}",
            f"{less:.1%} less", "≥ 7 % less than the peer's", less >= 0.07,
        )  # fmt: skip
        bare = errors(x, packed_and_back(x, SYMMETRIC))
        yield Row(
            f"error of {name} weights in 4 bits, blocks of {BLOCK}, symmetric",
            f"weighted {bare[0]:.4f}, plain {bare[1]:.4f}",
            f"with zero points {ours[0]:.4f}, {ours[1]:.4f}",
            f"{bare[0] / ours[0] - 1:.1%} more",
        )


def speed(rows: int = 16384, repeats: int = 3) -> Iterator[Row]:
    """Numbers a second of both paths and of the peer; best of the repeats, what is slow with 1/32 of the rows."""
    import ml_dtypes

    drawn = np.random.default_rng(0).standard_normal((rows, COLUMNS), np.float32) * np.float32(0.02)
    x, some = drawn.astype(ml_dtypes.bfloat16), drawn[: max(rows // 32, 1)]
    ways: dict[str, Callable[[], float]] = {
        "compiled": lambda: _rate(lambda: pack(x, SEARCHED), x.size),
        "to nearest": lambda: _rate(lambda: pack(x, PLAIN), x.size),
        "numpy": lambda: _numpy(lambda: _rate(lambda: pack(some, SEARCHED), some.size)),
        "peer": lambda: _rate(lambda: peer(some.reshape(-1, BLOCK)), some.size),
    }
    rates = {name: max(way() for _ in range(repeats)) for name, way in ways.items()}
    what, against = (
        f"packing bf16 into 4 bits, {len(os.sched_getaffinity(0))} threads",
        f"peer's k-quant in numpy: {rates['peer']:.1f} M/s",
    )
    ratio = {name: rate / rates["peer"] for name, rate in rates.items()}
    if compiled():
        yield Row(
            f"{what}, compiled", f"{rates['compiled']:.0f} M/s, to nearest {rates['to nearest']:.0f} M/s", against,
            f"{ratio['compiled']:.0f} × the speed", "≥ 20 ×", ratio["compiled"] >= 20,
        )  # fmt: skip
    yield Row(f"{what}, numpy alone", f"{rates['numpy']:.1f} M/s", against, f"{ratio['numpy']:.1f} ×")


def _numpy(measure: Callable[[], float]) -> float:
    with mock.patch.object(kernel, "loaded", lambda: None):
        return measure()


def _rate(run: Callable[[], object], numbers: int) -> float:
    start = time.perf_counter()
    run()
    return numbers / (time.perf_counter() - start) / 1e6


def _weights(x: np.ndarray) -> np.ndarray:
    return np.sqrt((x * x).mean(1, keepdims=True)) + np.abs(x)


def _codes(ratio: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(ratio), 0, 15)


def _or_one(x: np.ndarray) -> np.ndarray:
    return np.where(x == 0, np.float32(1), x)


def _sum(x: np.ndarray) -> np.ndarray:
    return x.sum(1, keepdims=True)


if __name__ == "__main__":
    for row in [*quality(), *speed()]:
        print(row.line(), flush=True)
