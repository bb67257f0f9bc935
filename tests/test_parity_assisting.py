"""A pair at work, without a reference: its own answers and rounds, and its drafter on its target's own states."""

import numpy as np
import pytest

from cabochon.parity.assisting import Speculating
from cabochon.parity.prompts import Prompt
from cabochon.parity.reference import Answer
from cabochon.parity.rounds import Assisted, Run, Said, Steps
from pairs import Pairs

IDS = (2, 5, 487, 34, 502, 346, 492, 439, 480, 6, 34, 5, 314, 483, 34)
WIDTH, NEW = 6, 16


@pytest.fixture(scope="module")
def pair(pairs: Pairs) -> Speculating:
    return Speculating(pairs(), threads=1)


def test_an_answer_comes_with_its_rounds(pairs: Pairs, pair: Speculating) -> None:
    run, figures = pair.answer(IDS, WIDTH, NEW)
    plain = pairs.packages.model().generate(list(IDS), greedy=True, ignore_eos=True, max_new_tokens=NEW).ids
    assert list(run.tokens) == plain
    said = run.counters()
    assert (said["proposed"], said["accepted"]) == (figures.proposed, figures.accepted)
    assert said["accepted"] + said["target_calls"] == NEW
    histogram = np.bincount(said["accepted_per_round"]).tolist()
    without = figures.target_calls - len(run.rounds)
    assert [histogram[0] + without, *histogram[1:]] == figures.accepted_per_round
    assert pair.answer(IDS, WIDTH, NEW)[0] == run, "the pair is as it was"


def test_rounds_are_chained_on_the_states_of_the_target(pair: Speculating) -> None:
    """What the runtime drafted in its rounds, drafted again from the text alone."""
    run, _ = pair.answer(IDS, WIDTH, NEW)
    none = np.empty((0, 0), np.float32)
    steps = []
    for round in run.rounds:
        logits = np.zeros((len(round.drafts), 512), np.float32)
        logits[np.arange(len(round.drafts)), list(round.drafts)] = 1
        said = Said(logits, np.zeros((len(logits), 64), np.float32), np.zeros((len(logits), 8), np.float32))
        steps.append(Steps(round, None, 0, none, {}, said, said))
    one = Assisted(Answer(none, none, run.tokens, ()), run, run, tuple(steps))
    chained = pair.chained(Prompt("p", IDS), one, None)
    assert [c.equal for c in chained] == [len(r.drafts) for r in run.rounds]
    assert Run(run.tokens, run.rounds, 0).counters()["accepted"] > 0
