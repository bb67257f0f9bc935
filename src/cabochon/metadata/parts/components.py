"""Components: what computes, with which ports, under which contract."""

from typing import Annotated, Any, Literal

from pydantic import Field

from cabochon.metadata.parts.part import Axis, Names, Part, Scalar, Text, empty
from cabochon.metadata.parts.tensors import TensorContract

__all__ = [
    "AdapterImplementation",
    "BatchCapacity",
    "Binding",
    "Component",
    "ComponentContract",
    "ComponentPorts",
    "Implementation",
    "Onnx",
    "PortRole",
    "RowScope",
]

PortRole = Literal[
    "token_ids",
    "inputs_embeds",
    "attention_mask",
    "position_ids",
    "logits",
    "hidden_states",
    "encoder_hidden_states",
    "audio_features",
]


class Onnx(Part):
    """A graph of the package."""

    kind: Literal["onnx"] = "onnx"
    artifact: Text


class AdapterImplementation(Part):
    """Something the runtime has under a pinned interface."""

    kind: Literal["adapter"] = "adapter"
    abi: Text
    version: Text
    artifact: Text | None = None


class Binding(Part):
    """Something the runtime has, named by the component's contract."""

    kind: Literal["binding"] = "binding"


Implementation = Annotated[Onnx | AdapterImplementation | Binding, Field(discriminator="kind")]


class ComponentPorts(Part):
    """Ports by name; both may be left out for a graph, which then is the authority. Roles are always said."""

    inputs: dict[str, TensorContract] = empty()
    outputs: dict[str, TensorContract] = empty()
    roles: dict[str, PortRole] = empty()


class ComponentContract(Part):
    """A contract that the component fulfils, and which of its ports play which role in it."""

    id: Text
    version: Text
    equivalence: Literal["bitwise", "distribution_preserving", "semantic"] = "semantic"
    bindings: dict[str, str] = empty()
    parameters: dict[str, Scalar] = empty()


class RowScope(Part):
    """On which axis the rows of a batch lie, and whether the component keeps something of each."""

    axis: Axis
    stateful: bool = False


class BatchCapacity(Part):
    """How much fits into one batch, v1.1 and later. Read and handed on; cabochon writes none."""

    uniform_dimensions: Any = None
    budgets: Any = None


class Component(Part):
    """A part of the workflow that computes."""

    implementation: Implementation
    ports: ComponentPorts = ComponentPorts()
    contract: ComponentContract | None = None
    application_overridable: bool = False
    effects: Names = ()
    row_scope: RowScope | None = None
    cache_affects_state: Names = ()
    batch_capacity: BatchCapacity | None = None
