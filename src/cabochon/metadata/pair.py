"""A target and its drafter as one document: the speculative workflow, every name in it a port, a cell or a weight.

Steps and cells are those of the target by itself. The drafter comes first, and reads what the target remembered.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from cabochon.errors import GraphError
from cabochon.gemma4.config import FULL, SLIDING
from cabochon.metadata.annotate import Comments, comments
from cabochon.metadata.decoder import Decoder
from cabochon.metadata.derive import contract, decoder_workflow, model, package, rows, supplied
from cabochon.metadata.document import (
    Alias,
    Chained,
    Document,
    Group,
    GroupCapabilities,
    IdenticalVocabulary,
    Input,
    Invoke,
    Pipeline,
    Serving,
    Speculative,
    TokenEmbedding,
    ValueRef,
    Workflow,
)
from cabochon.metadata.drafter import (
    CARRY,
    FUSED,
    Drafter,
    draft,
    drafter_component,
    head,
    position,
    reading,
)
from cabochon.metadata.full import Full, Member
from cabochon.metadata.full_notes import full_comments
from cabochon.metadata.multimodal import multimodal
from cabochon.metadata.ports import Ports, read
from cabochon.metadata.served import token_policy
from cabochon.metadata.weights import quantization, whole

__all__ = [
    "EMBEDDING",
    "WIDTH",
    "Embedding",
    "Pair",
    "pair_comments",
    "pair_document",
    "read_embedding",
    "served_pair",
    "width",
]

EMBEDDING = "token_embedding.onnx"
_MASK = "shared_mask"
WIDTH = (
    4  # tokens proposed at once, where the assistant's generation_config.json states no num_assistant_tokens
)


@dataclass(frozen=True)
class Embedding:
    """The graph that looks tokens up: ids to rows of the target's table, times `scale`. `tables` are the weights that
    hold its rows, in their order; `beside` are scales and zero points of their blocks, where they are in blocks."""

    ports: Ports
    tables: tuple[str, ...]
    scale: float
    artifact: str = EMBEDDING
    beside: tuple[str, ...] = ()

    @property
    def table(self) -> str:
        """The first of the tables. There are others only where no binding of the target holds them as one."""
        return self.tables[0]


@dataclass(frozen=True)
class Pair:
    """A target and its drafter. `width`: tokens proposed between two verifications, at most.

    `full`: the components around the target where it is fed by others.
    """

    target: Decoder
    drafter: Drafter
    embedding: Embedding
    width: int
    full: Full | None = None

    @property
    def graphs(self) -> tuple[Decoder | Drafter | Member, ...]:
        """Every graph that is a component."""
        return self.target, self.drafter, *(self.full.members if self.full else ())

    @property
    def holder(self) -> Decoder | Drafter | Member:
        """The graph that has the table of tokens: the target, but where its head is another weight and it is fed."""
        table = whole(self.embedding.table)
        fed = (graph for graph in self.graphs if graph is not self.drafter)
        return next((graph for graph in fed if table in graph.weights.names), self.target)

    @property
    def quantized(self) -> bool:
        """Whether any weight is in blocks."""
        return any(graph.weights.quantized for graph in self.graphs)

    @property
    def seed(self) -> str:
        """The output of the target that the first proposal of a round continues from."""
        if self.target.hidden is None:
            raise GraphError(
                "the target's graph has no hidden_states output, which a drafter begins with", at="model.onnx"
            )
        return self.target.hidden


def read_embedding(graph: ir.Model) -> Embedding:
    """The facts of a token_embedding.onnx: the weights outside of the graph, and the number that makes its output."""
    tensors = {name: value.const_value for name, value in graph.graph.initializers.items()}
    stored = [name for name, tensor in tensors.items() if isinstance(tensor, ir.ExternalTensor)]
    tables = [name for name in stored if whole(name)]
    maker = graph.graph.outputs[0].producer()
    factors = [
        tensors.get(value.name or "") for value in (maker.inputs if maker else ()) if value is not None
    ]
    numbers = [tensor for tensor in factors if tensor is not None and tensor.size == 1]
    if not tables or len(numbers) != 1:
        what = f"{len(tables)} weights outside of the graph and {len(numbers)} numbers; expected a table and its scale"
        raise GraphError(what, at=EMBEDDING)
    beside = tuple(name for name in stored if name not in tables)
    return Embedding(read(graph), tuple(tables), float(numbers[0].numpy().reshape(-1)[0]), beside=beside)


def width(generation: Mapping[str, Any]) -> int:
    """The tokens that an assistant's generation_config.json says to propose."""
    said = generation.get("num_assistant_tokens")
    return said if isinstance(said, int) and said > 0 else WIDTH


def pair_document(pair: Pair) -> Document:
    """The workflow of both. Its form is neutral; `cabochon.metadata.forms.dump` writes it as v1 or v1.8."""
    for kind in (FULL, *(each.kind for each in pair.drafter.borrowed)):
        if kind not in pair.target.groups:
            raise GraphError(
                f"no cache of {kind}; expected one, which a drafter reads", at="the target's graph"
            )
    alone = decoder_workflow(pair.target)
    assert alone.serving is not None
    workflow = alone.model_copy(
        update={
            "inputs": {**alone.inputs, **_inputs(pair)},
            "components": {**alone.components, pair.drafter.name: drafter_component(pair.drafter)},
            "steps": (_draft(pair), *alone.steps),
            "serving": _serving(pair, alone.serving),
        }
    )
    document = Document(
        model=model(pair.target),
        package=package(pair.target),
        pipeline=Pipeline(workflow=workflow),
        speculative=_speculative(pair, workflow),
    )
    document = multimodal(document, pair.full) if pair.full else document
    return document.model_copy(update={"quantization": quantization(pair.graphs)})


def served_pair(pair: Pair) -> Document:
    """The same with the token policy of the released runtime, which refuses a speculative package without one."""
    document = pair_document(pair)
    assert document.pipeline is not None
    workflow = document.pipeline.workflow
    components = {**workflow.components, "token_policy": token_policy(pair.target)}
    changed = workflow.model_copy(update={"components": components})
    return document.model_copy(update={"pipeline": Pipeline(workflow=changed)})


def _inputs(pair: Pair) -> dict[str, Input]:
    """What the drafter takes that no cell holds: its rows, and the mask of what is remembered, which the target's own
    mask is not: that spans the tokens of the step to come as well."""
    fused = contract(pair.drafter.ports.inputs[FUSED])
    remembered = next(cache for cache in pair.target.groups[FULL]).past.shape[2]
    return {
        f"request.{FUSED}": supplied(FUSED, fused),
        f"request.{_MASK}": supplied(_MASK, rows("int64", remembered)),
    }


def _draft(pair: Pair) -> Invoke:
    """The drafter reads the cells of the last owner of each kind, as they are before the target's step."""
    shared = {b.port.name: f"request.{_cell(pair, b.kind, b.part)}" for b in pair.drafter.borrowed}
    own = {FUSED: f"request.{FUSED}", "attention_mask": f"request.{_MASK}"}
    return draft(pair.drafter, own | shared)


def _cell(pair: Pair, kind: Any, part: str) -> str:
    return f"kv.{pair.target.anchors[kind]}.{part}"


def _serving(pair: Pair, alone: Serving) -> Serving:
    service = alone.state_service
    groups = {name: _group(pair, name, group) for name, group in service.groups.items()}
    return alone.model_copy(update={"state_service": service.model_copy(update={"groups": groups})})


def _group(pair: Pair, kind: str, group: Group) -> Group:
    """What the target remembers can be cut off again, copied and continued twice; the drafter reads the last owner."""
    borrowed = {
        _cell(pair, kind, each.part): Alias(input=each.port.name, access="read_only", role=each.part)
        for each in pair.drafter.borrowed
        if each.kind == kind
    }
    ports = {**group.ports, **({pair.drafter.name: borrowed} if borrowed else {})}
    able = GroupCapabilities(rollback_positions=pair.width, snapshot=True, fork=True)
    return group.model_copy(update={"capabilities": able, "ports": ports})


def _speculative(pair: Pair, workflow: Workflow) -> Speculative:
    groups = workflow.serving.state_service.groups if workflow.serving else {}
    execution = Chained(
        token_embedding_input=FUSED,
        logits_output="logits",
        folded_carry_output=CARRY,
        folded_carry_seed=ValueRef(component=pair.target.name, output=pair.seed),
        token_embedding=TokenEmbedding(
            component=pair.holder.name, table=pair.embedding.table, scale=pair.embedding.scale
        ),
    )
    return Speculative(
        proposer=pair.drafter.name,
        target=pair.target.name,
        proposal_execution=execution,
        port_bindings={"target_hidden_context": FUSED},
        shared_state=tuple(name for name, group in groups.items() if pair.drafter.name in group.ports),
        vocabulary=IdenticalVocabulary(),
        max_proposal_width=pair.width,
        distribution_preserving=True,
        rollback_state=tuple(workflow.state),
    )


def pair_comments(document: Document, pair: Pair) -> Comments:
    """The comments of the annotated copy, by the path of the key they stand above."""
    own = full_comments(document, pair.full) if pair.full else comments(document, pair.target)
    return {**own, **dict(_notes(pair))}


def _notes(pair: Pair) -> Iterator[tuple[tuple[str | int, ...], tuple[str, ...]]]:
    drafter, section = pair.drafter, ("speculative",)
    workflow = ("pipeline", "workflow")
    ports = (*workflow, "components", drafter.name, "ports")
    yield (
        (*workflow, "inputs", f"request.{_MASK}"),
        (
            f"The mask of what the target remembers, for {drafter.name}: without the tokens of the step to come.",
        ),
    )
    yield (
        (*workflow, "steps"),
        ("The drafter first: it reads the caches as the target left them, and changes nothing.",),
    )
    yield (*ports, "inputs", "attention_mask"), tuple(position(drafter))
    for each in drafter.borrowed:
        if each.part == "key":
            anchor = f"Layer {pair.target.anchors[each.kind]} of the target."
            yield (*ports, "inputs", each.port.name), (anchor, *reading(drafter, each.kind))
    yield (*ports, "outputs", "logits"), (head(drafter),)
    yield (
        section,
        (f"Between two verifications {drafter.name} proposes up to {pair.width} tokens, one after another.",),
    )
    execution = (*section, "proposal_execution")
    yield (*execution, "folded_carry_output"), (f"Goes into {FUSED} of the next step, behind the embedding.",)
    yield (*execution, "folded_carry_seed"), ("Of the token that was drawn last: after the final norm.",)
    yield (*execution, "token_embedding"), tuple(_scale(pair))
    yield (*section, "rollback_state"), tuple(_rollback(pair))
    yield (
        (*section, "distribution_preserving"),
        (
            "The runtime verifies so that output is distributed as without a drafter; greedy output is the same.",
        ),
    )


def _scale(pair: Pair) -> Iterator[str]:
    if pair.embedding.beside:
        yield f"The table is in blocks: it holds codes, and {' and '.join(pair.embedding.beside)} what they stand for."
    yield f"v1 has no key for a scale, and {pair.target.name} multiplies rows of this table by {pair.embedding.scale}."
    yield "A reader of v1 that gathers rows itself must do so: unscaled rows give fluent drafts, nearly all refused."
    yield f"{pair.embedding.artifact} does both: ids to scaled rows, over the target's own table. v1.8 says the scale."


def _rollback(pair: Pair) -> Iterator[str]:
    yield "Every cell of the target: what was written for tokens that are refused is cut off."
    if SLIDING in pair.target.groups:
        window = pair.target.config.window or 1
        yield (
            f"Of sliding cells {window + 1} entries, which the drafter sees, must be left then: none that was dropped "
            "comes back."
        )
