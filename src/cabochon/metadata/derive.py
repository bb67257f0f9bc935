"""The canonical document of a text package: one pass of the decoder, everything supplied by the application.

Nothing is written by hand: ports, types and symbols are the graph's, kinds and limits the config's, tokens the
tokenizer's.
"""

from collections.abc import Mapping

from cabochon.gemma4.config import SLIDING
from cabochon.metadata.decoder import Cache, Decoder
from cabochon.metadata.document import (
    Alias,
    Append,
    Application,
    Cell,
    Component,
    ComponentPorts,
    Document,
    Emit,
    Group,
    Input,
    Invariant,
    Invoke,
    Manifest,
    Model,
    Onnx,
    Opaque,
    Output,
    Package,
    Pipeline,
    PortRole,
    Recurrence,
    Request,
    Reuse,
    RuntimeRole,
    RuntimeRoleName,
    Serving,
    SpecialToken,
    StateService,
    TensorContract,
    Tokenizer,
    TokenizerArtifact,
    Workflow,
)
from cabochon.metadata.experts import mixture_of_experts
from cabochon.metadata.ports import Port, last
from cabochon.metadata.tensors import contract, held, rows
from cabochon.metadata.vocabulary import Vocabulary
from cabochon.metadata.weights import quantization

__all__ = [
    "cells",
    "component",
    "contract",
    "control",
    "decoder_document",
    "decoder_workflow",
    "emitted",
    "groups",
    "held",
    "invoke",
    "model",
    "package",
    "remembered",
    "requested",
    "rows",
    "served",
    "supplied",
    "tokenizer",
]

_CONTROL = {"active": "bool", "done": "bool", "accepted_len": "int64"}
_ROLES: dict[str, PortRole] = {
    "input_ids": "token_ids",
    "inputs_embeds": "inputs_embeds",
    "attention_mask": "attention_mask",
    "logits": "logits",
}


def decoder_document(decoder: Decoder) -> Document:
    """The decoder alone: the application feeds tokens, mask and caches, and gets logits and the grown caches.

    The form of the document is neutral; `cabochon.metadata.forms.dump` writes it as v1 or v1.8.
    """
    return Document(
        model=model(decoder),
        quantization=quantization([decoder]),
        package=package(decoder),
        pipeline=Pipeline(workflow=decoder_workflow(decoder)),
    )


def decoder_workflow(decoder: Decoder) -> Workflow:
    """One pass of the decoder, under its own name."""
    return Workflow(
        manifest=Manifest(),
        inputs=control()
        | {
            "request.input_ids": requested("prompt_tokens", rows("int64", "sequence")),
        }
        | remembered(decoder),
        outputs={"logits": emitted(decoder.logits)},
        components={decoder.name: component(decoder)},
        state=cells(decoder, "request", Invariant()),
        steps=(
            invoke(decoder, "request.input_ids", "request.attention_mask", past="request", out=decoder.name),
            Emit(value=f"{decoder.name}.logits", output="logits", mode="replace"),
        ),
        serving=served(decoder),
    )


def control() -> dict[str, Input]:
    """What a server knows of the rows: which run, which are over, how far each got."""
    return {f"request.{name}": supplied(name, rows(dtype)) for name, dtype in _CONTROL.items()}


def served(decoder: Decoder) -> Serving:
    """That, and the caches in their groups."""
    return Serving(
        **{name: f"request.{name}" for name in _CONTROL}, state_service=StateService(groups=groups(decoder))
    )


def remembered(decoder: Decoder) -> dict[str, Input]:
    """What the application keeps from call to call: the mask and the caches."""
    return {
        "request.attention_mask": supplied("attention_mask", contract(decoder.ports.inputs["attention_mask"]))
    } | {f"request.{c.cell}": supplied(c.past.name, contract(c.past)) for c in decoder.caches}


def model(decoder: Decoder) -> Model:
    """Limits of the model. Attention is not described: one head size could not, and the ports say it."""
    return Model(
        max_sequence_length=decoder.config.max_positions,
        vocab_size=last(decoder.logits),
        mixture_of_experts=mixture_of_experts(decoder.config),
    )


def package(decoder: Decoder) -> Package | None:
    """See `tokenizer`."""
    return tokenizer(decoder.vocabulary)


def tokenizer(vocabulary: Vocabulary | None) -> Package | None:
    """The tokenizer, and its special tokens by the names that its own files give them; None without one."""
    if vocabulary is None:
        return None
    described = Tokenizer(
        algorithm=vocabulary.algorithm,
        vocab_size=vocabulary.size,
        byte_level=vocabulary.byte_level,
        artifacts=(TokenizerArtifact(location="tokenizer.json"),),
        special_tokens={
            name: SpecialToken(id=token.id, content=token.content)
            for name, token in vocabulary.special.items()
        },
    )
    return Package(tokenizer=described)


def component(decoder: Decoder) -> Component:
    """The graph with all its ports and the roles of those that have one."""
    roles: dict[str, PortRole] = {
        name: role
        for name, role in _ROLES.items()
        if name in {**decoder.ports.inputs, **decoder.ports.outputs}
    }
    if decoder.hidden:
        roles[decoder.hidden] = "hidden_states"
    ports = ComponentPorts(
        inputs={name: contract(port) for name, port in decoder.ports.inputs.items()},
        outputs={name: contract(port) for name, port in decoder.ports.outputs.items()},
        roles=roles,
    )
    return Component(implementation=Onnx(artifact=decoder.artifact), ports=ports)


def cells(decoder: Decoder, initial: str, recurrence: Recurrence) -> dict[str, Cell]:
    """One cell for each cache of an owner. A layer that borrows has none."""
    return {cache.cell: _cell(cache, f"{initial}.{cache.cell}", recurrence) for cache in decoder.caches}


def groups(decoder: Decoder) -> dict[str, Group]:
    """The caches by the kind of their layers.

    Only a sliding layer forgets: the front of its cache may go. One buffer may be past and present only where the
    graph writes into it.
    """
    return {
        kind: Group(
            kind=kind,
            sequence_axis=2,
            layout="bnsh",
            aliasing="permitted" if decoder.in_place else "forbidden",
            update=Append(),
            reuse=Reuse(prefix_reusable=True, evictable_prefix=kind == SLIDING),
            ports={decoder.name: {cache.cell: _alias(cache) for cache in caches}},
        )
        for kind, caches in decoder.groups.items()
    }


def invoke(decoder: Decoder, tokens: str | Mapping[str, str], mask: str, *, past: str, out: str) -> Invoke:
    """One call: values `{past}.{cell}` go in, `{out}.*` come out. Optional inputs keep the graph's defaults.

    `tokens` are the ids, or the value of each input that stands for them.
    """
    fed = {"input_ids": tokens} if isinstance(tokens, str) else dict(tokens)
    dot = f"{past}." if past else ""
    tap = {decoder.hidden: f"{out}.hidden"} if decoder.hidden else {}
    return Invoke(
        component=decoder.name,
        inputs={**fed, "attention_mask": mask}
        | {cache.past.name: f"{dot}{cache.cell}" for cache in decoder.caches},
        outputs={"logits": f"{out}.logits"}
        | tap
        | {cache.present.name: f"{out}.{cache.cell}" for cache in decoder.caches},
    )


def supplied(name: str, tensor: TensorContract) -> Input:
    """An input that the application supplies."""
    return Input(contract=tensor, role=Opaque(), source=Application(name=name), required=True)


def emitted(port: Port) -> Output:
    """An output of the workflow that is a graph's, as it is."""
    return Output(contract=contract(port), role="tensor", stage="pre_adapter")


def requested(role: RuntimeRoleName, tensor: TensorContract) -> Input:
    """An input that every request brings, in a role that the runtime knows."""
    return Input(contract=tensor, role=RuntimeRole(version="1.0", role=role), source=Request(), required=True)


def _cell(cache: Cache, initial: str, recurrence: Recurrence) -> Cell:
    return Cell(
        contract=contract(cache.past),
        scope="invocation",
        initializer=initial,
        recurrence=recurrence,
        management="runtime",
        release_boundary="invocation",
        service_group=cache.kind,
    )


def _alias(cache: Cache) -> Alias:
    return Alias(input=cache.past.name, output=cache.present.name, role=cache.part, layer=cache.layer)
