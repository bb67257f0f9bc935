"""From logits to one token. All arithmetic is numpy's; steps come in the order of transformers' generate()."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cabochon.errors import PackageError, RequestError

Hook = Callable[[Sequence[int], np.ndarray], np.ndarray]
"""A logits processor: (ids so far, logits [V] float32) -> logits [V]. Runs after the penalty, before the
temperature."""


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn. `greedy` takes the largest logit; 0 top_k, 1.0 top_p, 0.0 min_p leave that step out."""

    greedy: bool = True
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None


def sampling(
    defaults: Mapping[str, Any], asked: Mapping[str, Any], *, greedy: bool | None = None
) -> Sampling:
    """What a caller asked for over the package's generation_config.json.

    `greedy` decides where given. Else temperature 0 is greedy, any asked-for sampling value samples, and what is left
    follows `do_sample`. Raises RequestError for greedy=True beside a sampling value.
    """
    asked = {k: v for k, v in asked.items() if v is not None}
    both = {**defaults, **asked}
    cold = both.get("temperature") == 0
    draws = set[str]() if cold else asked.keys() & {"temperature", "top_k", "top_p", "min_p"}
    if greedy and draws:
        raise RequestError(
            f"greedy beside {', '.join(sorted(draws))}; expected one or the other", at="greedy"
        )
    if greedy is None:
        greedy = cold or not (draws or defaults.get("do_sample", False))
    known: dict[str, Any] = {k: both[k] for k in Sampling.__dataclass_fields__ if both.get(k) is not None}
    if known.get("temperature") == 0:
        del known["temperature"]
    known["greedy"] = greedy
    return Sampling(**known)


def penalised(logits: np.ndarray, ids: Sequence[int], penalty: float) -> np.ndarray:
    """Each token seen so far divided (above zero) or multiplied (below) by the penalty (Keskar et al. 2019)."""
    if penalty == 1.0 or not len(ids):
        return logits
    seen = np.unique(np.asarray(ids))
    logits = logits.copy()
    logits[seen] = np.where(logits[seen] < 0, logits[seen] * penalty, logits[seen] / penalty)
    return logits


def candidates(logits: np.ndarray, how: Sampling) -> tuple[np.ndarray, np.ndarray]:
    """The ids that may be drawn and their probabilities (float64, sum 1): temperature, top-k, top-p, min-p."""
    ids = _largest(logits, how.top_k)
    with np.errstate(over="ignore"):  # next to a temperature of 0 all but the largest become -inf
        scores = (logits[ids].astype(np.float64) - logits.max()) / how.temperature
    kept = scores > -np.inf
    ids, scores = ids[kept], scores[kept]
    if how.top_p < 1.0:
        kept = _nucleus(_softmax(scores), how.top_p)
        ids, scores = ids[kept], scores[kept]
    if how.min_p > 0.0:
        probabilities = _softmax(scores)
        kept = probabilities >= how.min_p * probabilities.max()
        ids, scores = ids[kept], scores[kept]
    return ids, _softmax(scores)


def _largest(logits: np.ndarray, count: int) -> np.ndarray:
    """The ids of the `count` largest logits and of those that equal the last of them; 0: all.

    The temperature leaves their order as it is, so that it need not be divided by over the whole vocabulary. Logits
    that differ and whose scores are rounded to one number are no ties here.
    """
    if not 0 < count < len(logits):
        return np.arange(len(logits))
    return np.flatnonzero(logits >= np.partition(logits, -count)[-count])


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def _nucleus(probabilities: np.ndarray, top_p: float) -> np.ndarray:
    """Which are left when the least likely, together at most 1 - top_p, are dropped, of equal ones the first before the
    others; the likeliest always stays."""
    ascending = np.sort(probabilities)
    count = min(int(np.count_nonzero(np.cumsum(ascending) <= 1 - top_p)), len(ascending) - 1)
    least = ascending[count]
    kept, equal = probabilities >= least, np.flatnonzero(probabilities == least)
    kept[equal[: count - np.count_nonzero(~kept)]] = False
    return kept


def gumbel(key: int, ids: np.ndarray) -> np.ndarray:
    """Standard Gumbel noise for each id, float64; the same whenever `key` and id are the same.

    Uniform numbers are those of SplitMix64 (Steele et al. 2014) seeded with `key`, the id being the place in its
    sequence.
    """
    with np.errstate(over="ignore"):
        z = np.uint64(key) + (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return -np.log(-np.log(((z >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53))


class Sampler:
    """Draws the tokens of one row; two samplers of one seed draw alike.

    A draw takes the largest of log-probability plus noise (Gumbel 1954), and the noise is a function of the seed, of
    how many tokens were drawn before, and of the token's id. So `guess` can draw with the noise of a draw to come: from
    probabilities that are nearly the same comes nearly always the same token.
    """

    def __init__(self, how: Sampling, hooks: Sequence[Hook] = (), *, row: int = 0) -> None:
        """`row` is added to the seed, so the rows of a batch draw apart."""
        self.how, self.hooks = how, tuple(hooks)
        self._random = np.random.default_rng(None if how.seed is None else how.seed + row)
        self._keys = deque[int]()  # of the draws to come

    def __call__(self, ids: Sequence[int], logits: np.ndarray) -> int:
        """The next token after `ids`, from logits [V]."""
        return self.draw(self.scores(ids, logits))

    def scores(self, ids: Sequence[int], logits: np.ndarray) -> np.ndarray:
        """The logits [V] after penalty and hooks, which is what a token is drawn from."""
        if not _drawable(logits):
            raise PackageError(
                "the largest logit is NaN or infinite; expected a number",
                at="logits",
                remedy="the weights hold what is no number, or float16 is too small: build with --precision f32",
            )
        logits = self._penalised(ids, logits)
        for hook in self.hooks:
            logits = self._hooked(hook, ids, logits)
        return logits

    def draw(self, scores: np.ndarray) -> int:
        """The next token. Each call is one draw."""
        if self.how.greedy:
            return int(scores.argmax())
        token = self._pick(scores, self._key(0))
        self._keys.popleft()
        return token

    def guess(self, ahead: int, logits: np.ndarray) -> int:
        """What the draw that comes after `ahead` more would take if its scores were these logits [V]."""
        return int(logits.argmax()) if self.how.greedy else self._pick(logits, self._key(ahead))

    def _pick(self, scores: np.ndarray, key: int) -> int:
        ids, probabilities = candidates(scores, self.how)
        with np.errstate(divide="ignore"):
            return int(ids[(np.log(probabilities) + gumbel(key, ids)).argmax()])

    def _key(self, ahead: int) -> int:
        while len(self._keys) <= ahead:
            self._keys.append(int(self._random.integers(2**64, dtype=np.uint64)))
        return self._keys[ahead]

    @staticmethod
    def _hooked(hook: Hook, ids: Sequence[int], logits: np.ndarray) -> np.ndarray:
        changed: Any = hook(ids, logits)
        known = isinstance(changed, np.ndarray) and changed.dtype.kind in "fiu"
        if known and changed.shape == logits.shape and _drawable(changed):
            return changed
        found = (
            f"{changed.shape} {changed.dtype}" if isinstance(changed, np.ndarray) else type(changed).__name__
        )
        raise RequestError(
            f"returned {found}; expected {logits.shape} numbers, none NaN and the largest finite",
            at=f"hook {getattr(hook, '__name__', hook)!s}",
            remedy="return an array like the one given; -inf forbids a token",
        )

    def _penalised(self, ids: Sequence[int], logits: np.ndarray) -> np.ndarray:
        penalty = self.how.repetition_penalty
        with np.errstate(all="ignore"):
            logits = penalised(logits, ids, penalty)
        if penalty != 1.0 and not _drawable(logits):
            raise RequestError(
                f"{penalty!r} makes logits infinite",
                at="repetition_penalty",
                remedy="move it towards 1 (off)",
            )
        return logits


def _drawable(logits: np.ndarray) -> bool:
    """The largest is NaN where any is, and infinite where one is or where all are forbidden."""
    return bool(np.isfinite(logits.max()))
