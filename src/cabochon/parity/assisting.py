"""A pair at work: its drafter on the states of its own target, and whole answers with and without it."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cabochon.parity.drafting import Chained, Step, chain
from cabochon.parity.prompts import Prompt
from cabochon.parity.rounds import Assisted, Run, Steps, rounds_of
from cabochon.parity.whole import tokens
from cabochon.parity.widened import exactly

if TYPE_CHECKING:
    from cabochon.runtime import Model, Proposer, Speculation, State

__all__ = ["Speculating", "alone"]


class Speculating:
    """A pair in the runtime."""

    def __init__(self, pair: Path, *, threads: int | None = None) -> None:
        """Raises what `cabochon.load` raises."""
        from cabochon.runtime import load
        from cabochon.runtime.drafter import Drafter

        options: Any = {
            "threads": threads,
            "provider": "cpu",
            "session_options": exactly(pair / "model.onnx"),
        }
        self._model: Model = load(pair, **options)
        self._drafter = Drafter(pair, self._model.session, **options)

    def ids(self, prompt: Prompt) -> list[int]:
        """The tokens of a prompt, with features in the place of placeholders."""
        return tokens(self._model, prompt)

    def chained(self, prompt: Prompt, one: Assisted, taken: int | None) -> list[Chained]:
        """Every recorded round once more: embedding rows, hidden state and keys are the pair's own, drafts too."""
        text, state = [*self.ids(prompt), *one.valid.tokens], self._model.state()
        return [self._round(state, text, steps, taken) for steps in one.steps]

    def _round(self, state: "State", text: Sequence[int], steps: Steps, taken: int | None) -> Chained:
        hidden = state.feed(text[state.length : steps.keys], hidden=True).hidden
        assert hidden is not None
        view = self._drafter.view(state)
        return chain(
            lambda token, h: self._drafter.step(token, h, view),
            text[steps.keys],
            hidden[0, -1],
            steps.own,
            taken,
        )

    def answer(self, ids: Sequence[int], width: int, new_tokens: int) -> tuple[Run, "Speculation"]:
        """Greedy tokens with `width` proposals a round."""
        model = self._model
        assert model.proposer is not None
        noted = _Noted(model.proposer)
        model.proposer = noted
        try:
            made = model.generate(
                list(ids), greedy=True, ignore_eos=True, max_new_tokens=new_tokens, num_draft_tokens=width,
                speculation=True,
            )  # fmt: skip
        finally:
            model.proposer = noted.proposer
            model.forget()
        assert made.speculation is not None
        rounds = rounds_of(noted.proposals, ids, made.ids)
        return Run(tuple(made.ids), rounds, 1 + made.speculation.target_calls), made.speculation


class _Noted:
    """A proposer whose proposals are written down."""

    def __init__(self, proposer: "Proposer") -> None:
        self.proposer, self.name, self.reads_hidden = proposer, proposer.name, proposer.reads_hidden
        self.proposals: list[tuple[int, list[int]]] = []

    def propose(self, state: Any, ids: Sequence[int], hidden: Any, count: int, guess: Any) -> list[int]:
        """See Proposer."""
        drafts = list(self.proposer.propose(state, ids, hidden, count, guess))
        self.proposals.append((len(ids), drafts))
        return drafts


def alone(drafts: Any, one: Assisted, taken: int | None) -> Iterator[Chained]:
    """Every recorded round once more, of a drafter without its target: keys, first hidden state and rows of tokens are
    the reference's, drafts and states its own. As long as drafts agree, the rows are those of its own drafts."""
    for steps in one.steps:
        mask = np.arange(steps.keys + steps.rejected) < steps.keys
        half = steps.inputs.shape[1] // 2
        rows = iter(steps.inputs[:, :half])
        yield chain(_alone(drafts, steps, rows, mask), -1, steps.inputs[0, half:], steps.own, taken)


def _alone(drafts: Any, steps: Steps, rows: Iterator[np.ndarray], mask: np.ndarray) -> Step:
    return lambda _, hidden: drafts.step(np.concatenate([next(rows), hidden]), steps.shared, mask)
