"""When rows end, against plain Python."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy_graphs import graphs


def feeds(**given: Any) -> dict[str, np.ndarray]:
    return {name: np.asarray(value, bool if name == "active" else np.int64) for name, value in given.items()}


def terminated(**given: Any) -> tuple[list[bool], bool]:
    """Which rows are done, and whether any goes on."""
    found = graphs()("termination", **feeds(**given))
    assert (found["next_active"] == ~found["done"]).all()
    assert found["continue"].shape == (1,)
    return found["done"].tolist(), bool(found["continue"][0])


@pytest.mark.parametrize(
    "changes, done, goes_on",
    [
        ({}, [False, False, False], True),
        (dict(tokens=[1, 5, 5]), [True, False, False], True),  # a first end token
        (dict(tokens=[106, 106, 106]), [True, False, True], True),  # row 1 has only one
        (dict(tokens=[0, 0, 0]), [False, False, False], True),  # what fills a row up does not count
        (dict(active=[False, True, True]), [True, False, False], True),  # stays inactive
        (dict(active=[False] * 3), [True] * 3, False),
        (dict(iteration=[3]), [False, True, False], True),  # the fourth token of four
        (dict(iteration=[2]), [False, False, False], True),
        (dict(iteration=[99]), [True] * 3, False),
        (dict(tokens=[1, 1, 106]), [True] * 3, False),
    ],
)
def test_rows(changes: dict[str, Any], done: list[bool], goes_on: bool) -> None:
    usual: dict[str, Any] = dict(
        tokens=[5, 5, 5],
        eos_ids=[[1, 106, 0], [1, 106, 0], [106, 1, 50]],
        eos_lengths=[2, 1, 3],
        iteration=[0],
        max_iterations=[10, 4, 100],
        active=[True] * 3,
    )
    assert terminated(**(usual | changes)) == (done, goes_on)


def test_without_end_tokens_only_the_length_ends_a_row() -> None:
    given = dict(tokens=[1], eos_ids=np.zeros((1, 0)), eos_lengths=[0], max_iterations=[3], active=[True])
    assert [terminated(iteration=[n], **given)[0] for n in range(4)] == [[False], [False], [True], [True]]


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(0, 4))
def test_any_rows(noise: int, rows: int, ends: int) -> None:
    random = np.random.default_rng(noise)
    given = dict(
        tokens=random.integers(0, 4, rows),
        eos_ids=random.integers(0, 4, (rows, ends)),
        eos_lengths=random.integers(0, ends + 1, rows),
        iteration=random.integers(0, 4, 1),
        max_iterations=random.integers(0, 5, rows),
        active=random.random(rows) < 0.7,
    )
    expected = [
        not given["active"][i]
        or given["tokens"][i] in given["eos_ids"][i, : given["eos_lengths"][i]]
        or given["iteration"][0] + 1 >= given["max_iterations"][i]
        for i in range(rows)
    ]
    assert terminated(**given) == (expected, not all(expected))


def test_limits_for_every_row() -> None:
    found = graphs()(
        "termination_batch_initializer",
        **feeds(
            input_eos_ids=[[1, 106]] * 4,
            input_eos_lengths=[-1, 1, 9, 2],
            input_max_iterations=[-1, 7, 99, 7],
            fallback_max_iterations=[20],
            active=[True, True, True, False],
        ),
    )
    assert found["row_eos_ids"].tolist() == [[1, 106]] * 4
    assert found["eos_lengths"].tolist() == [2, 1, 2, 0]
    assert found["max_iterations"].tolist() == [20, 7, 20, 0]


def test_one_row_of_limits_serves_all() -> None:
    found = graphs()(
        "termination_batch_initializer",
        **feeds(
            input_eos_ids=[[1, 106]],
            input_eos_lengths=[-1],
            input_max_iterations=[-1],
            fallback_max_iterations=[20],
            active=[True, True, True],
        ),
    )
    assert found["row_eos_ids"].tolist() == [[1, 106]] * 3
    assert found["eos_lengths"].tolist() == [2] * 3
    assert found["max_iterations"].tolist() == [20] * 3
