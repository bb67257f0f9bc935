"""What a quantized package keeps: the figures, and the verdict on whose weights it has."""

import numpy as np
import pytest

from cabochon.parity.prompts import Prompt
from cabochon.parity.quality import alike, figures, quality
from cabochon.parity.quality_reports import LIMIT, kept, weights

ORIGINAL = np.log(np.array([[0.7, 0.2, 0.1], [0.25, 0.5, 0.25]])).astype(np.float32)
OTHER = np.log(np.array([[0.7, 0.2, 0.1], [0.5, 0.25, 0.25]])).astype(np.float32)
PROMPT = Prompt("p", (1, 2), "text")


def test_equal_logits_keep_everything() -> None:
    found = quality(ORIGINAL, ORIGINAL)
    assert (found.largest, found.mean, found.divergences, found.agrees) == (0, 0, (0, 0), (True, True))


def test_logits_moved_by_a_constant_are_the_same_distribution() -> None:
    found = quality(ORIGINAL + 1, ORIGINAL)
    assert found.divergences == pytest.approx((0, 0), abs=1e-7)
    assert (found.largest, found.mean) == pytest.approx((1 / np.log(10),) * 2, rel=1e-6)


def test_the_divergence_is_that_from_the_original() -> None:
    found = quality(OTHER, ORIGINAL)
    assert found.divergences == pytest.approx((0, 0.25 * np.log(0.5) + 0.5 * np.log(2)), abs=1e-6)
    assert found.agrees == (True, False)
    assert found.described()["top1_agreement"] == 0.5


def test_positions_count_once_whatever_their_prompt() -> None:
    one, three = (
        quality(ORIGINAL[:1] + 1, ORIGINAL[:1]),
        quality(np.tile(ORIGINAL[:1], (3, 1)), np.tile(ORIGINAL[:1], (3, 1))),
    )
    assert figures([one, three])["mean_relative_difference"] == pytest.approx(one.mean / 4)


def test_other_tokens_are_not_compared() -> None:
    assert alike(ORIGINAL[:1], ORIGINAL) is None


def test_quality_is_reported_and_never_judged() -> None:
    document, line = kept([("here", [(PROMPT, quality(-ORIGINAL, ORIGINAL))])], {"versions": {}})
    assert "passed" not in document and "trials" not in document
    assert document["reported_only"][0]["prompts"][0]["name"] == "p"
    assert line.startswith("top-1 agreement 0.0%") and line.endswith("reported, not judged")


@pytest.mark.parametrize(
    ("apart", "passed"), [(0.1, True), (LIMIT, True), (1.4, False), (float("nan"), False)]
)
def test_weights_are_the_checkpoints_or_not(apart: float, passed: bool) -> None:
    document, line = weights({"model.a.weight": 0.08, "model.b.weight": apart}, {})
    assert document["passed"] is passed
    assert line.startswith("2 in blocks, at most")
    assert ("model.b.weight" in line) is (apart != 0.08)


def test_without_weights_in_blocks_nothing_passes() -> None:
    with pytest.raises(ValueError):
        weights({}, {})
