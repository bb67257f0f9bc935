"""Images against recorded results of transformers' processor, its torchvision backend."""

import numpy as np
import pytest

from cabochon.errors import RequestError
from cabochon.media import ImageProcessor, read_processors
from cabochon.media.patches import Normalization, Patching
from pictures import REAL, TARGET, TINY, UNIFIED, digest, picture

REFERENCE = TINY / "ref"
process = ImageProcessor(REAL)


@pytest.mark.parametrize(
    ("height", "width", "budget", "tokens", "values", "positions"),
    [  # SHA-256 of pixel_values and image_position_ids: transformers 5.24, torchvision 0.28, torch 2.13
        (480, 640, 280, 266, "fb267f0d62ffe69e", "b3f89b38d2b04bed"),
        (50, 70, 70, 63, "ab197be765bbe5b8", "5461cbbf51a9722b"),
        (1000, 37, 140, 122, "779997e889615cad", "437708069b5b0451"),
        (768, 768, 560, 529, "c06cd05c7a63c785", "cd18ca58a2e55c1f"),
        (3, 400, 280, 193, "2652023f4222928a", "afe85e6feddcaec9"),
        (1, 1, 1120, 1089, "6a6e86a8ed5b3acc", "b1940dc31dd6d937"),
        (33, 2000, 1120, 1040, "3b7bd4bf51adef95", "f04fcc66a21ac4ef"),
        (672, 912, 280, 266, "f6b44a17d5fb23c9", "b3f89b38d2b04bed"),
    ],
)
def test_as_recorded(height: int, width: int, budget: int, tokens: int, values: str, positions: str):
    images = process(picture(height, width), max_soft_tokens=budget)
    assert images.tokens == (tokens,)
    assert images.pixel_values.shape == (1, budget * 9, 768) and images.pixel_values.dtype == np.float32
    assert digest(images.pixel_values) == values
    assert digest(images.pixel_position_ids) == positions


HALVED = Normalization((0.5, 0.4, 0.3), (0.5, 0.25, 0.2))
SMALL = Patching(4, 5, 70, 1 / 255, HALVED)


@pytest.mark.parametrize(
    ("patching", "height", "width", "budget", "tokens", "values", "positions"),
    [  # the same of Gemma4UnifiedImageProcessor
        (REAL, 480, 640, 280, 266, "1228e3f96b2b4bcd", "ae22b7eb2e84bc30"),
        (REAL, 37, 900, 70, 41, "28fac4dc969d03d8", "b251b2c2d59d4ec5"),
        (REAL, 300, 20, 140, 135, "fe0029a38401a638", "7f8a32b05adbb5ac"),
        (REAL, 3, 400, 280, 193, "13b644b3a87325d1", "1301a0d26e266e7a"),
        (SMALL, 300, 200, 70, 60, "911b63c3cea41a7f", "51bdf582affd4d98"),
    ],
)
def test_patches_that_are_tokens_as_recorded(
    patching: Patching, height: int, width: int, budget: int, tokens: int, values: str, positions: str
):
    images = ImageProcessor(patching.merged())(picture(height, width), max_soft_tokens=budget)
    assert images.tokens == (tokens,)
    assert images.pixel_values.shape == (1, budget, 3 * patching.side**2)
    assert digest(images.pixel_values) == values
    assert digest(images.pixel_position_ids) == positions


def test_the_tiny_reference_of_the_unified_model():
    recorded = np.load(REFERENCE / "inputs_unified_image.npz")
    media, image = np.load(REFERENCE / "media.npz"), read_processors(UNIFIED).image
    assert image is not None
    made = image(media["image"])
    np.testing.assert_array_equal(made.pixel_values, recorded["pixel_values"])
    np.testing.assert_array_equal(made.pixel_position_ids, recorded["image_position_ids"])
    assert made.tokens == (int((recorded["input_ids"] == 8).sum()),)
    bare = image(media["image"], padded=False)
    np.testing.assert_array_equal(bare.pixel_values, made.pixel_values[:, : made.tokens[0]])


def test_the_tiny_reference():
    recorded, media = np.load(REFERENCE / "inputs_image.npz"), np.load(REFERENCE / "media.npz")
    image = read_processors(TARGET).image
    assert image is not None
    made = image(media["image"])
    np.testing.assert_array_equal(made.pixel_values, recorded["pixel_values"])
    np.testing.assert_array_equal(made.pixel_position_ids, recorded["image_position_ids"])
    assert made.tokens == (60,)


def test_two_images_of_two_shapes():
    recorded, image = np.load(REFERENCE / "two_images.npz"), read_processors(TARGET).image
    assert image is not None
    made = image([picture(20, 90), picture(64, 30)])
    np.testing.assert_array_equal(made.pixel_position_ids, recorded["image_position_ids"])
    assert made.tokens == (51, 60)
    for i, one in enumerate((picture(20, 90), picture(64, 30))):
        np.testing.assert_array_equal(image(one).pixel_values[0], made.pixel_values[i])


def test_without_padding():
    sizes = [(20, 90), (480, 640), (64, 30)]
    padded, bare = (
        process([picture(*size) for size in sizes]),
        process([picture(*s) for s in sizes], padded=False),
    )
    length = max(padded.tokens) * 9
    assert bare.tokens == padded.tokens and bare.pixel_values.shape == (3, length, 768)
    np.testing.assert_array_equal(bare.pixel_values, padded.pixel_values[:, :length])
    np.testing.assert_array_equal(bare.pixel_position_ids, padded.pixel_position_ids[:, :length])
    assert not padded.pixel_values[:, length:].any() and (padded.pixel_position_ids[:, length:] == -1).all()


def test_errors_name_the_image():
    with pytest.raises(RequestError, match=r"^images\[1\]: array of shape \[2, 2, 2\]; expected \[H, W\]"):
        process([picture(5, 5), np.zeros((2, 2, 2), np.uint8)])
    with pytest.raises(RequestError, match=r"^images\[0\] nowhere.png: cannot be read: No such file"):
        process(["nowhere.png"])
    with pytest.raises(RequestError, match=r"^images: no image; expected at least one"):
        process([])
    with pytest.raises(RequestError, match=r"^max_soft_tokens: 100; expected one of 70, 140"):
        process(picture(5, 5), max_soft_tokens=100)
