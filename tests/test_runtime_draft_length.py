"""How many tokens to propose: seconds are given, so every length follows from what was observed."""

import numpy as np
import pytest

from cabochon.runtime.draft_length import MOST, PROBE_EVERY, Adaptive, Fixed, Line, Round


def lived(
    acceptance: float, base: float, slope: float, draft: float, rounds: int = 300
) -> tuple[Adaptive, list[int]]:
    """A machine on which a step of m tokens takes base + slope m seconds and a proposal `draft`."""
    length, random, chosen = Adaptive(), np.random.default_rng(1), list[int]()
    for _ in range(rounds):
        count = length.next()
        chosen.append(count)
        hits = random.random(count) < acceptance
        accepted = count if hits.all() else int(hits.argmin())
        noise = random.uniform(0.9, 1.1)
        verified = min(accepted + 1, count)
        length.observe(Round(count, accepted, verified, count * draft, (base + slope * (count + 1)) * noise))
    return length, chosen


def best(acceptance: float, base: float, slope: float, draft: float) -> int:
    def speed(k: int) -> float:
        return (1 - acceptance ** (k + 1)) / (1 - acceptance) / (base + slope * (k + 1) + k * draft)

    return max(range(MOST + 1), key=speed)


@pytest.mark.parametrize(
    ("acceptance", "base", "slope", "draft"),
    [
        (0.85, 100, 1, 5),  # steps cost the same whatever they hold: as many as it may
        (0.85, 40, 60, 5),  # a step of 4 takes 2.8 times one of 1
        (0.2, 10, 90, 30),  # nothing is gained
        (0.5, 100, 10, 10),
        (0.0, 100, 1, 1),
    ],
)
def test_the_length_that_is_fastest_is_found(acceptance: float, base: float, slope: float, draft: float):
    _, chosen = lived(acceptance, base, slope, draft)
    settled = float(np.median(chosen[50:]))
    assert abs(settled - best(acceptance, base, slope, draft)) <= 1


def test_the_first_rounds_measure():
    length, chosen = lived(0.8, 100, 1, 5, rounds=3)
    assert chosen == [4, 0, MOST]
    assert length.acceptance > 0.5


def test_a_better_time_is_noticed():
    """Where nothing pays, a round now and then still proposes."""
    _, chosen = lived(0.0, 10, 90, 30)
    assert chosen[50:].count(0) > 0.9 * 250
    assert max(chosen[PROBE_EVERY + 2 :]) > 0


def test_same_observations_same_lengths():
    assert lived(0.6, 100, 20, 10)[1] == lived(0.6, 100, 20, 10)[1]


def test_fixed():
    length = Fixed(3)
    assert [length.next(), length.next()] == [3, 3]
    length.observe(Round(3, 0, 1, 1.0, 1.0))
    assert length.next() == length.most == 3


def test_a_line_through_steps():
    line = Line()
    line.add(5, 2.0)
    assert not line.known
    assert line.at(1) == line.at(9) == 2.0
    line.add(1, 1.0)
    assert line.known
    np.testing.assert_allclose([line.at(m) for m in (1, 3, 5, 9)], [1.0, 1.5, 2.0, 3.0])


def test_a_hiccup_counts_little():
    line = Line()
    for _ in range(10):
        line.add(1, 1.0)
        line.add(5, 2.0)
    line.add(5, 1000.0)
    assert line.at(5) < 3.0


def test_a_longer_step_is_never_the_faster_one():
    line = Line()
    line.add(1, 2.0)
    line.add(5, 1.0)
    assert line.at(9) >= line.at(1) > 0
