"""What the workflow remembers: cells, and the groups in which a runtime serves them."""

from typing import Annotated, Any, Literal

from pydantic import Field

from cabochon.metadata.parts.part import Axis, Count, Names, Open, Part, Text, empty
from cabochon.metadata.parts.tensors import TensorContract

__all__ = [
    "Alias",
    "Append",
    "Bounded",
    "Cell",
    "Checkpoint",
    "Group",
    "GroupCapabilities",
    "GroupProperties",
    "Growing",
    "IndexedScatter",
    "Invariant",
    "Recurrence",
    "Replace",
    "Reuse",
    "Serving",
    "Session",
    "StateService",
    "Update",
]


class Invariant(Part):
    """The shape does not change, or the runtime alone knows how."""

    kind: Literal["invariant"] = "invariant"


class Growing(Part):
    """`axis` grows by `increment` a step, up to `max` (both names of values)."""

    kind: Literal["growing"] = "growing"
    axis: Axis
    increment: Text
    max: Text


class Bounded(Part):
    """`axis` stays within `max` (the name of a value)."""

    kind: Literal["bounded"] = "bounded"
    axis: Axis
    max: Text


Recurrence = Annotated[Invariant | Growing | Bounded, Field(discriminator="kind")]


class Session(Part):
    """How a session is leased."""

    policy: Literal["exclusive", "copy_on_write"] = "exclusive"
    ttl_seconds: Count | None = None
    optimistic_metadata_version: bool = False
    continuation: Any = None  # v1.1 and later; read and handed on


class Cell(Part):
    """A value that is carried from step to step."""

    contract: TensorContract
    class_: Annotated[Literal["semantic", "advisory"], Field(alias="class")] = "semantic"
    scope: Literal["invocation", "session"]
    initializer: Text
    recurrence: Recurrence
    management: Literal["workflow", "runtime", "external"] = "workflow"
    release_boundary: Literal["invocation", "session", "row"] | None = None
    service_group: Text | None = None
    session: Session | None = None


class Append(Part):
    """New positions are put behind the old ones."""

    kind: Literal["append"] = "append"


class Replace(Part):
    """The whole state is replaced."""

    kind: Literal["replace"] = "replace"


class IndexedScatter(Part):
    """New positions are written where `write_indices` says, into a buffer of `capacity` positions."""

    kind: Literal["indexed_scatter"] = "indexed_scatter"
    write_indices: Text
    capacity: Text
    write_indices_ports: dict[str, str] = empty()
    kv_length_ports: dict[str, str] = empty()


Update = Annotated[Append | Replace | IndexedScatter, Field(discriminator="kind")]


class Reuse(Part):
    """What holds of the state of a prefix."""

    prefix_reusable: bool = False
    evictable_prefix: bool = False


class GroupCapabilities(Part):
    """What a runtime may do with the state."""

    rollback_positions: Count | None = None
    snapshot: bool = False
    fork: bool = False
    cascade: Names = ()


class Checkpoint(Part):
    """Who writes the state down."""

    adapter: Text
    version: Text


class Alias(Part):
    """The ports of a component behind which a cell lies; `output` unless it only reads."""

    input: Text
    output: Text | None = None
    access: Literal["read_write", "read_only"] = "read_write"
    role: Literal["key", "value", "combined"] | None = None
    layer: Count | None = None


class GroupProperties(Open):
    """What a group of kind compressed_attention adds, v1.8. Read and handed on; cabochon writes none."""

    kind: Text


class Group(Part):
    """Cells that a runtime serves together."""

    kind: Literal[
        "full_attention",
        "sliding_attention",
        "multi_latent_attention",
        "recurrent",
        "cross_attention",
        "encoder",
        "compressed_attention",
    ]
    properties: GroupProperties | None = None
    sequence_axis: Axis | None = None
    layout: Text
    logical_lengths: Text | None = None
    aliasing: Literal["forbidden", "permitted", "required"] = "forbidden"
    update: Update | None = None
    total_length: Text | None = None
    reuse: Reuse = Reuse()
    capabilities: GroupCapabilities = GroupCapabilities()
    checkpoint: Checkpoint | None = None
    ports: dict[str, dict[str, Alias]] = empty()


class StateService(Part):
    """The groups by name."""

    groups: dict[str, Group] = empty()


class Serving(Part):
    """What a server needs to run several requests at once: the names of values, and the groups."""

    active: Text
    done: Text
    accepted_len: Text | None = None
    state_service: StateService
