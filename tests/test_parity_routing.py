"""Where rounding decides which experts are chosen: what is not judged then, and what still is."""

import numpy as np
import pytest

from cabochon.parity.components import limits
from cabochon.parity.levels import Disagreement, Generated, Trial, halves, settled
from cabochon.parity.measures import Threshold, difference
from cabochon.parity.reference import Answer
from cabochon.parity.routing import Heard, Routes, firm, undecided

LIMIT = Threshold(0.01, 0.999, "here")
SURE, CLOSE = [0.6, 0.3, 0.1], [0.5, 0.251, 0.249]  # two of three experts are taken


def routes(*positions: list[float]) -> Routes:
    """Two layers that say the same."""
    return Routes(np.repeat(np.array(positions, np.float32)[:, None], 2, 1), 2)


def answer(logits: np.ndarray, said: Routes | None) -> Answer:
    return Answer(logits, logits, (), (), said)


def test_who_is_chosen_and_how_closely() -> None:
    found = routes(SURE, CLOSE)
    assert found.chosen[:, 0].tolist() == [[True, True, False], [True, True, False]]
    np.testing.assert_allclose(found.gaps, [0.2, 0.002], atol=1e-6)
    assert np.isinf(Routes(found.probabilities, 3).gaps).all()


def test_tokens_are_firm_until_another_expert_is_chosen() -> None:
    other = routes(SURE, [0.5, 0.249, 0.251], SURE)
    assert firm(other, routes(SURE, CLOSE, SURE)) == 1
    assert firm(other, other) == 3


def test_behind_a_token_that_is_not_decided_nothing_is() -> None:
    own, exact = routes(SURE, [0.501, 0.251, 0.248], SURE), routes(SURE, CLOSE, SURE)
    assert undecided({"p": own}, {"p": exact})["p"].tolist() == [False, True, True]
    still = routes(SURE, SURE)
    assert undecided({"p": still}, {"p": still})["p"].tolist() == [False, False]


def test_limits_are_measured_where_the_experts_are_the_same() -> None:
    exact = np.eye(4)[[0, 1, 2]]
    moved = exact + 1e-3
    moved[1:] += 0.5  # another expert of the second token
    own = {"p": answer(moved, routes(SURE, [0.5, 0.2495, 0.2505], SURE))}
    told = {"p": answer(exact, routes(SURE, CLOSE, SURE))}
    for arithmetic in ("f16", "f32+int8"):
        trial = halves("here", arithmetic, own, told)
        assert trial.logits is not None and trial.undecided is not None
        assert trial.logits.relative == pytest.approx(2e-3)
        assert trial.experts
    plain = halves("here", "f16", {"p": answer(moved, None)}, {"p": answer(exact, None)})
    assert plain.logits is not None and plain.logits.relative == 0.1
    assert plain.undecided is None
    rounded = halves("here", "f32+int8", {"p": answer(moved, None)}, {"p": answer(exact, None)})
    assert rounded.logits is not None and rounded.logits.relative == 1.0
    assert rounded.undecided is None


def test_what_is_decided_is_held_to_the_limits() -> None:
    exact = np.eye(6)
    late, early = exact.copy(), exact.copy()
    late[4:] += 0.5
    early[1:] += 0.5
    free = np.array([False, False, True, True, True, True])
    trial = Trial("here", "f16", LIMIT, LIMIT, {"p": 1.0}, {"p": free})
    assert trial.admits(LIMIT, "p", difference(late, exact))
    assert not trial.admits(LIMIT, "p", difference(early, exact))
    assert not trial.admits(LIMIT, "q", difference(late, exact))
    assert not trial.admits(LIMIT, "p", difference(np.full((6, 6), np.nan), exact))
    assert trial.mostly(LIMIT, [difference(late, exact)])
    assert not trial.mostly(LIMIT, [difference(early, exact)])
    strict = Trial("here", "f32", LIMIT, LIMIT)
    assert not strict.admits(LIMIT, "p", difference(late, exact))
    assert limits([], []) == {}


def generated(*others: int) -> Generated:
    """Eight tokens, of which some are chosen otherwise after the reference's."""
    apart = tuple(Disagreement(at, 1, 0, 2.0, 2.0) for at in others)
    return Generated((1,) * 8 if others else (0,) * 8, (0,) * 8, apart, 0.1)


def test_generations_may_take_other_experts() -> None:
    same, other, wrong = generated(), generated(3, 6), generated(*range(7))
    assert [one.agreement for one in (same, other, wrong)] == [1.0, 0.75, 0.125]
    for experts in (True, False):
        assert settled("f16", [same, other], experts) is experts
    assert settled("f16", [other, other], True)
    assert not settled("f16", [wrong, other], True)
    assert settled("f16+int8", [wrong], True)
    assert not settled("f16", [], True)


def test_a_model_without_routers_says_nothing() -> None:
    assert Heard(0, []).rows(None, 2) == [None, None]
