"""The sampler against plain numpy, its draws against softmax."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cabochon.graph import Tracer
from cabochon.metadata.policies.random import uniform
from cabochon.runtime.sampling import Sampling, candidates
from policy_graphs import graphs, session

WORD = (1 << 64) - 1
INF, NAN = np.inf, np.nan


def split_mix(seed: int, counter: int) -> float:
    def mixed(x: int) -> int:
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & WORD
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & WORD
        return x ^ (x >> 31)

    return (mixed((mixed(seed & WORD) + (counter + 1) * 0x9E3779B97F4A7C15) & WORD) >> 12) / 2**52


@pytest.fixture(scope="module")
def numbers() -> Any:
    g = Tracer("uniform", 23)
    seed, counter = (g.input(name, "i64", "batch") for name in ("seed", "counter"))
    g.output("u", uniform(g, seed, counter), "batch")
    ready = session(g.model({}))
    return lambda seed, counter: ready.run(None, {"seed": seed, "counter": counter})[0]


def feeds(logits: Any, **given: Any) -> dict[str, np.ndarray]:
    """Rows that all draw without limits, but for what is given."""
    logits = np.atleast_2d(np.asarray(logits, np.float32))
    usual = dict(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=0, counter=0, active=True, done=False)
    types = dict(zip(usual, ["f4", "i8", "f4", "f4", "i8", "i8", "?", "?"], strict=True))
    return {"logits": logits} | {
        name: np.broadcast_to(np.asarray(value, types[name]), len(logits)).copy()
        for name, value in (usual | given).items()
    }


def sample(logits: Any, **given: Any) -> list[int]:
    return graphs()("token_sampler", **feeds(logits, **given))["token"].tolist()


def drawn(logits: Any, count: int = 20_000, **given: Any) -> np.ndarray:
    """How often each token comes in `count` steps of one row."""
    steps = np.arange(count)
    tokens = sample(np.broadcast_to(np.float32(logits), (count, len(logits))), counter=steps, seed=7, **given)
    return np.bincount(tokens, minlength=len(logits))


def fits(counts: np.ndarray, shares: np.ndarray) -> bool:
    """Pearson's chi-square; a right sampler fails once in a hundred thousand (Wilson and Hilferty 1931)."""
    assert not counts[shares == 0].any()
    counts, expected = counts[shares > 0], (shares * counts.sum())[shares > 0]
    degrees = len(counts) - 1
    chi_square = ((counts - expected) ** 2 / expected).sum()
    return chi_square < degrees * (1 - 2 / (9 * degrees) + 4.27 * (2 / (9 * degrees)) ** 0.5) ** 3


# random numbers


def test_numbers_are_split_mix(numbers: Any) -> None:
    ends = [0, 1, -1, 2**63 - 1, -(2**63), 12345, 1 << 32]
    seeds, counters = (np.array(x, np.int64) for x in zip(*((s, c) for s in ends for c in ends), strict=True))
    found = numbers(seeds, counters)
    assert found.tolist() == [split_mix(int(s), int(c)) for s, c in zip(seeds, counters, strict=True)]


@pytest.mark.parametrize(
    "pairs",
    [
        lambda n: ((n, 0 * n), (n + 1, 0 * n)),  # neighbouring seeds
        lambda n: ((0 * n, n), (0 * n, n + 1)),  # neighbouring steps
        lambda n: ((n, n), (n, n + 1)),
        lambda n: ((n, 0 * n + 3), (n + 2**32, 0 * n + 3)),
        lambda n: ((n, 0 * n), (0 * n, n)),
    ],
)
def test_numbers_are_uniform_and_tell_nothing_of_each_other(numbers: Any, pairs: Any) -> None:
    n = np.arange(1, 1 + (1 << 16))
    a, b = (numbers(*x) for x in pairs(n))
    cells = (a * 16).astype(int) * 16 + (b * 16).astype(int)
    assert min(a.min(), b.min()) >= 0 and max(a.max(), b.max()) < 1
    assert fits(np.bincount(cells, minlength=256), np.full(256, 1 / 256))


# one token


@pytest.mark.parametrize(
    "logits, given, token",
    [
        ([1, 3, 2], dict(top_k=1), 1),
        ([1, 3, 2], dict(temperature=0), 1),
        ([1, 3, 2], dict(temperature=-1), 1),
        ([1, 3, 2], dict(temperature=NAN), 1),
        ([1, 3, 3, 2], dict(top_k=1), 1),  # of equals the first
        ([NAN, 1, NAN, 2], dict(top_k=1), 3),
        ([1, INF, -INF], dict(top_k=1), 1),
        ([-INF, -INF, -INF], dict(top_k=1), 0),
        ([NAN, NAN], dict(temperature=0), 0),
        ([0, 0], dict(active=False, temperature=0, top_p=0.5), 0),
        # draws with one possible outcome
        ([1, 3, 2], dict(top_p=0.0), 1),
        ([1, 3, 2], dict(top_p=-1.0), 1),
        ([1, 3, 2], dict(min_p=1.0), 1),
        ([1, 3, 2], dict(min_p=9.0), 1),
        ([1, 3, 2], dict(temperature=1e-30), 1),
        ([-INF, 3, -INF], dict(), 1),
        ([NAN, 3, NAN], dict(temperature=INF, min_p=NAN, top_p=NAN), 1),
        ([1, INF, 5], dict(), 1),
        ([5], dict(top_k=9, top_p=0.5, min_p=0.1), 0),
    ],
)
def test_what_can_come_only_one_way(logits: Any, given: Any, token: int) -> None:
    for counter in range(5):
        assert sample(logits, counter=counter, **given) == [token]


@pytest.mark.parametrize("logits", [[-INF] * 3, [NAN] * 3, [INF, INF, NAN], [3e38, -3e38, 3e38]])
@pytest.mark.parametrize(
    "given", [{}, dict(top_k=2), dict(top_p=0.5), dict(min_p=0.5), dict(temperature=1e-38)]
)
def test_no_logits_crash_it(logits: list[float], given: dict[str, float]) -> None:
    (token,) = sample(logits, **given)
    assert 0 <= token < 3 and (np.isnan(logits).all() or not np.isnan(logits[token]))


def test_rows_that_do_not_go_on_keep_their_counter() -> None:
    found = graphs()(
        "token_sampler",
        **feeds([[1, 2]] * 4, counter=[5, 6, 7, -8], active=[1, 1, 0, 0], done=[0, 1, 0, 1], temperature=0),
    )
    assert found["token"].tolist() == [1, 0, 0, 0]
    assert found["next_counter"].tolist() == [6, 6, 7, -8]


# any token


def possible(logits: np.ndarray, row: dict[str, Any]) -> list[int]:
    """The token that the number of this row's seed and counter points at: the likeliest first, as the graph has it."""
    if row["done"] or not row["active"]:
        return [0]
    if row["temperature"] <= 0 or row["top_k"] == 1:
        return [int(logits.argmax())]
    chosen = {name: row[name].item() for name in ("temperature", "top_k", "top_p", "min_p")}
    ids, shares = candidates(logits, Sampling(greedy=False, **chosen))
    order = np.argsort(-shares, kind="stable")
    ends = np.cumsum(shares[order])
    u = split_mix(int(row["seed"]), int(row["counter"]))
    near = (ends > u - 1e-9) & (ends - shares[order] < u + 1e-9)
    return ids[order][near].tolist()


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 300),
    st.sampled_from([0.1, 3.0, 40.0]),
    st.lists(
        st.fixed_dictionaries(
            dict(
                temperature=st.sampled_from([0.0, 0.01, 0.7, 1.0, 3.0]),
                top_k=st.sampled_from([-1, 0, 1, 2, 5, 64, 10**12]),
                top_p=st.sampled_from([0.013, 0.3, 0.95, 1.0, 2.0]),
                min_p=st.sampled_from([0.0, 0.0371, 0.5]),
                seed=st.integers(-(2**63), 2**63 - 1),
                counter=st.integers(0, 2**40),
                active=st.sampled_from([True, True, False]),
                done=st.sampled_from([False, False, True]),
            )
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_any_row_gets_what_numpy_says_whatever_lies_beside_it(
    noise: int, vocabulary: int, scale: float, rows: list[dict[str, Any]]
) -> None:
    random = np.random.default_rng(noise)
    logits = (random.standard_normal((len(rows), vocabulary)) * scale).astype(np.float32)
    logits[random.random(logits.shape) < 0.1] = -INF
    logits[:, 1] = 0  # there is always something to draw
    fed = feeds(logits, **{name: [row[name] for row in rows] for name in rows[0]})
    found = graphs()("token_sampler", **fed)["token"]
    for i, token in enumerate(found):
        row = {name: value[i] for name, value in fed.items() if name != "logits"}
        assert token in possible(logits[i], row)
        alone = {name: value[i : i + 1] for name, value in fed.items()}
        assert graphs()("token_sampler", **alone)["token"] == [token]


def test_equal_scores_at_an_edge() -> None:
    """Top-k keeps all equals of the k-th; top-p those of later ids, as the runtime does."""
    logits = [2.0, 1.0, 1.0, 1.0, 0.0]
    assert set(np.flatnonzero(drawn(logits, 500, top_k=2))) == {0, 1, 2, 3}
    assert set(np.flatnonzero(drawn([0.0] * 4, 500, top_p=0.7))) == {1, 2, 3}
    assert candidates(np.zeros(4, np.float32), Sampling(top_p=0.7))[0].tolist() == [1, 2, 3]


# many tokens


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 2.5])
def test_draws_follow_softmax(temperature: float) -> None:
    logits = np.random.default_rng(3).standard_normal(12)
    shares = np.exp(logits / np.float32(temperature))
    assert fits(drawn(logits, temperature=temperature), shares / shares.sum())


@pytest.mark.parametrize(
    "given",
    [dict(top_k=3), dict(top_p=0.8), dict(min_p=0.3), dict(temperature=2.0, top_k=8, top_p=0.9, min_p=0.2)],
)
def test_draws_follow_the_runtime(given: dict[str, Any]) -> None:
    logits = np.random.default_rng(4).standard_normal(12).astype(np.float32)
    ids, some = candidates(logits, Sampling(greedy=False, **given))
    shares = np.zeros(12)
    shares[ids] = some
    assert 1 < len(ids) < 12
    assert fits(drawn(logits, **given), shares)


def test_rows_of_equal_seeds_draw_alike_and_of_others_apart() -> None:
    logits = np.zeros((3, 300))
    a, b, c = zip(*(sample(logits, seed=[1, 1, 2], counter=n) for n in range(40)), strict=True)
    assert a == b
    assert sum(x == y for x, y in zip(a, c, strict=True)) < 4
