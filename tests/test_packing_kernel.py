"""The compiled path gives the bytes of numpy's."""

import itertools
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from cabochon.packing import Scheme, compiled, kernel, pack

COLUMNS = 200  # not whole blocks
SCHEMES = [
    *itertools.starmap(
        Scheme, itertools.product(("k-quant", "round"), (4, 8), (32,), (False, True), ("f16", "f32"))
    ),
    *(Scheme("k-quant", 4, block, False) for block in (16, 64, 128)),
    *(Scheme("nf4", 4, 64, True, scales) for scales in ("f16", "f32")),
]
TYPES = [np.float32, np.float16, ml_dtypes.bfloat16]


def weights() -> np.ndarray:
    """f32 [rows, COLUMNS] of all sizes, tails and special blocks that every type and scale can hold."""
    rng = np.random.default_rng(0)
    drawn = [
        rng.standard_normal((8, COLUMNS)),
        rng.laplace(size=(8, COLUMNS)),
        rng.standard_t(2, (8, COLUMNS)),
    ]
    sizes = [np.full(COLUMNS, size) for size in (0, -0.0, 1, -0.5, 6e-8, 6e4, -6e4)]
    outlier = np.where(np.arange(COLUMNS) % 50 == 7, 1000.0, 1e-4)
    ramp = np.linspace(-1, 1, COLUMNS)
    scaled = [drawn[0][:4] * size for size in (1e-8, 1e-6, 1e-3, 1e3)]
    return np.concatenate([*drawn, *scaled, sizes, [outlier, -outlier, ramp, ramp + 1]]).astype(np.float32)


def test_it_is_there_where_there_is_a_compiler() -> None:
    """`pip install -e .` builds it beside its source."""
    if shutil.which("cc") is None and not compiled():
        pytest.skip("no C compiler on this machine")
    assert compiled()


@pytest.mark.parametrize("dtype", TYPES)
def test_the_bytes_are_those_of_numpy(dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled():
        pytest.skip("no C compiler on this machine")
    values, importance = weights().astype(dtype), np.random.default_rng(1).random(COLUMNS, np.float32)
    given: list[tuple[Scheme, np.ndarray | None]] = [(scheme, None) for scheme in SCHEMES]
    given += [(scheme, importance) for scheme in SCHEMES if scheme.method == "k-quant"]
    fast = [pack(values, scheme, weighed) for scheme, weighed in given]
    monkeypatch.setattr(kernel, "loaded", lambda: None)
    for (scheme, weighed), found in zip(given, fast, strict=True):
        expected = pack(values, scheme, weighed)
        for name in ("codes", "scales", "zero_points"):
            ours, theirs = getattr(found, name), getattr(expected, name)
            assert (ours is None and theirs is None) or (
                ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()
            ), (scheme, name)


def test_what_was_built_from_other_sources_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.loaded.cache_clear()
    monkeypatch.setattr(kernel, "_FUNCTIONS", {"cabochon_blocks_0": []})
    assert not compiled()
    kernel.loaded.cache_clear()
    monkeypatch.setattr(kernel, "__file__", str(tmp_path / "kernel.py"))
    assert not compiled()
    kernel.loaded.cache_clear()
