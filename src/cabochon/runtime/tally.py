"""What speculative decoding did in one answer, counted."""

from dataclasses import dataclass, field

from cabochon.runtime.draft_length import Round

ENOUGH = 16


@dataclass(frozen=True)
class Counts:
    """Of one round. `proposed` = `accepted` + `rejected`."""

    proposed: int
    accepted: int
    rejected: int


@dataclass(frozen=True)
class Speculation:
    """Figures of one answer. `proposed` = `accepted` + `rejected`; what was proposed behind its end is rejected.

    `rounds` are those of each round, in order; `accepted_per_round[n]` is the number of rounds that kept n proposals.
    `target_calls` are the steps of the target after the prompt, `tokens_per_target_call` the tokens after the first by
    them. `read_again` counts tokens that were
    fed once more, one by one, because a choice between two nearly equal logits hung on it (docs/speculation.md).
    """

    proposer: str
    proposed: int
    accepted: int
    rejected: int
    rounds: list[Counts]
    accepted_per_round: list[int]
    target_calls: int
    tokens_per_target_call: float
    read_again: int
    drafter_seconds: float
    target_seconds: float

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a user should know: that proposing only costs time."""
        if self.accepted or self.proposed < ENOUGH:
            return ()
        advice = "is this the drafter of this target?" if self.proposer == "drafter" else "it only takes time"
        return (f"speculation: 0 of {self.proposed} proposed tokens were accepted; {advice}",)


@dataclass
class Tally:
    """The count while an answer is made."""

    proposer: str
    rounds: list[Round] = field(default_factory=list[Round])
    read_again: int = 0
    again_seconds: float = 0.0

    def figures(self, tokens: int) -> Speculation:
        """The figures after `tokens` tokens, the first of which came from the prompt."""
        proposed, accepted = (sum(r.proposed for r in self.rounds), sum(r.accepted for r in self.rounds))
        longest = max((r.accepted for r in self.rounds), default=0)
        calls = len(self.rounds) + self.read_again
        return Speculation(
            proposer=self.proposer,
            proposed=proposed,
            accepted=accepted,
            rejected=proposed - accepted,
            rounds=[Counts(r.proposed, r.accepted, r.proposed - r.accepted) for r in self.rounds],
            accepted_per_round=[sum(r.accepted == n for r in self.rounds) for n in range(longest + 1)],
            target_calls=calls,
            tokens_per_target_call=max(tokens - 1, 0) / calls if calls else 0.0,
            read_again=self.read_again,
            drafter_seconds=sum(r.drafter_seconds for r in self.rounds),
            target_seconds=sum(r.target_seconds for r in self.rounds) + self.again_seconds,
        )
