"""The loop as the released onnx-genai runtime drives it: the decoder is the package's, the token policy its own.

This is the form that its version 0.1.0.dev6 loads and generates from; it asks for the keys of v1.8.
"""

from cabochon.errors import PackageError
from cabochon.metadata.decoder import Decoder
from cabochon.metadata.derive import cells, component, contract, groups, held, invoke, model, rows
from cabochon.metadata.document import (
    Application,
    Binding,
    Bounded,
    Carry,
    Cell,
    Component,
    ComponentContract,
    ComponentPorts,
    Document,
    Emit,
    Input,
    Invariant,
    Invoke,
    LiteralSource,
    Loop,
    Manifest,
    Opaque,
    Output,
    Package,
    Pipeline,
    Request,
    RuntimeRole,
    Serving,
    SpecialTokenIds,
    StateService,
    TensorContract,
    Tokenizer,
    Workflow,
)
from cabochon.metadata.weights import quantization

__all__ = ["served_document", "token_policy"]

_NAMED = {"bos": "bos_token_id", "pad": "pad_token_id", "sep": "sep_token_id", "image": "image_token_id",
          "video": "video_token_id", "audio": "audio_token_id"}  # fmt: skip


def served_document(decoder: Decoder) -> Document:
    """A loop with the runtime's own token policy. Raises PackageError without a tokenizer that has an end token."""
    workflow = Workflow(
        manifest=Manifest(),
        inputs=_inputs(decoder),
        outputs={"tokens": Output(contract=rows("int64", "sequence"), role="tokens", stage="pre_adapter")},
        components={"decoder": _decoder(decoder), "token_policy": token_policy(decoder)},
        state=_state(decoder),
        steps=(_loop(decoder),),
        serving=Serving(
            active="active",
            done="done",
            accepted_len="accepted_len",
            state_service=StateService(groups=groups(decoder)),
        ),
    )
    return Document(
        model=model(decoder),
        quantization=quantization([decoder]),
        package=_package(decoder),
        pipeline=Pipeline(workflow=workflow),
    )


def _package(decoder: Decoder) -> Package:
    if decoder.vocabulary is None or not decoder.vocabulary.ends:
        raise PackageError(
            "the package names no end token; this loop ends with one",
            at="generation_config.json: eos_token_id",
            remedy="build from a checkpoint that has its tokenizer and its generation_config.json",
        )
    special = decoder.vocabulary.special
    ids = {key: special[name].id for name, key in _NAMED.items() if name in special}
    tokens = SpecialTokenIds(eos_token_id=decoder.vocabulary.ends).model_copy(update=ids)
    return Package(tokenizer=Tokenizer(special_tokens=tokens))


def _decoder(decoder: Decoder) -> Component:
    said = ComponentContract(id="onnx-genai.autoregressive-decode", version="1")
    return component(decoder).model_copy(update={"contract": said})


def token_policy(decoder: Decoder) -> Component:
    """The runtime's own policy: logits to tokens, and to which rows go on."""
    outputs = {
        "token": rows("int64", "sequence"),
        "active": rows("bool"),
        "done": rows("bool"),
        "accepted_len": rows("int64"),
    }
    return Component(
        implementation=Binding(),
        ports=ComponentPorts(inputs={"logits": contract(decoder.logits)}, outputs=outputs),
        contract=ComponentContract(id="onnx-genai.token-policy", version="1"),
    )


def _inputs(decoder: Decoder) -> dict[str, Input]:
    limit = decoder.config.max_positions
    count = TensorContract(dtype="int64", shape=(1,))
    return {
        "request.input_ids": Input(
            contract=contract(decoder.ports.inputs["input_ids"]),
            role=RuntimeRole(version="1.0", role="prompt_tokens"),
            source=Request(),
            required=True,
        ),
        "request.max_iterations": Input(
            contract=count,
            role=RuntimeRole(version="1.0", role="max_iterations"),
            source=Request(),
            required=False,
            default=limit,
        ),
        "package.sequence_capacity": _constant(count, limit),
        "package.active": _constant(rows("bool"), True),
        "package.done": _constant(rows("bool"), False),
        "package.accepted_len": _constant(rows("int64"), 0),
        "application.attention_mask": _supplied(
            "attention_mask", contract(decoder.ports.inputs["attention_mask"])
        ),
    } | {f"application.{c.cell}": _supplied(c.past.name, contract(c.past)) for c in decoder.caches}


def _state(decoder: Decoder) -> dict[str, Cell]:
    sequence = Cell(
        contract=held("int64", ("batch", "sequence")),
        scope="invocation",
        initializer="request.input_ids",
        recurrence=Bounded(axis=1, max="package.sequence_capacity"),
    )
    own = {"active": "bool", "done": "bool", "accepted_len": "int64"}
    return (
        {name: _cell(name, dtype) for name, dtype in own.items()}
        | {"sequence": sequence}
        | cells(decoder, "application", Invariant())
    )


def _cell(name: str, dtype: str) -> Cell:
    return Cell(
        contract=rows(dtype), scope="invocation", initializer=f"package.{name}", recurrence=Invariant()
    )


def _loop(decoder: Decoder) -> Loop:
    policy = {name: f"next.{name}" for name in ("active", "done", "accepted_len")}
    return Loop(
        steps=(
            invoke(decoder, "sequence", "application.attention_mask", past="", out="step"),
            Invoke(
                component="token_policy",
                inputs={"logits": "step.logits"},
                outputs={"token": "step.token", **policy},
            ),
            Emit(value="step.token", output="tokens", mode="append", when="active"),
        ),
        continue_when="active",
        max_iterations="request.max_iterations",
        termination="generation_eos",
        carried=(
            *(Carry(cell=cache.cell, next=f"step.{cache.cell}") for cache in decoder.caches),
            *(Carry(cell=name, next=value) for name, value in policy.items()),
            Carry(cell="sequence", next="step.token"),
        ),
    )


def _constant(tensor: TensorContract, value: int | bool) -> Input:
    return Input(contract=tensor, role=Opaque(), source=LiteralSource(), required=False, default=value)


def _supplied(name: str, tensor: TensorContract) -> Input:
    """The runtime supplies it under the name of the decoder's port."""
    return Input(
        contract=tensor,
        role=Opaque(),
        source=Application(name=name),
        required=True,
        externally_suppliable=True,
    )
