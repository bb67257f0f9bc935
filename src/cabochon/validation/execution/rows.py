"""Rows of a batch, and columns that the mask leaves out. Every function yields what contradicts the document."""

from collections.abc import Iterator

import numpy as np

from cabochon.validation.execution.claims import LOUD
from cabochon.validation.execution.decoder import Held, State
from cabochon.validation.execution.driven import SEED, Driven

__all__ = ["independent", "masked"]


def independent(one: Driven) -> Iterator[str]:
    """Two rows at once against each alone: of equal length, then ragged as the mask's kind allows."""
    n = one.lengths[-1]
    yield from _against_alone(one, np.ones((2, n), bool), "two rows of equal length")
    if one.decoder.mask and one.decoder.port("attention_mask"):
        yield from _against_alone(one, _ragged(one, n), "two rows of unequal length")


def _ragged(one: Driven, n: int) -> np.ndarray:
    """Which of n columns are real: the second row has a third less, behind or in front."""
    real = np.ones((2, n), bool)
    short = n // 3
    real[1, slice(n - short, None) if one.decoder.mask == "left-justified" else slice(short)] = False
    return real


def _against_alone(one: Driven, real: np.ndarray, what: str) -> Iterator[str]:
    ids, then = one.ids(real.shape[1], rows=2), one.ids(1, rows=2, turn=1)
    first = one.decoder.step(one.decoder.empty(2), ids, real)
    second = one.decoder.step(first.state, then)
    ends = [one.decoder.ends(first, real), one.decoder.ends(second, np.ones((2, 1), bool))]
    for row in range(2):
        own = ids[row : row + 1, real[row]]
        alone = one.run([own])
        after = one.decoder.step(alone.state, then[row : row + 1])
        pairs = zip(ends, (alone, after), ("a prefill", "one more token"), strict=True)
        for together, by_itself, when in pairs:
            single = one.decoder.ends(by_itself, np.ones((1, by_itself_columns(by_itself.outputs)), bool))
            mine = {name: value[row : row + 1] for name, value in together.items()}
            if apart := one.beyond(mine, single):
                yield f"{what}, row {row + 1}, {when}: {apart}"


def by_itself_columns(outputs: object) -> int:
    """Columns of the results of a row without padding: its last is the last."""
    assert isinstance(outputs, dict)
    return max((value.shape[1] for value in outputs.values() if value.ndim > 2), default=1)


def masked(one: Driven) -> Iterator[str]:
    """Other tokens where the mask has zeros, then noise in the entries that they left in the caches."""
    n = one.lengths[-1]
    real = _ragged(one, n)
    if one.decoder.mask == "anywhere":
        real[0, n // 2 : n // 2 + 2] = False
    ids = one.ids(n, rows=2)
    other = np.where(real, ids, one.ids(n, rows=2, turn=1))
    then = one.ids(1, rows=2, turn=2)
    first, second = (one.decoder.step(one.decoder.empty(2), x, real) for x in (ids, other))
    if apart := one.beyond(one.decoder.ends(first, real), one.decoder.ends(second, real)):
        yield f"other tokens where the mask has zeros: {apart}"
    ends = [
        one.decoder.ends(one.decoder.step(state, then), np.ones((2, 1), bool))
        for state in (first.state, overwritten(one, first.state, ~real))
    ]
    if apart := one.beyond(*ends):
        yield f"noise in cache entries where the mask has zeros: {apart}"


def overwritten(one: Driven, state: State, where: np.ndarray) -> State:
    """A state with noise in the columns `where` [B, C] of every cell that has a sequence axis."""
    rng = np.random.default_rng(SEED)

    def write(held: Held, value: np.ndarray) -> np.ndarray:
        axis = one.decoder.axis(held)
        if axis is None:
            return value
        made = np.moveaxis(value.copy(), axis, 1)
        made[where] = LOUD * rng.choice([-1, 1], made[where].shape)
        return np.moveaxis(made, 1, axis)

    return one.decoder.changed(state, write)
