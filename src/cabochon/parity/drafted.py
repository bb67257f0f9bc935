"""What was compared of a drafter, alone or in a pair."""

from collections.abc import Mapping
from dataclasses import dataclass

from cabochon.parity.drafting import Chained, Limits, Match
from cabochon.parity.levels import Generated
from cabochon.parity.prompts import Prompt
from cabochon.parity.quality import Quality
from cabochon.parity.rounds import Assisted, Run, Steps
from cabochon.runtime.tally import Speculation

__all__ = ["Answered", "Round", "Row", "Trial"]


@dataclass(frozen=True)
class Answered:
    """L5 of one prompt. plain: the package's own greedy tokens, drawn one by one, against the reference's.

    run: what it generated with its drafter. figures: the runtime's own count. reference: what transformers did.
    """

    plain: Generated
    run: Run
    figures: Speculation
    reference: Assisted

    @property
    def lossless(self) -> bool:
        """True where the drafter changed no token."""
        return self.run.tokens == self.plain.tokens

    @property
    def same_rounds(self) -> bool:
        """True where every round proposed and kept what transformers' did with valid keys."""
        return self.run.rounds == self.reference.valid.rounds

    @property
    def read_again(self) -> bool:
        """True where the runtime ended a round early to make sure of a choice between two nearly equal logits."""
        return self.figures.read_again > 0


@dataclass(frozen=True)
class Trial:
    """One way to run a package, and the arithmetic of the reference it is compared with.

    Without limits figures are reported and decide nothing. exact: also drafts and tokens must be equal. noise: by
    prompt, how far the reference's own rounding moves a logit of the target; empty in f32. experts: rounding may choose
    others, and then other tokens.
    """

    how: str
    arithmetic: str
    limits: Limits | None
    exact: bool
    noise: Mapping[str, float]
    experts: bool = False


@dataclass(frozen=True)
class Round:
    """One recorded round: its first step, all steps fed what the reference was fed, and the round on its own."""

    steps: Steps
    first: Match
    forced: Match
    chained: Chained | None


@dataclass(frozen=True)
class Row:
    """One prompt; `answered` where a target is there to generate.

    quality: of a quantized drafter, all steps of all rounds of the original target against the original drafter.
    """

    prompt: Prompt
    rounds: tuple[Round, ...]
    answered: Answered | None
    reference: Assisted
    quality: Quality | None = None
