"""The arithmetic of comparisons: right values, and every limit can be missed."""

import numpy as np
import pytest

from cabochon.parity.measures import Difference, Threshold, difference, top_two_margin, widest

B = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 5.0]], np.float32)


def test_equal_rows_differ_by_nothing() -> None:
    found = difference(B, B)
    assert found.relative == 0
    assert found.cosines == pytest.approx((1, 1))
    assert found.agreement == 1
    assert found.lost_margin() == 0
    assert found.margins == pytest.approx((1 / 5, 5 / 5))


def test_the_largest_component_is_measured_against_the_largest_of_all_positions() -> None:
    a = B.copy()
    a[0, 0] += 1.5  # [4.5, 4, 0]: another largest value
    found = difference(a, B)
    assert found.relative == pytest.approx(1.5 / 5)
    assert found.cosines[0] == pytest.approx((4.5 * 3 + 4 * 4) / (np.hypot(4.5, 4) * 5))
    assert found.agrees == (False, True)
    assert found.agreement == 0.5
    assert found.lost_margin() == pytest.approx(1 / 5)
    assert found.angle == pytest.approx(np.arccos(found.cosines[0]))


def test_shapes_must_be_equal() -> None:
    with pytest.raises(ValueError, match=r"\(2, 3\) and \(1, 3\)"):
        difference(B, B[:1])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_no_limit_admits_what_is_no_number(value: float) -> None:
    a = B.copy()
    a[1, 1] = value
    with np.errstate(invalid="ignore"):
        assert not Threshold(relative=1e9, cosine=-1, chosen="").admits(difference(a, B))


@pytest.mark.parametrize(
    ("relative", "cosine", "admitted"),
    [(1e-4, 1 - 1e-6, True), (1.1e-4, 1 - 1e-6, False), (1e-4, 1 - 2e-6, False), (0.0, 1.0, True)],
)
def test_both_limits_must_hold(relative: float, cosine: float, admitted: bool) -> None:
    limit = Threshold(relative=1e-4, cosine=1 - 1e-6, chosen="")
    assert limit.admits(Difference(relative, (1.0, cosine), (True, True), (1.0, 1.0))) is admitted


def test_margin_and_widest() -> None:
    assert top_two_margin(np.array([1.0, -3.0, 2.5, 2.0])) == 0.5
    near, far = Difference(1e-5, (1.0,), (True,), (1.0,)), Difference(1e-3, (np.cos(0.25),), (True,), (1.0,))
    assert widest([near, far]) == pytest.approx((1e-3, 0.25))
