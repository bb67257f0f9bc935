"""The resampler: exact small cases, and what must hold for any size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cabochon.media.resize import resized
from pictures import digest, picture

SIDE = st.integers(1, 70)


@pytest.mark.parametrize(
    ("row", "count", "expected"),
    [
        # Keys' cubic at 1/4 of a pixel: (-9, 111, 29, -3) of 128: 29 - 3, 111 - 9, 128 + 9, 128 + 3
        ([0, 0, 0, 128, 128, 128], 12, [0, 0, 0, 0, 0, 26, 102, 137, 131, 128, 128, 128]),
        ([7] * 5, 9, [7] * 9),
        ([10, 250], 1, [130]),
        ([0, 255, 0, 255], 2, [107, 148]),
        ([255, 0, 0, 0], 4, [255, 0, 0, 0]),
        ([9], 3, [9, 9, 9]),
    ],
)
def test_a_row(row: list[int], count: int, expected: list[int]):
    for channels in (1, 3):
        image = np.repeat(np.array(row, np.uint8)[None, :, None], channels, axis=2)
        assert resized(image, 1, count)[0].tolist() == [[x] * channels for x in expected]
        assert resized(image.swapaxes(0, 1), count, 1)[:, 0].tolist() == [[x] * channels for x in expected]


@pytest.mark.parametrize(
    ("size", "target", "sha256"),
    [  # of torch.nn.functional.interpolate(uint8, mode="bicubic", antialias=True), torch 2.13: torchvision's kernel
        ((20, 90), (12, 204), "4ecb16b1294b136e"),
        ((300, 200), (48, 48), "4d6e3ace2ffe3d61"),
        ((37, 41), (480, 333), "f3c546e3d4e72f0e"),
        ((1000, 13), (48, 672), "7cf341aebbf589b6"),
    ],
)
def test_as_recorded(size: tuple[int, int], target: tuple[int, int], sha256: str):
    assert digest(resized(picture(*size), *target)) == sha256


@settings(deadline=None, max_examples=60)
@given(SIDE, SIDE, SIDE, SIDE, st.integers(0, 255))
def test_one_colour_stays_one_colour(height: int, width: int, to_height: int, to_width: int, level: int):
    """Weights add up to one within the rounding of each, so that a level moves by one at most."""
    image = resized(np.full((height, width, 3), level, np.uint8), to_height, to_width)
    assert image.shape == (to_height, to_width, 3) and image.dtype == np.uint8
    assert abs(image.astype(int) - level).max() <= 1


@settings(deadline=None, max_examples=40)
@given(SIDE, SIDE, SIDE, SIDE)
def test_channels_and_mirrors_do_not_meet(height: int, width: int, to_height: int, to_width: int):
    image = picture(height, width)
    whole = resized(image, to_height, to_width)
    for channel in range(3):
        np.testing.assert_array_equal(
            resized(image[..., [channel]], to_height, to_width)[..., 0], whole[..., channel]
        )


def test_the_same_size_is_the_same_image():
    np.testing.assert_array_equal(resized(picture(9, 14), 9, 14), picture(9, 14))
