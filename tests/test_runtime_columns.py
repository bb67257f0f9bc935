"""Which columns are real, which may go, which a kernel of lengths would get wrong."""

from typing import Any

import numpy as np
import pytest

from cabochon.errors import RequestError
from cabochon.runtime.columns import Eviction, check_kept, evictable, eviction_limit, extended

TIGHT = Eviction(8, reserve=0, slack=0)


def test_eviction_keeps_the_window_less_the_token_itself_and_a_reserve():
    assert (TIGHT.keep, TIGHT.most) == (7, 7)
    usual = Eviction.usual(512)
    assert (usual.keep, usual.most) == (511 + 16, 511 + 16 + 128)


@pytest.mark.parametrize(
    ("mask", "real", "left", "expected"),
    [
        ([[1, 0, 1]], [[1, 0]], False, [[1, 0, 1, 1, 0]]),
        ([[1, 1, 0], [1, 1, 1]], [[1], [1]], True, [[1, 1, 1, 0], [1, 1, 1, 1]]),
        ([[], []], [[1, 1], [1, 0]], True, [[1, 1], [1, 0]]),
    ],
)
def test_extended(mask: Any, real: Any, left: bool, expected: Any):
    made = extended(np.array(mask, bool), np.array(real, bool), left)
    assert made.astype(int).tolist() == expected


@pytest.mark.parametrize(
    ("mask", "real", "message"),
    [
        ([[1, 1], [1, 0]], [[1, 1], [1, 1]], "2 rows with 2 new tokens each after 2 columns"),
        ([[], []], [[1, 1], [0, 1]], "a row with a gap or padding in front"),
        ([[1], [1]], [[1], [0]], "a row with a gap or padding in front"),
        ([[1, 1]], [[1], [1]], "2 rows fed to a state of 1"),
        ([[1, 1]], [[1, 1, 0]], "padding behind new tokens after 2 columns"),
    ],
)
def test_what_a_kernel_of_lengths_would_compute_wrongly_is_refused(mask: Any, real: Any, message: str):
    with pytest.raises(RequestError, match=message):
        extended(np.array(mask, bool), np.array(real, bool), left_justified=True)


@pytest.mark.parametrize(
    ("keep", "real", "left"),
    [(2, [[1, 1], [1, 0]], False), (1, [[1, 0]], True), (0, [[1, 0]], True), (9, [[1, 1]], True)],
)
def test_kept_positions_that_are_right(keep: int, real: Any, left: bool):
    check_kept(keep, np.array(real, bool), left)


def test_kept_positions_in_the_padding_are_refused():
    with pytest.raises(RequestError, match="the last 2 logits of rows with padding"):
        check_kept(2, np.array([[1, 1], [1, 0]], bool), left_justified=True)
    with pytest.raises(RequestError, match="the last 2 logits of 2 rows"):
        check_kept(2, np.ones((2, 3), bool), left_justified=True)


@pytest.mark.parametrize(
    ("mask", "keep", "columns"),
    [
        ([[1, 1, 1, 1]], 2, 2),
        ([[1, 1, 1, 1]], 9, 0),
        ([[1, 1, 0, 1]], 2, 1),
        ([[0, 0, 1, 1]], 3, 2),
        ([[1, 1, 1, 1], [0, 1, 1, 1]], 3, 1),
        ([[1, 1, 1, 1], [1, 1, 0, 0]], 2, 0),
        ([[1, 1, 1, 1], [1, 1, 1, 0]], 2, 1),
    ],
)
def test_evictable(mask: Any, keep: int, columns: int):
    assert evictable(np.array(mask, bool), keep) == columns


def test_eviction_limit():
    assert eviction_limit([5, 60], TIGHT, left_justified=True) == 0
    assert eviction_limit([30, 60], TIGHT, left_justified=True) == 23
    assert eviction_limit([30, 60], TIGHT, left_justified=False) is None
    assert eviction_limit([60], TIGHT, left_justified=True) is None


@pytest.mark.parametrize(("drafts", "reserve"), [(0, 16), (14, 16), (15, 17), (40, 42)])
def test_what_long_drafts_take_back_stays(drafts: int, reserve: int):
    """Window + 1 keys are left for a drafter when all of `drafts` tokens are forgotten."""
    eviction = Eviction.usual(8, drafts)
    assert eviction.reserve == reserve
    assert eviction.keep - drafts >= 8 + 1
