"""The counters of one answer."""

import pytest

from cabochon.runtime.draft_length import Round
from cabochon.runtime.tally import Counts, Tally


def test_figures():
    rounds = [Round(4, 4, 4, 0.5, 1.0), Round(4, 1, 2, 0.5, 1.0), Round(0, 0, 0, 0.0, 0.5)]
    did = Tally("drafter", rounds, read_again=1, again_seconds=0.25).figures(tokens=9)
    assert (did.proposed, did.accepted, did.rejected) == (8, 5, 3)
    assert did.rounds == [Counts(4, 4, 0), Counts(4, 1, 3), Counts(0, 0, 0)]
    assert did.accepted_per_round == [1, 1, 0, 0, 1]
    assert (did.target_calls, did.tokens_per_target_call) == (4, 2.0)
    assert (did.drafter_seconds, did.target_seconds, did.read_again) == (1.0, 2.75, 1)
    assert did.remarks == ()


def test_nothing_was_done():
    did = Tally("drafter").figures(tokens=1)
    assert (did.accepted_per_round, did.target_calls, did.tokens_per_target_call) == ([0], 0, 0.0)
    assert did.remarks == ()


@pytest.mark.parametrize(("rounds", "remarks"), [(3, 0), (4, 1)])
def test_a_drafter_that_is_never_right_is_remarked_on(rounds: int, remarks: int):
    did = Tally("drafter", [Round(4, 0, 1, 0.1, 0.1)] * rounds).figures(tokens=rounds + 1)
    assert len(did.remarks) == remarks
    if remarks:
        assert did.remarks[0] == (
            "speculation: 0 of 16 proposed tokens were accepted; is this the drafter of this target?"
        )


def test_a_lookup_that_is_never_right_is_remarked_on():
    did = Tally("prompt-lookup", [Round(8, 0, 1, 0.1, 0.1)] * 2).figures(tokens=3)
    assert did.remarks == ("speculation: 0 of 16 proposed tokens were accepted; it only takes time",)
