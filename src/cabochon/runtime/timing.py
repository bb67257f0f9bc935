"""How fast a loaded package is here: prefill, decoding, and what speculation makes of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cabochon.errors import RequestError
from cabochon.runtime.generation import Generation
from cabochon.runtime.model import Model
from cabochon.runtime.prompts import Prompt
from cabochon.runtime.tally import Speculation

__all__ = ["Timing", "time_model"]

STATUS = Path("/proc/self/status")
_SEED = 0


@dataclass(frozen=True)
class Timing:
    """The best of `rounds` by turns. Rates are tokens per second; decoding counts the tokens after the first.

    `prefill` is that of `prefill_tokens` random tokens, of which the last one's logits are wanted. `speculation` and
    `speculating` are None without a proposer; `same` says whether both ways drew the same tokens. `anonymous` is the
    memory of the process that is no file's, in bytes; None where the system does not say. `settings` are what the
    provider says of how it computes.
    """

    provider: str
    settings: Mapping[str, str]
    rounds: int
    prefill_tokens: int
    prefill: float
    prompt_tokens: int
    new_tokens: int
    decoding: float
    speculating: float | None
    speculation: Speculation | None
    same: bool | None
    anonymous: int | None

    @property
    def speed_up(self) -> float | None:
        """Speculative by plain decoding; None without a proposer."""
        return None if self.speculating is None or not self.decoding else self.speculating / self.decoding


def time_model(
    model: Model, prompt: Prompt, *, prefill_tokens: int = 256, new_tokens: int = 64, rounds: int = 3
) -> Timing:
    """Time a model with greedy answers to `prompt`; end tokens do not end them.

    Raises RequestError for a prompt that leaves no room for `new_tokens`, or fewer than two of them.
    """
    if new_tokens < 2:
        raise RequestError(
            f"{new_tokens}; expected at least 2: decoding is what follows the first", at="new_tokens"
        )
    ids = _words(model, prefill_tokens)
    prefills, plain, drafted = [], list[Generation](), list[Generation]()
    for _ in range(rounds):
        prefills.append(_answer(model, ids, 1, speculation=False).timings.prefill_seconds)
        plain.append(_answer(model, prompt, new_tokens, speculation=False))
        if model.proposer is not None:
            drafted.append(_answer(model, prompt, new_tokens, speculation=True))
    best = max(drafted, key=_rate, default=None)
    return Timing(
        provider=model.session.provider,
        settings=model.session.settings,
        rounds=rounds,
        prefill_tokens=prefill_tokens,
        prefill=prefill_tokens / min(prefills),
        prompt_tokens=len(plain[0].prompt_ids),
        new_tokens=new_tokens,
        decoding=max(map(_rate, plain)),
        speculating=None if best is None else _rate(best),
        speculation=None if best is None else best.speculation,
        same=None if best is None else all(answer.ids == plain[0].ids for answer in drafted),
        anonymous=next(_anonymous(), None),
    )


def _words(model: Model, count: int) -> list[int]:
    """Random tokens that stand for nothing else."""
    placeholders = list(model.session.embedder.placeholders.values())
    words = np.setdiff1d(np.arange(model.session.ports.vocabulary), placeholders)
    return np.random.default_rng(_SEED).choice(words, count).tolist()


def _answer(model: Model, prompt: Prompt, new_tokens: int, *, speculation: bool) -> Generation:
    """A greedy answer on empty caches."""
    model.forget()
    return model.generate(
        prompt, max_new_tokens=new_tokens, greedy=True, ignore_eos=True, speculation=speculation
    )


def _rate(answer: Generation) -> float:
    return answer.timings.tokens_per_second


def _anonymous() -> Iterator[int]:
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return
    yield from (int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
