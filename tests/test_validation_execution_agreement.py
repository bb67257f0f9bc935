"""How far two runs are apart."""

import numpy as np
import pytest

from cabochon.validation.execution.agreement import gap

X = np.array([[[1.0, -4.0], [2.0, 3.0]]], np.float32)


def test_a_gap_is_relative_to_the_largest_value_of_the_same_result():
    found = gap({"a": X, "b": 100 * X}, {"a": X, "b": 100 * X + 1})
    assert found.where == "b" and found.size == pytest.approx(1 / 401, rel=0.01)
    assert gap({"a": X}, {"a": X + 1}).size == pytest.approx(0.25)


def test_columns_are_counted_from_the_end():
    assert gap({"a": X}, {"a": X[:, 1:]}).size == 0
    assert gap({"a": X}, {"a": X[:, :1]}).size > 0.5


@pytest.mark.parametrize("other", [X[0], X * np.nan, X * np.inf, np.zeros((1, 2, 3), np.float32)])
def test_other_shapes_and_what_is_no_number_are_infinitely_far(other):
    assert gap({"a": X}, {"a": other}).size == float("inf")


def test_nothing_in_common_nothing_apart():
    assert gap({"a": X}, {"b": X}) == (0.0, "")
    assert gap({"a": X * 0}, {"a": X * 0}).size == 0
