"""The formula of the size, the cut, the padding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cabochon.errors import RequestError
from cabochon.media.patches import SOFT_TOKENS, Normalization, Patching, stacked
from pictures import REAL, picture


@pytest.mark.parametrize(
    ("height", "width", "budget", "size"),
    [  # transformers' get_aspect_ratio_preserving_size, with 16 and 3
        (480, 640, 280, (672, 912)),
        (1, 1, 1120, (1584, 1584)),
        (768, 768, 560, (1104, 1104)),
        (1000, 37, 140, (2928, 96)),
        (3, 400, 280, (48, 9264)),
        (1, 100, 280, (48, 8016)),
        (1, 300, 280, (48, 13440)),  # a side that would vanish is 48; the other has the whole budget at most
        (5000, 2, 70, (3360, 48)),
        (10**6, 1, 70, (3360, 48)),
    ],
)
def test_size(height: int, width: int, budget: int, size: tuple[int, int]):
    patching = REAL.with_budget(budget)
    assert patching.size(height, width) == size
    assert patching.tokens(height, width) == size[0] * size[1] // 48**2


@settings(deadline=None)
@given(
    st.integers(1, 20_000),
    st.integers(1, 20_000),
    st.sampled_from(SOFT_TOKENS),
    st.integers(1, 16),
    st.integers(1, 4),
)
def test_any_size_keeps_the_budget(height: int, width: int, budget: int, patch: int, pool: int):
    patching = Patching(patch, pool, budget)
    rows, columns = (length / patching.side for length in patching.size(height, width))
    assert rows == int(rows) >= 1 and columns == int(columns) >= 1
    assert rows * columns == patching.tokens(height, width) <= budget


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 90), st.integers(1, 90))
def test_positions_cover_the_grid(height: int, width: int):
    patching = Patching(patch_size=2, pooling_kernel_size=3, max_soft_tokens=70)
    patches, positions = patching(picture(height, width))
    rows, columns = (length // 2 for length in patching.size(height, width))
    assert patches.shape == (rows * columns, 12) and len(patches) <= patching.max_patches
    assert patches.min() >= 0 and patches.max() <= 1
    assert positions.tolist() == [[x, y] for y in range(rows) for x in range(columns)]
    kept = {(x // 3, y // 3) for x, y in positions.tolist()}  # cells that the encoder pools and keeps
    assert len(kept) == patching.tokens(height, width)


def test_a_patch_is_rows_of_pixels_with_their_channels():
    patching = Patching(patch_size=2, pooling_kernel_size=1, max_soft_tokens=70)
    height, width = patching.size(16, 18)
    image = picture(height, width)  # of its size already: nothing is resized
    assert patching.size(height, width) == (height, width)
    patches, positions = patching(image)
    x, y = positions[11]
    cut = image[2 * y : 2 * y + 2, 2 * x : 2 * x + 2]
    np.testing.assert_array_equal(patches[11], cut.reshape(-1) * np.float32(1 / 255))
    assert patches.dtype == np.float32 and positions.dtype == np.int64


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 5), st.integers(1, 4))
def test_a_merged_patch_is_the_picture_of_those_that_were_pooled(
    height: int, width: int, side: int, pool: int
):
    """Each small patch lies in it where its position says, and it has the place of their cell."""
    image, small = picture(height, width), Patching(side, pool, 70)
    patches, places = small(image)
    merged, cells = small.merged()(image)
    assert small.merged().size(height, width) == small.size(height, width)
    assert len(cells) == small.tokens(height, width) == small.merged().tokens(height, width)
    at = {tuple(place): n for n, place in enumerate(cells.tolist())}
    for patch, (x, y) in zip(patches.reshape(-1, side, side, 3), places.tolist(), strict=True):
        whole = merged[at[x // pool, y // pool]].reshape(pool * side, pool * side, 3)
        top, left = y % pool * side, x % pool * side
        np.testing.assert_array_equal(whole[top : top + side, left : left + side], patch)


def test_normalization_is_of_values_in_0_1():
    patching = Patching(2, 1, 70, 1 / 255, Normalization((0.5, 0.25, 0.0), (0.5, 1.0, 2.0)))
    image = picture(*patching.size(16, 16))
    values = patching(image)[0].reshape(-1, 3)
    plain = Patching(2, 1, 70)(image)[0].reshape(-1, 3)
    np.testing.assert_allclose(values, (plain - [0.5, 0.25, 0.0]) / [0.5, 1.0, 2.0], atol=1e-6)


def test_padding():
    pair = np.ones((2, 3), np.float32), np.zeros((2, 2), np.int64)
    values, positions = stacked([pair, pair], 3)
    assert values.tolist() == [[[1.0] * 3] * 2 + [[0.0] * 3]] * 2
    assert positions.tolist() == [[[0, 0], [0, 0], [-1, -1]]] * 2


@pytest.mark.parametrize("budget", [0, 71, 280.0, True, "280"])
def test_budgets(budget: int):
    with pytest.raises(RequestError, match=r"max_soft_tokens: .*; expected one of 70, 140, 280, 560, 1120"):
        REAL.with_budget(budget)
    assert REAL.with_budget(None) is REAL


def test_no_size():
    with pytest.raises(RequestError, match="0 x 5 pixels; expected at least one"):
        REAL.size(0, 5)
