"""Soft tokens: what they equal, and how prompts are cut around images."""

from typing import Any

import numpy as np
import pytest

from cabochon.runtime.soft import AUDIO, VISION, Medium, SoftToken, chunks, counted, run_start, soft_tokens

WORD = 5


def medium(seed: int, tokens: int = 3, encoder: str = VISION) -> Medium:
    return Medium(encoder, {"x": np.full((2, 2), seed, np.float32)}, tokens)


def test_a_soft_token_is_its_placeholder_to_whoever_counts():
    tokens = medium(1).soft("image", 8)
    assert [int(t) for t in tokens] == [8, 8, 8]
    assert np.asarray([2, *tokens]).tolist() == [2, 8, 8, 8] and np.asarray(tokens).dtype == np.int64
    assert [type(int(t)) for t in tokens] == [int] * 3


def test_soft_tokens_are_equal_where_row_and_medium_are():
    one, same, other = medium(1).soft("image", 8), medium(1).soft("image", 8), medium(2).soft("image", 8)
    assert one == same and hash(one[1]) == hash(same[1])
    assert one[0] != one[1] and one != other
    assert one[0] != 8 and one[0] != 8 and one[:1] != [8]
    assert one[0] != medium(1).soft("video", 13)[0]
    assert one[0] != medium(1, encoder=AUDIO).soft("audio", 8)[0]


def test_media_are_what_their_arrays_are():
    assert medium(1) == medium(1) != medium(2)
    assert Medium(VISION, {"x": np.zeros((1, 4), np.float32)}, 1) != Medium(
        VISION, {"x": np.zeros((4, 1), np.float32)}, 1
    )
    features = np.ones((2, 4), np.float32)
    made = Medium.encoded(VISION, features)
    assert (made.tokens, made == Medium.encoded(VISION, features.copy())) == (2, True)
    np.testing.assert_array_equal(made.soft("image", 8)[1].features, features[1])


def test_soft_tokens_in_order():
    a, b = medium(1, 2).soft("image", 8), medium(2, 1, AUDIO).soft("audio", 11)
    assert list(soft_tokens([[WORD, *b], [*a, WORD]])) == [*b, *a]
    assert counted([WORD, *a, *b, WORD]) == {"image": 2, "audio": 1}
    assert counted([8, 11]) == {}


IMAGE, SOUND = medium(1, 4).soft("image", 8), medium(2, 4, AUDIO).soft("audio", 11)
PROMPT = [WORD, WORD, *IMAGE, WORD, *SOUND, WORD]  # 0 1 | 2-5 | 6 | 7-10 | 11


@pytest.mark.parametrize(
    ("most", "whole", "cuts"),
    [
        (512, True, [(0, 12)]),
        (5, False, [(0, 5), (5, 10), (10, 12)]),
        (6, False, [(0, 6), (6, 12)]),
        (6, True, [(0, 6), (6, 12)]),
        (5, True, [(0, 2), (2, 7), (7, 12)]),
        (3, True, [(0, 2), (2, 6), (6, 9), (9, 12)]),
        (1, True, [(0, 1), (1, 2), (2, 6), *((n, n + 1) for n in range(6, 12))]),
        (2, True, [(0, 2), (2, 6), (6, 8), (8, 10), (10, 12)]),
    ],
)
def test_chunks_split_no_image(most: int, whole: bool, cuts: Any):
    assert list(chunks(PROMPT, most, whole)) == cuts


def test_adjoining_images_are_one_run():
    """As in the graph, which tells images apart by what is between them."""
    prompt = [*IMAGE, *medium(3, 2).soft("video", 13), WORD]
    assert list(chunks(prompt, 3, True)) == [(0, 6), (6, 7)]
    assert list(chunks([], 3, True)) == []
    assert [run_start(prompt, n) for n in range(8)] == [0, 0, 0, 0, 0, 0, 6, 7]
    assert [run_start(PROMPT, n) for n in (1, 2, 3, 5, 6, 8, 12)] == [1, 2, 2, 2, 6, 8, 12]
    assert isinstance(prompt[4], SoftToken)
