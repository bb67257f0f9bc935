"""Losses and divergences, against numbers worked out by hand and a plain computation in f64."""

import math

import numpy as np
import pytest

from cabochon.evaluation import scores as module
from cabochon.evaluation.scores import scores, unfit


def plainly(logits: np.ndarray) -> np.ndarray:
    """log p, f64 [T, V]."""
    exact = logits.astype(np.float64)
    top = exact.max(1, keepdims=True)
    return exact - top - np.log(np.exp(exact - top).sum(1, keepdims=True))


def test_two_tokens_by_hand() -> None:
    """p = (1/4, 3/4) is the reference, q = (1/2, 1/2) and then the other way around."""
    even, three = [0.0, 0.0], [0.0, math.log(3)]
    found = scores(np.float32([even, three]), np.array([1, 0]), np.float32([three, even]))
    assert found.losses == pytest.approx([math.log(2), math.log(4)], abs=1e-7)
    assert found.reference == pytest.approx([math.log(4 / 3), math.log(2)], abs=1e-7)
    forth, back = math.log(1 / 2) / 4 + 3 * math.log(3 / 2) / 4, math.log(4 / 3) / 2
    assert found.divergence == pytest.approx([forth, back], abs=1e-7)
    assert list(found.agrees) == [False, False]


@pytest.mark.parametrize("spread", [0.01, 3.0, 40.0, 1e4])
@pytest.mark.parametrize("block", [1, 500, 2**18])
def test_blocks_of_any_size_are_a_plain_computation(
    monkeypatch: pytest.MonkeyPatch, spread: float, block: int
) -> None:
    monkeypatch.setattr(module, "BLOCK", block)
    draw = np.random.default_rng(1)
    ours = (spread * draw.standard_normal((33, 200))).astype(np.float32)
    theirs = (ours + 0.1 * spread * draw.standard_normal((33, 200))).astype(np.float32)
    ids = draw.integers(0, 200, 33)
    found, alone = scores(ours, ids, theirs), scores(ours, ids)
    p, q = plainly(theirs), plainly(ours)
    close = {"rel": 1e-6, "abs": 1e-6}
    assert found.losses == pytest.approx(-q[np.arange(33), ids], **close)
    assert found.reference == pytest.approx(-p[np.arange(33), ids], **close)
    assert found.divergence == pytest.approx((np.exp(p) * (p - q)).sum(1), **close)
    assert (found.agrees == (p.argmax(1) == q.argmax(1))).all()
    assert (alone.losses == found.losses).all() and not alone.divergence.size


def test_nothing_divides_what_is_equal() -> None:
    logits = np.random.default_rng(2).standard_normal((9, 3000)).astype(np.float32)
    found = scores(logits, np.zeros(9, int), logits.copy())
    assert not found.divergence.any()
    assert found.agrees.all() and (found.losses == found.reference).all()


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_found(wrong: float) -> None:
    logits = np.zeros((5, 7), np.float32)
    assert unfit(logits) is None
    logits[3, 1:5] = logits[4] = wrong
    assert unfit(logits) == (3, 4)
