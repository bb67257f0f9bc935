"""Weights in blocks and back: no block is worse than rounded, every code is the nearest one, nothing is NaN."""

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cabochon.errors import PackingError
from cabochon.packing import Packed, Scheme, kernel, nearest, pack, unpack
from cabochon.packing.nibbles import codes_in

sys.path.insert(0, str(Path(__file__).parents[1]))
from bench.packing import DRAWN, PLAIN, SEARCHED, errors, packed_and_back, peer, trained

TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
LARGEST = {"f32": 1.7e38, "f16": 6.5e4, "bf16": 1.69e38}
SMALLEST = {"f32": 1e-45, "f16": 6e-8, "bf16": 1e-40}
BLOCK = 32


def patterns(kind: str, rng: np.random.Generator, size: float) -> np.ndarray:
    """One block, about `size` large."""
    drawn = rng.standard_normal(BLOCK)
    unit = drawn / np.abs(drawn).max()
    return {
        "random": unit,
        "constant": np.full(BLOCK, rng.choice([-1, 1])),
        "positive": np.abs(unit) / 2 + 0.5,
        "negative": -np.abs(unit) / 2 - 0.5,
        "zero": np.zeros(BLOCK),
        "outlier": np.where(np.arange(BLOCK) == rng.integers(BLOCK), rng.choice([-1, 1]), unit * 1e-3),
        "two values": rng.choice([-1, 0.3], BLOCK),
        "tails": np.sign(unit) * unit**4,
        "mixed sizes": unit * 10.0 ** rng.integers(-30, 1, BLOCK),
    }[kind] * size


KINDS = (
    "random",
    "constant",
    "positive",
    "negative",
    "zero",
    "outlier",
    "two values",
    "tails",
    "mixed sizes",
)


@st.composite
def weights(draw: st.DrawFn) -> tuple[np.ndarray, Scheme]:
    """Rows of blocks in one of three types, and a scheme that can hold them."""
    dtype, scales = draw(st.sampled_from(sorted(TYPES))), draw(st.sampled_from(["f16", "f32"]))
    scheme = Scheme("k-quant", draw(st.sampled_from([4, 8])), BLOCK, draw(st.booleans()), scales)
    largest = min(LARGEST[dtype], LARGEST["f32"] if scales == "f32" else 5e5)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes = st.one_of(st.sampled_from([largest, SMALLEST[dtype], 1e-7, 0.02]), st.floats(1e-44, largest))
    made = [patterns(draw(st.sampled_from(KINDS)), rng, draw(sizes)) for _ in range(draw(st.integers(1, 4)))]
    with np.errstate(under="ignore"):
        return np.concatenate(made)[None].astype(TYPES[dtype]), scheme


def block_errors(x: np.ndarray, became: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted and plain squared errors of blocks, relative to the blocks' squares, in f64."""
    x, off = x.reshape(-1, BLOCK).astype(np.float64), became.reshape(-1, BLOCK).astype(np.float64)
    size = np.abs(x).max(1, keepdims=True)
    x, off = (part / np.where(size == 0, 1, size) for part in (x, off))
    w = np.sqrt((x * x).mean(1, keepdims=True)) + np.abs(x)
    return (w * (x - off) ** 2).sum(1), ((x - off) ** 2).sum(1)


def distance_of_nearest(x: np.ndarray, packed: Packed, scheme: Scheme) -> np.ndarray:
    """From each number to the nearest of all that its block can hold, f64 [blocks, block]."""
    z = np.array(8 * [scheme.middle])
    if packed.zero_points is not None:
        z = codes_in(packed.zero_points, scheme.bits, packed.scales.size).reshape(-1).astype(int)
    levels = np.arange(2**scheme.bits) - z[: packed.scales.size, None]
    held = (levels * packed.scales.astype(np.float64).reshape(-1, 1))[:, None]
    return np.abs(held - x.astype(np.float64).reshape(-1, BLOCK, 1)).min(-1)


@settings(max_examples=50, deadline=None)
@given(found=weights())
def test_no_block_is_worse_than_rounded(found: tuple[np.ndarray, Scheme]) -> None:
    values, scheme = found
    packed = pack(values, scheme)
    rounded = pack(values, Scheme("round", scheme.bits, BLOCK, scheme.symmetric, scheme.scales))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "loaded", lambda: None)
        again = pack(values, scheme)
    assert again.codes.tobytes() == packed.codes.tobytes()
    assert again.scales.tobytes() == packed.scales.tobytes()
    x, became = values.astype(np.float32), unpack(packed, scheme, values.shape[1])
    assert np.isfinite(became).all() and np.isfinite(packed.scales).all()
    assert (nearest(values, packed, scheme) == packed.codes).all()
    ours, plainly = block_errors(x, became), block_errors(x, unpack(rounded, scheme, values.shape[1]))
    for error, limit in zip(ours, plainly, strict=True):
        assert (error <= limit + 1e-30).all()
    distance = np.abs(x.astype(np.float64) - became).reshape(-1, BLOCK)
    slack = np.abs(packed.scales.astype(np.float64)).reshape(-1, 1) * 1e-4 + 1e-45
    assert (distance <= distance_of_nearest(x, packed, scheme) + slack).all()


@pytest.mark.parametrize("name", [*DRAWN, "trained"])
def test_the_weighted_error_is_seven_percent_below_the_peers(name: str) -> None:
    rng = np.random.default_rng(5)
    x = trained()[::8] if name == "trained" else DRAWN[name](rng, (8192, BLOCK)).astype(np.float32)
    ours, rounded, theirs = (
        errors(x, y) for y in (packed_and_back(x, SEARCHED), packed_and_back(x, PLAIN), peer(x))
    )
    assert ours[0] < 0.93 * theirs[0]
    assert ours[1] < 0.97 * rounded[1] < theirs[1]


@pytest.mark.parametrize(
    ("scheme", "limit"),
    [
        (SEARCHED, 5e-4),
        (Scheme("round", 4, 32, True), 5e-4),
        (Scheme("k-quant", 8, 32, False), 5e-4),
        (Scheme("k-quant", 4, 32, False, "f32"), 1e-7),
    ],
)
@pytest.mark.parametrize("value", [0.5, -0.5, 3.0, -0.05, 1e4])
def test_a_constant_block_is_as_right_as_its_scale(scheme: Scheme, limit: float, value: float) -> None:
    """The peer's became 0 without a change of sign."""
    found = unpack(pack(np.full((1, 32), value, np.float32), scheme), scheme, 32)
    assert np.abs(found / np.float32(value) - 1).max() <= limit


def test_a_block_without_a_change_of_sign_spans_its_range() -> None:
    values = np.linspace(1, 2, 32, dtype=np.float32)[None]
    assert np.abs(unpack(pack(values, SEARCHED), SEARCHED, 32) - values).max() < 2 / 15 / 2 + 1e-3


def test_codes_by_hand() -> None:
    values = np.array([[0, 15, -1, 3, 4.4] + [0] * 27], np.float32)
    packed = pack(values, Scheme("round", 4, 32, False))
    assert packed.scales.item() == np.float16(16 / 15)
    assert packed.zero_points is not None and packed.zero_points.tolist() == [[0x81]], "the other half: 8"
    assert packed.codes[0, 0, :3].tolist() == [0xF1, 0x40, 0x15]
    symmetric = pack(values, Scheme("round", 4, 32, True))
    assert symmetric.scales.item() == -15 / 8, "what is largest has the code 0"
    assert symmetric.zero_points is None and symmetric.codes[0, 0, :3].tolist() == [0x08, 0x69, 0x86]


@pytest.mark.parametrize("scheme", [SEARCHED, Scheme("k-quant", 8, 64, True), Scheme("nf4", 4, 64, True)])
def test_rows_are_the_same_bytes_however_they_are_cut(scheme: Scheme) -> None:
    values = np.random.default_rng(2).standard_normal((2100, 192), np.float32)
    whole, parts = pack(values, scheme), [pack(values[cut : cut + 700], scheme) for cut in (0, 700, 1400)]
    for name in ("codes", "scales", "zero_points"):
        of_all = getattr(whole, name)
        if of_all is not None:
            assert of_all.tobytes() == b"".join(getattr(part, name).tobytes() for part in parts)


def test_columns_that_do_not_fill_a_block_have_codes_of_zero() -> None:
    values = np.random.default_rng(3).standard_normal((4, 40), np.float32) + 1
    packed = pack(values, SEARCHED)
    assert packed.codes.shape == (4, 2, 16) and packed.scales.shape == (4, 2)
    assert packed.zero_points is not None and packed.zero_points.shape == (4, 1)
    padded = unpack(packed, SEARCHED, 64)
    assert (padded[:, 40:] == 0).all() and (unpack(packed, SEARCHED, 40) == padded[:, :40]).all()
    assert np.abs(padded[:, :40] - values).max() < 0.3


def test_importance_moves_errors_to_where_they_matter_less() -> None:
    values = np.random.default_rng(4).standard_normal((512, 64), np.float32)
    importance = np.where(np.arange(64) % 4 == 0, 100, 1).astype(np.float32)
    plain, weighed = (
        (unpack(pack(values, SEARCHED, given), SEARCHED, 64) - values) ** 2 for given in (None, importance)
    )
    assert weighed[:, ::4].mean() < 0.8 * plain[:, ::4].mean()
    assert (importance * weighed).sum() < 0.9 * (importance * plain).sum()
    same = [pack(values, SEARCHED, importance * 2.0**e).codes.tobytes() for e in (0, 100, -100)]
    assert len(set(same)) == 1, "only what they are to each other counts"
    assert pack(values, SEARCHED, np.zeros(64)).codes.tobytes() == pack(values, PLAIN).codes.tobytes()


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("value", "scheme", "said"),
    [
        (np.nan, SEARCHED, "a number is NaN or infinite"),
        (-np.inf, Scheme("nf4", 4, 64, True), "a number is NaN or infinite"),
        (-6e5, SEARCHED, "a number has the size 6e+05; scales of type f16 hold less than 5.24e+05"),
        (7e4, Scheme("nf4", 4, 64, True), "scales of type f16 hold less than 6.55e+04"),
        (2e38, Scheme("round", 8, 32, False, "f32"), "scales of type f32 hold less than 1.701e+38"),
    ],
)
def test_what_no_scale_can_hold_is_refused(
    compiled: bool, value: float, scheme: Scheme, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(kernel, "loaded", lambda: None)
    values = np.zeros((3000, 128), np.float32)
    values[-1, 5] = value
    with pytest.raises(PackingError) as raised:
        pack(values, scheme)
    assert said in str(raised.value)


@pytest.mark.parametrize("value", [np.nan, -1, np.inf])
def test_importance_is_of_mean_squares(value: float) -> None:
    importance = np.ones(32, np.float32)
    importance[3] = value
    for wrong in (importance, np.ones(16)):
        with pytest.raises(PackingError, match="expected 32 finite mean squares"):
            pack(np.zeros((1, 32), np.float32), SEARCHED, wrong)
