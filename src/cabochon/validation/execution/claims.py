"""What groups claim of their state: each claim tried on random tokens. Every function yields what contradicts it."""

from collections.abc import Iterator

import numpy as np

from cabochon.validation.execution.decoder import Held, State, Step
from cabochon.validation.execution.driven import SEED, Driven

__all__ = ["LOUD", "appended", "evicted", "forked", "kept", "reused", "rolled_back"]

# What is written over entries that nothing may read: far larger than keys and values are, of random sign. Not NaN: a
# kernel that multiplies such an entry by a probability of 0 reads it in vain, and is right.
LOUD = 64.0
_DETOUR = 64  # tokens


def reused(one: Driven) -> Iterator[str]:
    """A prefix computed once and continued, in two ways, against cold runs over the whole."""
    for n in one.lengths:
        prefix, *ways = one.ids(n // 2), one.ids(n - n // 2, turn=1), one.ids(n - n // 2, turn=2)
        state = one.run([prefix]).state
        for way in ways:
            cold = one.run([np.concatenate([prefix, way], 1)]).results
            if apart := one.beyond(cold, one.decoder.step(state, way).results):
                yield f"{way.shape[1]} tokens behind a prefix of {n // 2}: {apart}"


def appended(one: Driven, group: str) -> Iterator[str]:
    """What a cell held comes first in what it holds then, bit for bit, and it grows by the new tokens alone."""
    n = one.lengths[-1]
    before = one.run([one.ids(n)]).state
    after = one.decoder.step(before, one.ids(3, turn=1)).state
    for held in of(one, group):
        old, new = before.cells[held.cell], after.cells[held.cell]
        axis = one.decoder.axis(held) or 0
        grown = new.shape[axis] - old.shape[axis]
        if grown != 3:
            yield f"{held.cell} grew by {grown} entries for 3 tokens"
        elif one.cut(held, new, slice(n)).tobytes() != old.tobytes():
            yield f"{held.cell} changed entries that it held before"


def evicted(one: Driven, group: str, window: int) -> Iterator[str]:
    """Without all but the last window - 1 entries, and with noise in their place: one more token, or four."""
    for n in (n for n in one.lengths if n > window - 1):
        state = one.run([one.ids(n)]).state
        front = n - (window - 1)
        ways = {"dropped": without(one, state, group, front), "overwritten": loud(one, state, group, front)}
        for count in (1, 4):
            chunk = one.ids(count, turn=1)
            whole = one.decoder.step(state, chunk).results
            for what, changed in ways.items():
                if apart := one.beyond(whole, one.decoder.step(changed, chunk).results):
                    yield f"the first {front} of {n} entries {what}, {count} more tokens: {apart}"


def rolled_back(one: Driven, group: str, positions: int) -> Iterator[str]:
    """Other tokens fed, at most 64, their entries cut off again, and on: against never having fed them."""
    for n in one.lengths:
        k = max(1, min(positions, _DETOUR, one.most - n - 1))
        state = one.run([one.ids(n)]).state
        astray = one.decoder.step(state, one.ids(k, turn=1)).state

        def back(held: Held, value: np.ndarray, astray: State = astray, k: int = k) -> np.ndarray:
            if held.group != group:
                return value
            gone = astray.cells[held.cell]
            return one.cut(held, gone, slice(gone.shape[one.decoder.axis(held) or 0] - k))

        rewound, chunk = one.decoder.changed(state, back), one.ids(2, turn=2)
        straight = one.decoder.step(state, chunk).results
        if apart := one.beyond(straight, one.decoder.step(rewound, chunk).results):
            yield f"{k} positions rolled back after {n} tokens: {apart}"


def kept(one: Driven) -> Iterator[str]:
    """A state written down, others run meanwhile, and taken up again: nothing in it changed, and it goes on alike."""
    n = one.lengths[-1]
    state, chunk = one.run([one.ids(n)]).state, one.ids(2, turn=1)
    before = {cell: value.tobytes() for cell, value in state.cells.items()}
    first = one.decoder.step(state, chunk).results
    if changed := [cell for cell, value in state.cells.items() if value.tobytes() != before[cell]]:
        yield f"a run changed the state that it began from: {', '.join(changed)}"
    one.run([one.ids(n, turn=2)])
    if apart := one.beyond(first, one.decoder.step(state, chunk).results):
        yield f"taken up again after {n} tokens: {apart}"


def forked(one: Driven) -> Iterator[str]:
    """Two continuations of one state in turns, against each by itself."""
    state = one.run([one.ids(one.lengths[-1])]).state
    ways = [[one.ids(1, turn=1), one.ids(2, turn=2)], [one.ids(2, turn=3), one.ids(1, turn=4)]]
    alone = [one.decoder.fed(way, state) for way in ways]
    both: list[Step] = [one.decoder.step(state, way[0]) for way in ways]
    both = [one.decoder.step(step.state, way[1]) for step, way in zip(both, ways, strict=True)]
    for number, (a, b) in enumerate(zip(alone, both, strict=True), 1):
        if apart := one.beyond(a.results, b.results):
            yield f"continuation {number} of two in turns: {apart}"


def of(one: Driven, group: str) -> Iterator[Held]:
    """The cells of a group."""
    return (held for held in one.decoder.held if held.group == group)


def without(one: Driven, state: State, group: str, front: int) -> State:
    """A state whose cells of a group lost their first entries."""
    return one.decoder.changed(
        state, lambda held, value: one.cut(held, value, slice(front, None)) if held.group == group else value
    )


def loud(one: Driven, state: State, group: str, front: int) -> State:
    """A state with noise in the first entries of the cells of a group."""
    return one.decoder.changed(
        state, lambda held, value: noisy(one, held, value, slice(front)) if held.group == group else value
    )


def noisy(one: Driven, held: Held, value: np.ndarray, where: slice) -> np.ndarray:
    """A cell with noise in some columns."""
    rng = np.random.default_rng(SEED)
    place = (slice(None),) * (one.decoder.axis(held) or 0) + (where,)
    made = value.copy()
    made[place] = LOUD * rng.choice([-1, 1], made[place].shape)
    return made
