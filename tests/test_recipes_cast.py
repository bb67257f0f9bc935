import shutil
from dataclasses import dataclass
from itertools import permutations, product

import ml_dtypes
import numpy as np
import pytest

from cabochon.errors import TensorError
from cabochon.recipes import cast_kernel
from cabochon.recipes.cast import bound_blocks, cast_blocks

TYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
PATTERNS = np.arange(1 << 16, dtype=np.uint16)


@pytest.fixture(autouse=True, params=["compiled", "numpy"])
def path(request, monkeypatch):
    """Everything holds of both paths."""
    if request.param == "numpy":
        monkeypatch.setattr(cast_kernel, "loaded", lambda: None)
    elif shutil.which("cc") is None and cast_kernel.loaded() is None:
        pytest.skip("no C compiler on this machine")
    else:
        assert cast_kernel.loaded() is not None


@dataclass
class Held:
    """As much of a Tensor as a cast needs."""

    values: np.ndarray
    name: str = "model.layers.3.mlp.down_proj.weight"

    def array(self) -> np.ndarray:
        return self.values


def cast(values, dtype, **options):
    blocks = list(cast_blocks(Held(values), dtype, **options))
    assert all(block.flags.c_contiguous for block in blocks)
    return np.concatenate([block.reshape(-1) for block in blocks])


def bits(values):
    return values.view(f"u{values.itemsize}")


def wide(values):
    """In double precision, which holds every value of the three types."""
    with np.errstate(invalid="ignore"):
        return values.astype(np.float64)


def finite(values):
    return values[np.isfinite(wide(values))]


def same(found, expected):
    """Equal to the bit."""
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(bits(found), bits(expected))


def exact(values, dtype):
    """One rounding from the exact value, by ml_dtypes or numpy."""
    with np.errstate(all="ignore"):
        return wide(values).astype(dtype)


@pytest.mark.parametrize("source, target", [*product(("f16", "bf16"), TYPES)])
def test_every_16_bit_pattern(source, target):
    values = finite(PATTERNS.view(TYPES[source]))
    expected = exact(values, TYPES[target])
    infinite = np.isinf(wide(expected))
    same(cast(values[~infinite], target), expected[~infinite])
    for value in values[infinite][::977]:
        with pytest.raises(TensorError, match=f"which would be infinite in {target}"):
            cast(np.array([value]), target)


@pytest.mark.parametrize("target", ["f16", "bf16"])
def test_ties_go_to_even(target):
    lattice = PATTERNS.view(TYPES[target])
    lattice = lattice[np.isfinite(lattice.astype(np.float32)) & ~np.signbit(lattice.astype(np.float32))]
    low, high = lattice[:-1].astype(np.float32), lattice[1:].astype(np.float32)
    middle = low + (high - low) / 2
    found = bits(cast(middle, target))
    assert (found % 2 == 0).all()
    np.testing.assert_array_equal(cast(np.nextafter(middle, low), target), lattice[:-1])
    np.testing.assert_array_equal(cast(np.nextafter(middle, high), target), lattice[1:])
    same(cast(-middle, target), -cast(middle, target))


def test_f32_at_random_bits():
    values = finite(np.random.default_rng(1).integers(0, 1 << 32, 300_000, np.uint32).view(np.float32))
    for target in ("f16", "bf16"):
        expected = exact(values, TYPES[target])
        keep = np.isfinite(wide(expected))
        same(cast(values[keep], target), expected[keep])


@pytest.mark.parametrize("dtype", TYPES)
def test_same_dtype_is_a_view(dtype):
    values = np.arange(10_000).astype(TYPES[dtype]).reshape(100, 100)
    blocks = list(cast_blocks(Held(values), dtype, block_bytes=4096))
    assert len(blocks) > 1 and all(np.shares_memory(block, values) for block in blocks)
    same(np.concatenate(blocks), values.reshape(-1))


@pytest.mark.parametrize("source, target", [*permutations(TYPES, 2)])
def test_blocks_and_steps_join_without_a_seam(source, target):
    values = np.random.default_rng(2).standard_normal(3 * (1 << 18) + 5).astype(TYPES[source])
    whole = exact(values, TYPES[target])
    for block_bytes in (1 << 18, 1 << 22, 1 << 30):
        same(cast(values, target, block_bytes=block_bytes), whole)


@pytest.mark.parametrize("source, target", [*product(TYPES, TYPES)])
def test_columns_become_a_table_of_their_own(source, target):
    values = np.random.default_rng(3).standard_normal((501, 6 * 8)).astype(TYPES[source])
    for layer in range(6):
        columns = slice(layer * 8, layer * 8 + 8)
        found = cast(values, target, columns=columns, block_bytes=1000)
        same(found.reshape(501, 8), exact(values[:, columns], TYPES[target]))


def test_blocks_are_bounded():
    values = np.zeros(1 << 20, ml_dtypes.bfloat16)
    assert max(block.nbytes for block in cast_blocks(Held(values), "f32", block_bytes=1 << 16)) == 1 << 16
    table = values.reshape(-1, 64)
    assert (
        max(b.nbytes for b in cast_blocks(Held(table), "f32", slice(8, 16), block_bytes=1 << 10)) == 1 << 10
    )


def test_scalars_and_nothing():
    assert cast(np.array(1.5, np.float32), "f16").tolist() == [1.5]
    assert list(cast_blocks(Held(np.zeros((0, 4), np.float32)), "f16")) == []


@pytest.mark.parametrize(
    "value, target, remedy",
    [
        (65520.0, "f16", "f32 or bf16"),
        (-1e6, "f16", "f32 or bf16"),
        (3.4e38, "f16", "f32"),
        (-3.4e38, "bf16", "f32"),
    ],
)
def test_what_would_become_infinite_is_named(value, target, remedy):
    values = np.zeros(5000, np.float32)
    values[4321] = value
    with pytest.raises(TensorError) as caught:
        cast(values, target, block_bytes=1024)
    assert caught.value.at == "model.layers.3.mlp.down_proj.weight"
    assert f"{value:g}" in caught.value.message and target in caught.value.message
    assert caught.value.remedy == f"build with {remedy}"


def test_the_largest_values_pass():
    found = cast(np.float32([65504, 65519, -65519]), "f16").astype(np.float32)
    np.testing.assert_array_equal(found, np.float32([65504, 65504, -65504]))


@pytest.mark.parametrize("source, target", [*product(TYPES, TYPES)])
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
def test_what_is_no_finite_number_is_named(source, target, value):
    values = np.zeros((100, 50), TYPES[source])
    values[43, 21] = value
    for columns in (None, slice(20, 30)):
        with pytest.raises(TensorError, match=f"holds {value:g}; expected finite numbers") as caught:
            cast(values, target, columns=columns, block_bytes=1024)
        assert caught.value.at == "model.layers.3.mlp.down_proj.weight"
        assert caught.value.remedy.startswith("download the file again")
    cast(values, target, columns=slice(0, 20))


def test_other_types_are_refused():
    with pytest.raises(TensorError, match="holds int64; expected bf16, f16 or f32"):
        cast(np.arange(3), "f16")


@pytest.mark.parametrize("value, dtype, expected", [
    (np.inf, "f16", 65504.0),
    (-np.inf, "f32", -3.4028234663852886e38),
    (1e30, "f16", 65504.0),
    (2.5, "bf16", 2.5),
])  # fmt: skip
def test_a_bound_that_bounds_nothing_is_the_largest_number(value, dtype, expected):
    (stored,) = bound_blocks(Held(np.array(value, np.float32)), dtype)
    assert stored.shape == (1,) and stored.dtype == TYPES[dtype] and float(stored[0]) == expected


def test_a_bound_that_is_no_number_is_refused():
    with pytest.raises(TensorError, match="holds nan"):
        list(bound_blocks(Held(np.array(np.nan, np.float32)), "f16"))
