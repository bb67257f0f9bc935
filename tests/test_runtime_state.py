"""Caches of a batch: chunks, eviction, rewinding, stacking; every way gives the logits of one pass."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from cabochon.errors import RequestError
from cabochon.runtime import Eviction, Model, State, stack
from cabochon.runtime.columns import eviction_limit
from cabochon.runtime.session import Session
from packages import Packages

WINDOW = 8
TIGHT = Eviction(WINDOW, reserve=0, slack=0)
TARGETS = ("default", "cuda", "webgpu")
IDS = np.random.default_rng(5).integers(24, 512, 60).tolist()


@pytest.fixture(params=TARGETS)
def state(packages: Packages, request: pytest.FixtureRequest) -> Callable[..., State]:
    """Fresh states of a model of each kind of mask."""
    session = packages.model("tiny", request.param).session
    return lambda eviction=TIGHT, **options: State(session, eviction, **options)


def whole(state: Callable[..., State], ids: list[int] = IDS) -> np.ndarray:
    """Logits of every position in one pass."""
    return _whole(state().session, tuple(ids))


@cache
def _whole(session: Session, ids: tuple[int, ...]) -> np.ndarray:
    logits = State(session, TIGHT).step([list(ids)], keep=0).logits
    assert logits is not None
    return logits[0]


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * np.abs(b).max())


@pytest.mark.parametrize("length", [1, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW + 3, 60])
@pytest.mark.parametrize("chunk", [1, 3, WINDOW, WINDOW + 1, 512])
def test_chunks_equal_one_pass(state: Callable[..., State], length: int, chunk: int):
    close(state().prefill(IDS[:length], chunk=chunk), whole(state)[length - 1])


def test_kept_logits_and_the_hidden_tap(state: Callable[..., State]):
    everything = state().step([IDS], keep=0, hidden=True)
    last = state().step([IDS], keep=3, hidden=True)
    close(last.logits, everything.logits[:, -3:])
    close(last.hidden, everything.hidden[:, -3:])
    assert last.logits.dtype == last.hidden.dtype == np.float32
    assert state().step([IDS], keep=None) == (None, None)


@pytest.mark.parametrize("eviction", [TIGHT, Eviction(WINDOW, reserve=3, slack=4), Eviction.usual(WINDOW)])
def test_sliding_caches_are_bounded(state: Callable[..., State], eviction: Eviction):
    one, logits = state(eviction), whole(state)
    for n, token in enumerate(IDS):
        close(one.step([[token]]).logits[0, -1], logits[n])
        held = one.mask.shape[1] - one.evicted
        assert min(n + 1, eviction.keep) <= held <= eviction.most
        assert {v.shape()[2] for v in one.values.values()} == {held, n + 1}
    ports = one.session.ports
    assert one.nbytes == ports.column_bytes(False) * 60 + ports.column_bytes(True) * held


@pytest.mark.parametrize("seed", range(4))
def test_any_walk_equals_one_pass(state: Callable[..., State], seed: int):
    """Steps of any size and rewinds in any order, as a speculative driver makes them."""
    random = np.random.default_rng(seed)
    one, fed = state(Eviction(WINDOW, reserve=4, slack=5), chunk=11), list[int]()
    for _ in range(30):
        if random.random() < 0.4:
            fed = fed[: max(0, len(fed) - int(random.integers(0, 9)))]
            one.rewind(len(fed))
        new = random.integers(24, 512, int(random.integers(1, 7))).tolist()
        fed += new
        logits = one.step([new], keep=0).logits
    assert one.tokens == [fed]
    close(logits[0], whole(state, fed)[-len(new) :])


@pytest.mark.parametrize("seed", range(3))
def test_a_step_never_writes_over_the_past(
    state: Callable[..., State], seed: int, monkeypatch: pytest.MonkeyPatch
):
    """Also where caches moved before it, and where the step before it failed after its graph had run."""
    random = np.random.default_rng(seed)
    one = state(Eviction(WINDOW, reserve=4, slack=3))
    moves = [lambda: one.rewind(one.length - 1), one.evict, one.compact, lambda: one.select([0])]
    for length in random.integers(1, 6, 25):
        if one.length and random.random() < 0.4:
            moves[random.integers(len(moves))]()
        past, fed = dict(one.values), [one.tokens[0][:]]
        before = {name: value.numpy().copy() for name, value in past.items()}
        if random.random() < 0.3:
            with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
                run = one.session.run
                broken.setattr(one.session, "run", lambda *given, run=run: _interrupted(run(*given)))
                one.step([IDS[:length]])
            assert one.tokens == fed and one.values == past
        one.step([IDS[:length]])
        for name, value in past.items():
            np.testing.assert_array_equal(value.numpy(), before[name])
            assert not np.shares_memory(one.values[name].numpy(), value.numpy())
    close(one.step([[77]]).logits[0, -1], whole(state, one.tokens[0])[-1])


def _interrupted(_: Any) -> None:
    raise KeyboardInterrupt


def test_rows_that_were_one_grow_apart(packages: Packages):
    single = State(packages.model().session, TIGHT)
    single.prefill(IDS[:5])
    other = State(packages.model().session, TIGHT)
    other.prefill(IDS[:4])
    both = stack([single, other])
    both.select([0, 0])
    both.step([[30], [31]])
    assert both.tokens == [[*IDS[:5], 30], [*IDS[:5], 31]]
    assert (single.tokens, other.tokens) == ([IDS[:5]], [IDS[:4]])


def test_zeros_anywhere_change_nothing(packages: Packages):
    one = State(packages.model().session, TIGHT)
    real = np.ones((1, 20), bool)
    real[0, [0, 7, 8, 9, 15]] = False
    first = one.step([IDS[:20]], keep=2, real=real).logits
    then = one.step([IDS[20:]]).logits
    tokens = [t for t, r in zip(IDS, real[0], strict=False) if r]
    assert one.tokens == [tokens + IDS[20:]]
    exact = packages.model().forward(tokens + IDS[20:]).logits
    close(first[0], exact[13:15])
    close(then[0, -1], exact[-1])


@pytest.mark.parametrize("back", [0, 1, 3, 16, 17, 40, 60])
def test_rewound_equals_a_cold_run(state: Callable[..., State], back: int):
    one = state(Eviction.usual(WINDOW), chunk=7)
    one.prefill(IDS)
    assert one.evicted > 0
    one.rewind(60 - back)
    assert one.tokens == [IDS[: 60 - back]]
    other = [*IDS[: 60 - back], 300, 41, 77]
    close(one.prefill(other[60 - back :]), whole(state, other)[-1])


def test_many_rewinds_leave_no_growing_rest(state: Callable[..., State]):
    one = state(Eviction.usual(WINDOW))
    one.prefill(IDS)
    for n in range(40):
        one.step([[n + 30, n + 31, n + 32, n + 33, n + 34]])
        one.rewind(60)
    assert one.mask.shape[1] <= 60 + 64 + 5
    close(one.step([[99]]).logits[0, -1], whole(state, [*IDS, 99])[-1])


def test_a_rewind_of_one_head_moves_no_memory(state: Callable[..., State]):
    """What a round rejects is cut off the caches; the next step reads what is left where it lies."""
    one = state(Eviction.usual(WINDOW))
    one.feed(IDS[:20])
    one.step([IDS[20:25]])
    before = {name: value.data_ptr() for name, value in one.values.items()}
    one.rewind(22)
    assert {name: value.data_ptr() for name, value in one.values.items()} == before
    assert one.mask.shape == (1, 22) and one.mask.all()
    assert {value.shape()[2] for value in one.values.values()} == {22}
    close(one.step([IDS[22:24]]).logits[0, -1], whole(state)[23])


def test_feeding_gives_the_hidden_tap_of_the_last(state: Callable[..., State]):
    everything = state().step([IDS], keep=0, hidden=True)
    fed = state().feed(IDS, chunk=7, hidden=True)
    close(fed.hidden[0, 0], everything.hidden[0, -1])
    close(fed.logits[0, 0], everything.logits[0, -1])


def test_impossible_rewinds_are_refused(state: Callable[..., State]):
    one = state()
    one.prefill(IDS[:4])
    for position in (-1, 5):
        with pytest.raises(RequestError, match=f"cannot rewind to {position}: 1 rows of up to 4 tokens"):
            one.rewind(position)


@pytest.mark.parametrize("lengths", [(5, 60, 1), (30, 31, 29), (WINDOW, 40, 60), (50, 50), (12,)])
@pytest.mark.parametrize("eviction", [TIGHT, Eviction(WINDOW, reserve=2, slack=3)])
def test_stacked_rows_equal_single_ones(
    state: Callable[..., State], lengths: tuple[int, ...], eviction: Eviction
):
    rows = [IDS[-n:] for n in lengths]
    states = [state(eviction) for _ in rows]
    limit = eviction_limit(lengths, eviction, states[0].session.ports.contract.left_justified)
    for one, row in zip(states, rows, strict=True):
        one.evict_limit = limit
        one.prefill(row, chunk=6)
    batch, found = stack(states), list[tuple[list[int], int, np.ndarray]]()
    for n in range(25):
        if n == 10 and len(rows) > 2:
            batch.select([0, 2])
            rows = [rows[0], rows[2]]
        for row in rows:
            row.append(40 + (7 * n + len(row)) % 400)
        logits = batch.step([[row[-1]] for row in rows]).logits
        found += [(row, len(row), its[-1]) for its, row in zip(logits, rows, strict=True)]
    for row, length, its in found:
        close(its, whole(state, row)[length - 1])
    if len(rows) == 1 or not batch.session.ports.contract.left_justified or min(lengths) > 20:
        assert batch.mask.shape[1] - batch.evicted <= max(
            eviction.most, max(lengths) - min(lengths) + eviction.most
        )


def test_ragged_prefill_in_one_step(state: Callable[..., State]):
    rows = [IDS[:11], IDS[20:25]]
    ids, real = np.zeros((2, 11), int), np.zeros((2, 11), bool)
    for n, row in enumerate(rows):
        ids[n, : len(row)], real[n, : len(row)] = row, True
    batch = state()
    first = batch.step(ids, real=real).logits
    then = batch.step([[99], [98]]).logits
    for n, row in enumerate(rows):
        close(first[n, -1], whole(state, row)[-1])
        close(then[n, -1], whole(state, [*row, 99 - n])[-1])
    assert batch.tokens == [[*rows[0], 99], [*rows[1], 98]]


@pytest.mark.parametrize(
    "drop",
    [
        lambda s: (s.rewind(30), s.compact(), s.evict()),
        lambda s: (s.compact(), s.evict()),
        lambda s: (s.select([0]), s.evict()),
        lambda s: s.evict(),
    ],
    ids=["rewind", "compact", "select", "evict"],
)
def test_caches_own_what_they_hold(state: Callable[..., State], drop: Callable[[State], object]):
    """Memory that a dropped cache frees is overwritten before the next step reads."""
    one = state(Eviction(WINDOW, reserve=0, slack=99))
    one.step([IDS[:37]] * 2)
    one.select([0])
    drop(one)
    junk = [np.full(size, 1e9, np.float32) for size in (64, 128, 256, 512, 1024) for _ in range(200)]
    close(one.step([[77]]).logits[0, -1], whole(state, [*one.tokens[0]])[-1])
    assert len(junk) == 1000


@pytest.mark.parametrize(
    ("ids", "options", "message"),
    [
        ([[]], {}, "input_ids: float64 (1, 0); expected whole numbers [rows, tokens]"),
        ([[2, 3], [4]], {}, "input_ids: float64 (0,); expected whole numbers [rows, tokens]"),
        ([2, 3], {}, "input_ids: int64 (2,)"),
        ([[2.5]], {}, "input_ids: float64 (1, 1)"),
        ([[2, -1]], {}, "input_ids: ids from -1 to 2; expected token ids from 0 to 511"),
        ([[2, 512]], {}, "input_ids: ids from 2 to 512; expected token ids from 0 to 511"),
        ([[2, 3]], {"keep": -1}, "keep: -1; expected a whole number from 0"),
        ([[2, 3]], {"real": [[1]]}, "real: (1, 1); expected the shape of the ids, (1, 2)"),
    ],
)
def test_steps_are_refused(state: Callable[..., State], ids: Any, options: Any, message: str):
    with pytest.raises(RequestError) as caught:
        state().step(ids, **options)
    assert str(caught.value).startswith(message)


def test_padding_where_a_kernel_of_lengths_errs_is_refused(packages: Packages):
    one = State(packages.model("tiny", "cuda").session, TIGHT)
    with pytest.raises(RequestError, match="the last 2 logits of rows with padding"):
        one.step([[2, 3, 0]], real=[[1, 1, 0]], keep=2)
    one.prefill(IDS[:5])
    with pytest.raises(RequestError, match="padding behind new tokens after 5 columns"):
        one.step([[9, 10, 0]], real=[[1, 1, 0]])
    assert one.tokens == [IDS[:5]]


def test_a_state_rewound_to_nothing_is_a_fresh_one(state: Callable[..., State]):
    one = state()
    one.prefill(IDS[:5])
    one.rewind(0)
    assert one.mask.shape == (1, 0)
    close(one.step([[2, 5, 6, 0]], real=[[1, 1, 1, 0]]).logits[0, -1], whole(state, [2, 5, 6])[-1])


@pytest.mark.parametrize("chunk", [0, -1, 1.5])
def test_a_chunk_has_a_token(state: Callable[..., State], chunk: Any):
    for call in (lambda: state(chunk=chunk), lambda: state().prefill([2], chunk=chunk)):
        with pytest.raises(RequestError, match=r"chunk: .*; expected a whole number from 1"):
            call()


def test_no_tokens_are_no_prefill(state: Callable[..., State]):
    with pytest.raises(RequestError, match="at least one of each"):
        state().prefill([])


def test_drivers_get_a_state_of_their_own(model: Model):
    one = model.state(chunk=4)
    assert one.eviction == Eviction.usual(WINDOW)
    close(one.prefill(IDS), model.forward(IDS).logits[-1])
