"""Which proposals are kept, and when a choice is too close to trust a step of several tokens."""

import numpy as np
import pytest

from cabochon.runtime.acceptance import RESOLUTION, matching, too_close


@pytest.mark.parametrize(
    ("drafts", "drawn", "kept"),
    [
        ([], [7], 0),
        ([1, 2], [1, 2, 3], 2),
        ([1, 2], [1, 3], 1),
        ([1, 2], [2], 0),
        ([1, 2, 3], [1, 2], 2),  # the answer ended within the drafts
        ([1, 5, 3], [1, 2, 3], 1),
    ],
)
def test_matching(drafts: list[int], drawn: list[int], kept: int):
    assert matching(drafts, drawn) == kept


@pytest.mark.parametrize(
    ("lead", "close"), [(0.0, True), (16 * RESOLUTION, True), (17 * RESOLUTION, False), (1.0, False)]
)
@pytest.mark.parametrize("second", [1, 3])
def test_a_lead_is_measured_by_the_largest_logit(lead: float, close: bool, second: int):
    logits = np.array([-16.0, 0.0, 3.0, 0.0], np.float32)
    scores = logits.copy()
    scores[second] = 3.0 - lead
    assert too_close(scores, logits) is close


def test_a_lone_candidate_is_sure():
    scores = np.array([-np.inf, 2.0, -np.inf], np.float32)
    assert not too_close(scores, np.array([9.0, 2.0, 9.0], np.float32))
