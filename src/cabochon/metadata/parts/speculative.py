"""How a proposer drafts for a target."""

from typing import Annotated, Literal

from pydantic import Field

from cabochon.metadata.parts.part import Count, Names, Open, Part, Text, Tuple, empty

__all__ = [
    "AcceptedByComponent",
    "AcceptedByRuntime",
    "AcceptedPath",
    "Block",
    "CandidateTree",
    "Chained",
    "FlatBlock",
    "IdenticalVocabulary",
    "MappedVocabulary",
    "MultiTokenPrediction",
    "Probabilities",
    "ProposalExecution",
    "RecurrentBinding",
    "SharedWeight",
    "Speculative",
    "SubsetVocabulary",
    "TokenEmbedding",
    "ValueRef",
    "Verification",
    "Vocabulary",
]


class ValueRef(Part):
    """An output of a component."""

    component: Text
    output: Text


class TokenEmbedding(Part):
    """The table that token ids are looked up in, and what the rows are multiplied by (v1.6 and later)."""

    component: Text
    table: Text
    scale: float | None = None


class RecurrentBinding(Part):
    """A cell that the proposer carries through its own steps."""

    state: Text
    input: Text
    output: Text


class Block(Part):
    """All proposals at once."""

    kind: Literal["block"] = "block"


class Chained(Part):
    """One proposal after another, each fed with the one before."""

    kind: Literal["chained"] = "chained"
    token_embedding_input: Text
    logits_output: Text
    recurrent: Tuple[RecurrentBinding] = ()
    folded_carry_output: Text | None = None
    folded_carry_seed: ValueRef | None = None
    token_embedding: TokenEmbedding | None = None


class MultiTokenPrediction(Open):
    """Proposals from heads of the target itself, v1.6 and later. Read and handed on; cabochon writes none."""

    kind: Literal["mtp"] = "mtp"


class CandidateTree(Open):
    """A tree of proposals, v1.6 and later. Read and handed on; cabochon writes none."""

    kind: Literal["candidate_tree"] = "candidate_tree"


class FlatBlock(Open):
    """A block that a diffusion drafter proposes, v1.6 and later. Read and handed on; cabochon writes none."""

    kind: Literal["dflash_flat_block"] = "dflash_flat_block"


ProposalExecution = Annotated[
    Block | Chained | MultiTokenPrediction | CandidateTree | FlatBlock, Field(discriminator="kind")
]


class IdenticalVocabulary(Part):
    """Both have the same tokens."""

    kind: Literal["identical"] = "identical"


class SubsetVocabulary(Part):
    """The proposer has the first tokens only."""

    kind: Literal["subset"] = "subset"
    proposer_vocab_size: Count


class MappedVocabulary(Part):
    """A file of the package maps the proposer's tokens."""

    kind: Literal["mapped"] = "mapped"
    artifact: Text


Vocabulary = Annotated[IdenticalVocabulary | SubsetVocabulary | MappedVocabulary, Field(discriminator="kind")]


class AcceptedByRuntime(Part):
    """The runtime says how far the proposals were accepted."""

    kind: Literal["runtime"] = "runtime"
    binding: Text


class AcceptedByComponent(Part):
    """A component says it."""

    kind: Literal["component"] = "component"
    value: ValueRef


AcceptedPath = Annotated[AcceptedByRuntime | AcceptedByComponent, Field(discriminator="kind")]


class Probabilities(Part):
    """Where both say how likely each token was: without them only greedy verification is possible."""

    proposal: ValueRef
    target: ValueRef


class Verification(Part):
    """What the target says of the proposals, v1.6 and later."""

    target_output: ValueRef
    accepted_path: AcceptedPath
    probabilities: Probabilities | None = None


class SharedWeight(Part):
    """An initializer of a component."""

    component: Text
    initializer: Text


class Speculative(Part):
    """The contract between proposer and target; `identity`, `version` and `verification` from v1.6 on."""

    identity: Text | None = None
    version: Text | None = None
    proposer: Text
    target: Text
    proposal_execution: ProposalExecution = Block()
    port_bindings: dict[str, str] = empty()
    target_port_bindings: dict[str, str] = empty()
    shared_state: Names = ()
    shared_weights: Tuple[SharedWeight | Text] = ()
    vocabulary: Vocabulary
    max_proposal_width: Annotated[int, Field(ge=1, le=2**31 - 1)]
    distribution_preserving: bool = False
    rollback_state: Names = ()
    verification: Verification | None = None
