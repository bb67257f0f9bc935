"""What a tensor is: element type, shape, and where its rows are."""

from typing import Annotated, Literal

from pydantic import Field

from cabochon.metadata.parts.part import Axis, Dtype, Filled, Part, Positive, Text, Tuple

__all__ = [
    "BatchLayout",
    "Dimension",
    "PackedLevel",
    "PaddedDimension",
    "RequestAligned",
    "RequestExpanded",
    "RuntimeSequenceState",
    "Shared",
    "TensorContract",
    "TokenPacked",
]

Dimension = Annotated[int, Field(ge=0, le=2**63 - 1)] | Text  # a symbol where it is no number


class Shared(Part):
    """One value for all requests of a batch."""

    kind: Literal["shared"] = "shared"


class RequestAligned(Part):
    """One row of `axis` for each request."""

    kind: Literal["request_aligned"] = "request_aligned"
    axis: Axis


class RequestExpanded(Part):
    """`factor` rows of `axis` for each request."""

    kind: Literal["request_expanded"] = "request_expanded"
    axis: Axis
    factor: Positive


class PackedLevel(Part):
    """One level of a packing, v1.1 and later: who owns which stretch."""

    offsets: Text
    owner: Text
    extent: Text | None = None


class TokenPacked(Part):
    """The tokens of all requests one after another: `offsets` and `owner` in v1, `levels` from v1.1 on."""

    kind: Literal["token_packed"] = "token_packed"
    axis: Axis | None = None
    offsets: Text | None = None
    owner: Text | None = None
    levels: Filled[PackedLevel] | None = None


class RuntimeSequenceState(Part):
    """The runtime's own: only it knows where a request's part is."""

    kind: Literal["runtime_sequence_state"] = "runtime_sequence_state"


BatchLayout = Annotated[
    Shared | RequestAligned | RequestExpanded | TokenPacked | RuntimeSequenceState,
    Field(discriminator="kind"),
]


class PaddedDimension(Part):
    """A dimension in which shorter rows are padded, and the value that says how much of each is valid."""

    dimension: Dimension
    valid_lengths: Text


class TensorContract(Part):
    """Element type and shape of a value; `rank` is said in v1 and must not be said in v1.8."""

    dtype: Dtype
    rank: Annotated[int, Field(ge=0, le=64)] | None = None
    shape: Tuple[Dimension] | None = None
    optional: bool = False
    batch_layout: BatchLayout = Shared()
    padding: Filled[PaddedDimension] | None = None
