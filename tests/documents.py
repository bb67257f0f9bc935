"""Documents to read, write, convert and break; and where those of others lie, if they are there."""

from pathlib import Path
from typing import Any

import pytest

from cabochon.metadata.document import (
    Alias,
    Append,
    Application,
    Cell,
    Chained,
    Component,
    ComponentPorts,
    Document,
    Emit,
    Group,
    GroupCapabilities,
    IdenticalVocabulary,
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
    Request,
    RequestAligned,
    Reuse,
    RuntimeRole,
    Serving,
    SharedWeight,
    SpecialToken,
    Speculative,
    StateService,
    TensorContract,
    TokenEmbedding,
    Tokenizer,
    TokenizerArtifact,
    ValueRef,
    Workflow,
)

SHARED = Path(__file__).parents[2] / "shared" / "data" / "inference-metadata"
OTHERS = sorted(SHARED.glob("*/*.yaml"))  # the work of others: read where it is, never copied


def need_others() -> None:
    if not OTHERS:
        pytest.skip("the documents of others are not beside this checkout")


def rows(dtype: str, *more: int | str) -> TensorContract:
    return TensorContract(dtype=dtype, shape=("batch", *more), batch_layout=RequestAligned(axis=0))


def decoder() -> Document:
    """One pass of a decoder with one cache, in neutral form: neither ranks nor families are said."""
    past, present = rows("float16", 1, "past", 8), rows("float16", 1, "total", 8)
    names = {"active": "bool", "done": "bool", "accepted_len": "int64"}
    supplied = {
        f"request.{name}": Input(contract=rows(dtype), role=Opaque(), source=Application(name=name))
        for name, dtype in names.items()
    }
    workflow = Workflow(
        manifest=Manifest(),
        inputs={
            **supplied,
            "request.input_ids": Input(
                contract=rows("int64", "sequence"), role=RuntimeRole(role="prompt_tokens"), source=Request()
            ),
            "request.kv.4.key": Input(
                contract=past, role=Opaque(), source=Application(name="past_key_values.4.key")
            ),
        },
        outputs={
            "logits": Output(contract=rows("float16", "sequence", 16), role="tensor", stage="pre_adapter")
        },
        components={
            "decoder": Component(
                implementation=Onnx(artifact="model.onnx"),
                ports=ComponentPorts(
                    inputs={"input_ids": rows("int64", "sequence"), "past_key_values.4.key": past},
                    outputs={
                        "logits": rows("float16", "sequence", 16),
                        "hidden": rows("float16", "sequence", 6),
                        "present.4.key": present,
                    },
                    roles={"input_ids": "token_ids", "logits": "logits", "hidden": "hidden_states"},
                ),
            )
        },
        state={
            "kv.4.key": Cell(
                contract=past,
                class_="semantic",
                scope="invocation",
                initializer="request.kv.4.key",
                recurrence=Invariant(),
                management="runtime",
                release_boundary="invocation",
                service_group="full_attention",
            )
        },
        steps=(
            Invoke(
                component="decoder",
                inputs={"input_ids": "request.input_ids", "past_key_values.4.key": "request.kv.4.key"},
                outputs={"logits": "step.logits", "hidden": "step.hidden", "present.4.key": "step.key"},
            ),
            Emit(value="step.logits", output="logits", mode="replace"),
        ),
        serving=Serving(
            active="request.active",
            done="request.done",
            accepted_len="request.accepted_len",
            state_service=StateService(
                groups={
                    "full_attention": Group(
                        kind="full_attention",
                        sequence_axis=2,
                        layout="bnsh",
                        update=Append(),
                        reuse=Reuse(prefix_reusable=True),
                        capabilities=GroupCapabilities(rollback_positions=4),
                        ports={
                            "decoder": {
                                "kv.4.key": Alias(
                                    input="past_key_values.4.key", output="present.4.key", role="key", layer=4
                                )
                            }
                        },
                    )
                }
            ),
        ),
    )
    return Document(
        model=Model(max_sequence_length=64, vocab_size=16),
        package=Package(
            tokenizer=Tokenizer(
                algorithm="bpe",
                vocab_size=16,
                artifacts=(TokenizerArtifact(location="tokenizer.json"),),
                special_tokens={
                    "bos": SpecialToken(id=2, content="<bos>"),
                    "eos": SpecialToken(id=1, content="<eos>"),
                    "eos_6": SpecialToken(id=6, content="<turn|>"),
                    "mask": SpecialToken(id=4, content="<mask>"),
                },
            )
        ),
        pipeline=Pipeline(workflow=workflow),
    )


def pair() -> Document:
    """The decoder with a proposer beside it: itself, which is enough for a document."""
    said = Speculative(
        proposer="decoder",
        target="decoder",
        proposal_execution=Chained(
            token_embedding_input="input_ids",
            logits_output="logits",
            folded_carry_output="hidden",
            folded_carry_seed=ValueRef(component="decoder", output="hidden"),
            token_embedding=TokenEmbedding(component="decoder", table="embed", scale=2.5),
        ),
        port_bindings={"target_hidden_context": "input_ids"},
        shared_weights=(SharedWeight(component="decoder", initializer="embed"),),
        vocabulary=IdenticalVocabulary(),
        max_proposal_width=4,
        rollback_state=("kv.4.key",),
    )
    return decoder().model_copy(update={"speculative": said})


def at(data: Any, *path: str | int) -> Any:
    for key in path:
        data = data[key]
    return data


WORKFLOW = ("pipeline", "workflow")
CONTRACT = (*WORKFLOW, "components", "decoder", "ports", "inputs", "input_ids")
GROUP = (*WORKFLOW, "serving", "state_service", "groups", "full_attention")
