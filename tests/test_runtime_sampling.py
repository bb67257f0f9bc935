"""Sampling against direct formulas."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cabochon.errors import PackageError, RequestError
from cabochon.runtime.sampling import Sampler, Sampling, candidates, gumbel, penalised, sampling

LOGITS = np.log(np.array([0.5, 0.25, 0.125, 0.0625, 0.0625], np.float32))


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum()


@pytest.mark.parametrize(
    ("how", "ids", "probabilities"),
    [
        ({}, [0, 1, 2, 3, 4], [0.5, 0.25, 0.125, 0.0625, 0.0625]),
        ({"temperature": 0.5}, [0, 1, 2, 3, 4], np.array([64, 16, 4, 1, 1]) / 86),
        ({"temperature": 2.0}, [0, 1, 2, 3, 4], softmax(LOGITS.astype(float) / 2)),
        ({"top_k": 2}, [0, 1], [2 / 3, 1 / 3]),
        (
            {"top_k": 4},
            [0, 1, 2, 3, 4],
            [0.5, 0.25, 0.125, 0.0625, 0.0625],
        ),  # a tie with the last stays, as there
        ({"top_k": 9}, [0, 1, 2, 3, 4], [0.5, 0.25, 0.125, 0.0625, 0.0625]),
        ({"top_p": 0.45}, [0], [1.0]),
        ({"top_p": 0.6}, [0, 1], [2 / 3, 1 / 3]),
        ({"top_p": 1e-6}, [0], [1.0]),
        # of two that are equally likely the first goes
        ({"top_p": 0.9}, [0, 1, 2, 4], [8 / 15, 4 / 15, 2 / 15, 1 / 15]),
        ({"min_p": 0.2}, [0, 1, 2], [4 / 7, 2 / 7, 1 / 7]),
        ({"min_p": 1.0}, [0], [1.0]),
        ({"temperature": 1e-310}, [0], [1.0]),
        ({"temperature": 1e-310, "top_k": 3}, [0], [1.0]),
        ({"top_k": 3, "top_p": 0.8}, [0, 1], [2 / 3, 1 / 3]),  # top-p over what top-k left: 4/7, 2/7, 1/7
        (
            {"temperature": 0.5, "min_p": 0.05},
            [0, 1, 2],
            np.array([16, 4, 1]) / 21,
        ),  # min-p after temperature
    ],
)
def test_candidates(how: dict[str, float], ids: list[int], probabilities: list[float]):
    got, p = candidates(LOGITS, Sampling(greedy=False, **how))
    assert got.tolist() == ids
    np.testing.assert_allclose(p, probabilities, rtol=1e-6)


@given(
    logits=st.lists(st.sampled_from([-np.inf, -2.0, -1.5, 0.0, 0.25, 1.0, 3.0]), min_size=1, max_size=30),
    top_k=st.integers(0, 12),
    top_p=st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
)
def test_what_is_left_is_what_the_definitions_leave(logits: list[float], top_k: int, top_p: float):
    assume(max(logits) > -np.inf)
    left = {id: logit for id, logit in enumerate(logits) if logit > -np.inf}
    if 0 < top_k < len(left):
        least = sorted(left.values())[-top_k]
        left = {id: logit for id, logit in left.items() if logit >= least}
    if top_p < 1.0:
        whole, below = sum(map(np.exp, left.values())), 0.0
        for id in sorted(left, key=lambda id: left[id])[:-1]:
            below += np.exp(left[id]) / whole
            assume(abs(below - (1 - top_p)) > 1e-9)  # else rounding decides
            if below > 1 - top_p:
                break
            del left[id]
    ids, _ = candidates(np.array(logits, np.float32), Sampling(greedy=False, top_k=top_k, top_p=top_p))
    assert ids.tolist() == sorted(left)


def test_minus_infinity_is_never_drawn():
    masked = np.where(np.arange(5) == 3, LOGITS, -np.inf).astype(np.float32)
    assert candidates(masked, Sampling(greedy=False, top_k=2, top_p=0.5))[0].tolist() == [3]


def test_penalty_divides_above_zero_and_multiplies_below():
    logits = np.array([2.0, -2.0, 3.0], np.float32)
    assert penalised(logits, [0, 1, 1], 2.0).tolist() == [1.0, -4.0, 3.0]
    assert logits.tolist() == [2.0, -2.0, 3.0]


def test_draws_follow_the_distribution():
    sampler = Sampler(Sampling(greedy=False, seed=7, top_k=3))
    drawn = np.bincount([sampler([], LOGITS) for _ in range(7000)], minlength=5) / 7000
    np.testing.assert_allclose(drawn, [4 / 7, 2 / 7, 1 / 7, 0, 0], atol=0.02)


def test_noise_is_a_function_of_key_and_id():
    """Gumbel's distribution: exp(-exp(-x)); mean 0.5772, variance pi^2 / 6. Neighbouring ids do not hang together."""
    noise = gumbel(2**64 - 5, np.arange(50_000))
    np.testing.assert_array_equal(gumbel(2**64 - 5, np.array([7, 49_999])), noise[[7, 49_999]])
    np.testing.assert_allclose([noise.mean(), noise.var()], [0.5772, np.pi**2 / 6], atol=0.04)
    for x in (-1.0, 0.0, 1.0, 3.0):
        assert abs((noise < x).mean() - np.exp(-np.exp(-x))) < 0.01
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 0.02
    assert abs(np.corrcoef(noise, gumbel(2**64 - 4, np.arange(50_000)))[0, 1]) < 0.02


def test_guesses_leave_the_draws_as_they_are():
    how, scores = Sampling(greedy=False, seed=3), np.random.default_rng(0).normal(0, 1, (5, 300))
    plain, guessing = Sampler(how), Sampler(how)
    drawn = list[int]()
    for n in range(5):
        for ahead in (0, 3, 1):
            guessing.guess(ahead, scores[0])
        drawn.append(guessing.draw(scores[n]))
    assert drawn == [plain.draw(s) for s in scores]


def test_seed_repeats_and_rows_differ():
    how = Sampling(greedy=False, seed=3)
    flat = np.zeros(1000, np.float32)
    first, again, other = (Sampler(how, row=row) for row in (0, 0, 1))
    draws = [[s([], flat) for _ in range(5)] for s in (first, again, other)]
    assert draws[0] == draws[1] != draws[2]
    assert draws[2] == (lambda s: [s([], flat) for _ in range(5)])(Sampler(Sampling(greedy=False, seed=4)))


def test_hooks_run_after_the_penalty_and_before_the_temperature():
    seen: list[np.ndarray] = []

    def watch(ids: list[int], logits: np.ndarray) -> np.ndarray:
        seen.append(logits.copy())
        return np.where(np.arange(5) == 4, logits, -np.inf)

    sampler = Sampler(Sampling(greedy=False, temperature=0.5, repetition_penalty=2.0), [watch])
    assert sampler([0], LOGITS) == 4
    np.testing.assert_allclose(seen[0], [2 * LOGITS[0], *LOGITS[1:]])


@pytest.mark.parametrize(
    "bad",
    [
        lambda i, x: x[:2],
        lambda i, x: x * np.nan,
        lambda i, x: x * 0 - np.inf,
        lambda i, x: np.where(x == x.max(), np.inf, x),
        lambda i, x: x.astype(object),
        lambda i, x: x.astype(str),
    ],
)
def test_bad_hooks_are_named(bad):
    bad.__name__ = "bad_hook"
    with pytest.raises(RequestError, match=r"hook bad_hook: returned .*expected \(5,\)"):
        Sampler(Sampling(), [bad])([], LOGITS)


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_named(bad: float, greedy: bool):
    with pytest.raises(PackageError, match="logits: the largest logit is NaN or infinite") as caught:
        Sampler(Sampling(greedy=greedy))([], np.array([0, bad, 1], np.float32))
    assert "build with --precision f32" in str(caught.value)


@pytest.mark.parametrize(("penalty", "logits"), [(1e-300, [1.0, 2.0]), (1e300, [-1.0, -2.0])])
def test_a_penalty_that_overflows_is_named(penalty: float, logits: list[float]):
    with pytest.raises(RequestError, match=r"repetition_penalty: .* makes logits infinite"):
        Sampler(Sampling(repetition_penalty=penalty))([0, 1], np.array(logits, np.float32))


DEFAULTS = {"do_sample": True, "temperature": 1.0, "top_k": 64, "top_p": 0.95, "eos_token_id": [1]}


@pytest.mark.parametrize(
    ("defaults", "asked", "greedy", "expected"),
    [
        ({}, {}, None, Sampling()),
        (DEFAULTS, {}, None, Sampling(greedy=False, top_k=64, top_p=0.95)),
        (DEFAULTS, {}, True, Sampling(greedy=True, top_k=64, top_p=0.95)),
        (DEFAULTS, {"temperature": 0}, None, Sampling(greedy=True, top_k=64, top_p=0.95)),
        (DEFAULTS, {"temperature": 0.5, "top_k": 0}, None, Sampling(False, 0.5, 0, 0.95)),
        ({"do_sample": True, "temperature": 0.0}, {"seed": 5}, None, Sampling(greedy=True, seed=5)),
        ({"do_sample": False}, {"top_p": 0.5}, None, Sampling(greedy=False, top_p=0.5)),
        ({"do_sample": False}, {"seed": 5}, None, Sampling(greedy=True, seed=5)),
        ({}, {"repetition_penalty": 1.5}, None, Sampling(greedy=True, repetition_penalty=1.5)),
    ],
)
def test_sampling_over_the_defaults(defaults, asked, greedy, expected: Sampling):
    assert sampling(defaults, asked, greedy=greedy) == expected


def test_greedy_beside_a_sampling_value_is_refused():
    with pytest.raises(RequestError, match="greedy: greedy beside temperature"):
        sampling({}, {"temperature": 0.5}, greedy=True)


@pytest.mark.parity
@pytest.mark.parametrize("seed", range(5))
def test_candidates_are_those_of_transformers(seed: int):
    import torch
    from transformers import (
        LogitsProcessorList,
        MinPLogitsWarper,
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    random = np.random.default_rng(seed)
    logits, seen = random.normal(0, 3, 500).astype(np.float32), random.integers(0, 500, 20).tolist()
    theirs = LogitsProcessorList(
        [RepetitionPenaltyLogitsProcessor(1.3), TemperatureLogitsWarper(0.7), TopKLogitsWarper(64),
         TopPLogitsWarper(0.9), MinPLogitsWarper(0.03)]
    )(torch.tensor([seen]), torch.tensor(logits)[None])[0].softmax(-1).numpy()  # fmt: skip
    how = Sampling(greedy=False, temperature=0.7, top_k=64, top_p=0.9, min_p=0.03)
    ids, probabilities = candidates(penalised(logits, seen, 1.3), how)
    assert ids.tolist() == np.flatnonzero(theirs).tolist()
    np.testing.assert_allclose(probabilities, theirs[ids], rtol=1e-4)
