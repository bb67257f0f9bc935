"""Who proposes: the drafter's tokens against recorded rounds, the text's against what stands there."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from cabochon.errors import RequestError
from cabochon.runtime import PromptLookup
from cabochon.runtime.proposers import DrafterProposer, named_proposer
from cabochon.runtime.sampling import Sampler, Sampling
from pairs import Pairs

GREEDY = Sampler(Sampling()).guess


@pytest.mark.parametrize("target", ["default", "cuda"])
@pytest.mark.parametrize(("source", "record"), [("tiny", "assistant"), ("tiny-dense", "assistant-dense")])
@pytest.mark.parametrize("name", ["text/text", "text/text_long"])
def test_drafts_are_those_recorded_where_the_reference_sees_valid_keys(
    pairs: Pairs, recorded: Any, target: str, source: str, record: str, name: str
):
    """Behind a prefill, and behind a round that was accepted whole, nothing is stale in transformers either."""
    model = pairs.model(source, target)
    trace, prompt = recorded[f"{record}/{name}"]["trace"], recorded[name]["prompt"]
    text = prompt + recorded[name]["tokens"]
    valid = [
        later
        for before, later in pairwise(trace)
        if later["draft"] and later["last_matches"] == len(before["draft"])
    ]
    assert valid
    for step in valid:
        ids = text[: step["len"]]
        state = model.state()
        read = state.feed(ids[:-1], hidden=True)
        assert isinstance(model.proposer, DrafterProposer)
        drafts = model.proposer.propose(state, ids, read.hidden[0, -1], len(step["draft"]), GREEDY)
        assert drafts == step["draft"]


def test_rejected_columns_change_no_draft(pairs: Pairs, recorded: Any):
    """Whatever was read and taken back: the drafter sees what a fresh state shows."""
    model = pairs.model()
    prompt = recorded["text/text_long"]["prompt"]
    fresh, used = model.state(), model.state()
    hidden = fresh.feed(prompt[:-1], hidden=True).hidden[0, -1]
    used.feed(prompt[:-1])
    for n in range(20):
        used.step([[30 + n, 31, 32, 33, 34]])
        used.rewind(len(prompt) - 1)
    drafts = [model.proposer.propose(s, prompt, hidden, 6, GREEDY) for s in (fresh, used)]
    assert drafts[0] == drafts[1]


@pytest.mark.parametrize(
    ("ids", "count", "proposed"),
    [
        ([1, 2, 3, 4, 9, 1, 2, 3], 2, [4, 9]),
        ([1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3], 1, [5]),  # the last place counts
        ([7, 2, 3, 4, 8, 1, 2, 3], 3, [4, 8, 1]),  # two tokens match where three do not
        ([5, 5, 5], 4, [5]),
        ([1, 2, 3], 4, []),
        ([1], 4, []),
    ],
)
def test_prompt_lookup(ids: list[int], count: int, proposed: list[int]):
    assert PromptLookup().propose(None, ids, None, count, GREEDY) == proposed


def test_proposers_by_name():
    own = PromptLookup(max_ngram_size=5)
    assert named_proposer(own) is own
    assert isinstance(named_proposer("prompt-lookup"), PromptLookup)
    for wrong in ("drafter", 5, object()):
        with pytest.raises(RequestError, match=r"proposer: .*; expected 'prompt-lookup' or an object"):
            named_proposer(wrong)


def test_a_hidden_state_that_is_not_given_cannot_be_read():
    class Reader(PromptLookup):
        name, reads_hidden = "reader", True

    assert named_proposer(Reader(), hidden=True).name == "reader"
    with pytest.raises(RequestError, match="proposer: reader reads the target's hidden state"):
        named_proposer(Reader(), hidden=False)


def test_a_guess_is_the_draw_to_come():
    """From the same scores comes the same token, however far ahead it is guessed."""
    sampler = Sampler(Sampling(greedy=False, seed=5, top_k=50))
    scores = np.random.default_rng(1).normal(0, 2, (6, 400)).astype(np.float32)
    guesses = [sampler.guess(n, s) for n, s in enumerate(scores)]
    assert guesses == [sampler.draw(s) for s in scores]
    assert len(set(guesses)) > 2
