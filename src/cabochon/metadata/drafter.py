"""A drafter, and its document: every tensor supplied by the application, no state, as it owns none.

Nothing is written by hand: ports, types and numbers are the graph's, limits its properties'.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, cast

import onnx_ir as ir

from cabochon.errors import GraphError
from cabochon.gemma4 import DrafterConfig
from cabochon.gemma4.config import SLIDING
from cabochon.metadata.decoder import Kind, Part
from cabochon.metadata.derive import contract, emitted, supplied, tokenizer
from cabochon.metadata.document import (
    Component,
    ComponentPorts,
    Document,
    Emit,
    Invoke,
    Manifest,
    Model,
    Onnx,
    Pipeline,
    PortRole,
    Workflow,
)
from cabochon.metadata.ports import Port, Ports, last, read
from cabochon.metadata.vocabulary import Vocabulary
from cabochon.metadata.weights import Weights, quantization, quantization_note, read_weights, rows

__all__ = [
    "CARRY",
    "FUSED",
    "Borrowed",
    "Drafter",
    "Head",
    "drafter_component",
    "drafter_document",
    "read_drafter",
]

FUSED, CARRY = "inputs_embeds", "projected_state"

_SHARED = re.compile(r"shared_kv\.(full_attention|sliding_attention)\.(key|value)")
_ROLES: dict[str, PortRole] = {
    FUSED: "inputs_embeds",
    "attention_mask": "attention_mask",
    "logits": "logits",
}


@dataclass(frozen=True)
class Borrowed:
    """One of the tensors of the target that a drafter reads, [batch, heads, positions, size]."""

    kind: Kind
    part: Part
    port: Port


@dataclass(frozen=True)
class Head:
    """How logits come about: dense, every token scored; or ordered, only those of the `top_k` best of `centroids`."""

    vocabulary: int
    centroids: int | None = None
    top_k: int | None = None

    @property
    def kind(self) -> Literal["dense", "ordered"]:
        """Which of the two."""
        return "dense" if self.centroids is None else "ordered"

    @property
    def scored(self) -> int:
        """Tokens that get a score of their own at each position."""
        if self.centroids is None or self.top_k is None:
            return self.vocabulary
        return self.vocabulary // self.centroids * self.top_k


@dataclass(frozen=True)
class Drafter:
    """A drafter: `ports`, `borrowed` and `head` as its graph has them, `properties` its metadata properties.

    `vocabulary` is None for a package without a tokenizer; `weights` what the graph holds.
    """

    ports: Ports
    borrowed: tuple[Borrowed, ...]
    head: Head
    properties: Mapping[str, str]
    config: DrafterConfig
    vocabulary: Vocabulary | None
    artifact: str = "model.onnx"
    name: str = "assistant"
    weights: Weights = field(default_factory=Weights)

    @property
    def window(self) -> int | None:
        """Keys that a sliding layer of the target sees; the drafter sees one more."""
        said = self.properties.get("cabochon.sliding_window")
        return None if said is None else int(said)

    @property
    def backbone(self) -> int:
        """The width of the target's hidden states."""
        return last(self.ports.outputs[CARRY])

    @cached_property
    def kinds(self) -> dict[Kind, Port]:
        """The kinds of layers whose keys and values are read, and the port of their keys."""
        return {each.kind: each.port for each in self.borrowed if each.part == "key"}


def read_drafter(model: ir.Model, config: DrafterConfig, vocabulary: Vocabulary | None) -> Drafter:
    """The facts of a traced or loaded drafter. Raises GraphError where its ports are not those of one."""
    ports = read(model)
    for name, side in ((FUSED, ports.inputs), ("logits", ports.outputs), (CARRY, ports.outputs)):
        if name not in side:
            raise GraphError("there is no such port; expected a drafter's", at=name)
    borrowed = tuple(_borrowed(ports))
    head = _head(model, last(ports.outputs["logits"]))
    properties, weights = dict(model.metadata_props), read_weights(model)
    return Drafter(ports, borrowed, head, properties, config, vocabulary, weights=weights)


def _borrowed(ports: Ports) -> Iterator[Borrowed]:
    for name, port in ports.inputs.items():
        if match := _SHARED.fullmatch(name):
            yield Borrowed(cast(Kind, match[1]), cast(Part, match[2]), port)


def _head(model: ir.Model, vocabulary: int) -> Head:
    """Centroids are an initializer, and TopK takes the best of them."""
    table = model.graph.initializers.get("masked_embedding.centroids.weight")
    if table is None:
        return Head(vocabulary)
    best = next(node for node in model.graph if node.op_type == "TopK")
    number = best.inputs[1].const_value if best.inputs[1] is not None else None
    assert number is not None
    return Head(vocabulary, rows(table), int(number.numpy().reshape(-1)[0]))


def drafter_document(drafter: Drafter) -> Document:
    """One step: the application feeds the fused rows, the mask and what is borrowed; it gets logits and the carry."""
    inputs = {
        f"request.{name}": supplied(name, contract(port)) for name, port in drafter.ports.inputs.items()
    }
    outputs = {name: emitted(port) for name, port in drafter.ports.outputs.items()}
    step = draft(drafter, {name: f"request.{name}" for name in drafter.ports.inputs})
    workflow = Workflow(
        manifest=Manifest(),
        inputs=inputs,
        outputs=outputs,
        components={drafter.name: drafter_component(drafter)},
        steps=(step, *(Emit(value=f"draft.{name}", output=name, mode="replace") for name in outputs)),
    )
    limits = Model(
        max_sequence_length=int(drafter.properties["cabochon.max_positions"]),
        vocab_size=drafter.head.vocabulary,
    )
    return Document(
        model=limits,
        quantization=quantization([drafter]),
        package=tokenizer(drafter.vocabulary),
        pipeline=Pipeline(workflow=workflow),
    )


def drafter_component(drafter: Drafter) -> Component:
    """The graph with all its ports and the roles of those that have one."""
    named = {**drafter.ports.inputs, **drafter.ports.outputs}
    ports = ComponentPorts(
        inputs={name: contract(port) for name, port in drafter.ports.inputs.items()},
        outputs={name: contract(port) for name, port in drafter.ports.outputs.items()},
        roles={name: role for name, role in _ROLES.items() if name in named},
    )
    return Component(implementation=Onnx(artifact=drafter.artifact), ports=ports)


def draft(drafter: Drafter, inputs: dict[str, str]) -> Invoke:
    """One step of the drafter; its outputs are the values `draft.*`."""
    return Invoke(
        component=drafter.name,
        inputs=inputs,
        outputs={name: f"draft.{name}" for name in drafter.ports.outputs},
    )


def drafter_comments(document: Document, drafter: Drafter) -> Mapping[tuple[str | int, ...], tuple[str, ...]]:
    """The comments of the annotated copy, by the path of the key they stand above."""
    workflow = ("pipeline", "workflow")
    ports = (*workflow, "components", drafter.name, "ports")
    found: dict[tuple[str | int, ...], tuple[str, ...]] = {
        (): (
            "inference_metadata.yaml with comments: `cabochon validate` holds both to be one object.",
            "Programs read that.",
            "Derived from the ports of model.onnx; written by no hand.",
            "",
            "Left out on purpose:",
            "- state: the drafter owns no keys and values. It reads those of its target and returns none.",
            "- speculative: this package holds no target. One of both is made by",
            "  `cabochon build TARGET OUT --assistant ASSISTANT`.",
        ),
        workflow: ("One step of a draft: the application supplies everything.",),
        (*ports, "inputs", FUSED): tuple(_fused(drafter)),
        (*ports, "inputs", "attention_mask"): tuple(position(drafter)),
        (*ports, "outputs", "logits"): (head(drafter),),
        (*ports, "outputs", CARRY): (
            f"Stands in for the target's hidden state in the next step: columns {drafter.backbone} and up of {FUSED}.",
        ),
    }
    if document.quantization is not None:
        found[("quantization",)] = quantization_note(document.quantization)
    for each in drafter.borrowed:
        if each.part == "key":
            found[(*ports, "inputs", each.port.name)] = tuple(reading(drafter, each.kind))
    return found


def _fused(drafter: Drafter) -> Iterator[str]:
    width = drafter.backbone
    yield f"Columns 0 to {width - 1}: the newest token's row of the target's embedding table, times the target's scale."
    yield f"Columns {width} to {2 * width - 1}: the target's hidden state after the final norm, where it predicted that"
    yield f"token; in the further steps of a round the row of the token just drafted, and the {CARRY} of that step."


def position(drafter: Drafter) -> Iterator[str]:
    """How the position of the query comes about."""
    yield "Ones are tokens, zeros may stand anywhere. The query stands right behind them: its position is the number of"
    yield "ones in the first kv_sequence columns, in every step of a round. More columns are ignored."


def reading(drafter: Drafter, kind: Kind) -> Iterator[str]:
    """What layers of a kind read, and how much of it they see."""
    yield f"Keys of the target's last {kind} layer that owns a cache, normed and turned already. Read only."
    if kind == SLIDING and drafter.window is not None:
        yield f"The last {drafter.window + 1} real keys are seen: the target's window of {drafter.window}, and one"
        yield "more, as the query has no key of its own. The cache may be evicted; it holds the mask's last columns."
    else:
        yield "Every real key is seen."


def head(drafter: Drafter) -> str:
    """How logits come about."""
    found = drafter.head
    if found.kind == "dense":
        return f"Every one of {found.vocabulary} tokens is scored."
    return (
        f"{found.scored} of {found.vocabulary} tokens are scored: those of the {found.top_k} best of {found.centroids} "
        "centroids. All others lie 1 below the least of them."
    )
