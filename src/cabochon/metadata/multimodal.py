"""A document of the decoder as one of the full package: media become features, and every call embeds its tokens first.

It is the same for one pass and for the loop: where the decoder took token ids, the embedding does, and the decoder
takes what that made. A medium is optional: without it there are no rows of features.
"""

from collections.abc import Iterator, Mapping, Sequence

from cabochon.metadata.derive import contract, requested
from cabochon.metadata.document import (
    AdapterImplementation,
    Branch,
    BranchOutput,
    Component,
    ComponentPorts,
    Document,
    Input,
    Invoke,
    Loop,
    Onnx,
    Pipeline,
    PortRole,
    Step,
    TensorContract,
    Workflow,
)
from cabochon.metadata.document import Sequence as Steps
from cabochon.metadata.full import Full, Medium, Member, features
from cabochon.metadata.media_programs import preprocessing
from cabochon.metadata.ports import Ports
from cabochon.metadata.weights import quantization

__all__ = ["ABSENT", "multimodal", "preprocessor"]

ABSENT = "no_features"  # the component that makes no rows, and the name of its output
_ABIS = {medium: f"onnx-genai.{medium}-preprocess" for medium in ("image", "audio")}
_ROLES: dict[str, PortRole] = {"input_ids": "token_ids", "inputs_embeds": "inputs_embeds"}
_NOTHING = "absent.features"  # the value without rows
_ENCODED = TensorContract(dtype="uint8", shape=("encoded_bytes",))  # a file as it is


def multimodal(document: Document, full: Full) -> Document:
    """`document` is one of `full.decoder`, as if that took token ids."""
    assert document.pipeline is not None
    workflow = document.pipeline.workflow
    changed = {
        "inputs": workflow.inputs | _inputs(full),
        "components": _components(full) | workflow.components,
        "steps": _steps(workflow, full),
    }
    pipeline = Pipeline(workflow=workflow.model_copy(update=changed))
    manifest = pipeline.workflow.manifest.model_copy(
        update={"adapter_abis": {_ABIS[medium]: "1" for medium in full.encoders}}
    )
    pipeline = Pipeline(workflow=pipeline.workflow.model_copy(update={"manifest": manifest}))
    update = {
        "quantization": quantization((full.decoder, *full.members)),
        "preprocessing": preprocessing(full),
        "pipeline": pipeline,
    }
    return document.model_copy(update=update)


def preprocessor(medium: Medium) -> str:
    """The component that makes tensors of a file."""
    return f"{medium}_preprocess"


def _inputs(full: Full) -> dict[str, Input]:
    """A file of each medium, which a request may bring."""
    return {
        f"request.{medium}": requested("media", _ENCODED).model_copy(
            update={"required": False, "present_as": _present(medium)}
        )
        for medium in full.encoders
    }


def _present(medium: Medium) -> str:
    return f"request.{medium}_present"


def _components(full: Full) -> dict[str, Component]:
    found = {preprocessor(medium): _adapter(medium, encoder) for medium, encoder in full.encoders.items()}
    found |= {member.name: _component(member) for member in full.members}
    return found | ({ABSENT: _absent(full)} if len(full.embedding.ports.inputs) > 1 else {})


def _adapter(medium: Medium, encoder: Member) -> Component:
    made = {name: contract(port) for name, port in encoder.ports.inputs.items()}
    return Component(
        implementation=AdapterImplementation(abi=_ABIS[medium], version="1"),
        ports=ComponentPorts(inputs={"encoded": _ENCODED}, outputs=made),
    )


def _component(member: Member) -> Component:
    sides: Ports = member.ports
    inputs = {name: contract(port) for name, port in sides.inputs.items()}
    outputs = {name: contract(port) for name, port in sides.outputs.items()}
    roles: dict[str, PortRole] = {
        name: role for name, role in _ROLES.items() if name in {**inputs, **outputs}
    }
    return Component(
        implementation=Onnx(artifact=member.artifact),
        ports=ComponentPorts(inputs=inputs, outputs=outputs, roles=roles),
    )


def _absent(full: Full) -> Component:
    dtype = full.embedding.ports.outputs["inputs_embeds"].dtype
    rows = TensorContract(dtype=dtype, shape=("rows", full.width))
    return Component(
        implementation=Onnx(artifact="/".join(filter(None, (full.folder, "policies", f"{ABSENT}.onnx")))),
        ports=ComponentPorts(outputs={"features": rows}),
    )


def _steps(workflow: Workflow, full: Full) -> tuple[Step, ...]:
    encoded = tuple(_encoded(full))
    nothing = Invoke(component=ABSENT, outputs={"features": _NOTHING})
    taken = [name for name in full.embedding.ports.inputs if name != "input_ids"]
    seen = dict.fromkeys(taken, _NOTHING) | {
        features(medium): f"{medium}.features" for medium in full.encoders
    }
    first = workflow.steps[0]
    if not isinstance(first, Loop):
        before = (nothing, *encoded) if _NOTHING in seen.values() else encoded
        return (*before, *_embedded(full, workflow.steps, seen))
    before = (nothing, *encoded) if taken else encoded
    changed = {
        "setup": (*before, *_embedded(full, first.setup, seen)),
        "steps": tuple(_embedded(full, first.steps, dict.fromkeys(taken, _NOTHING))),
    }
    return (first.model_copy(update=changed), *workflow.steps[1:])


def _encoded(full: Full) -> Iterator[Branch]:
    """Of each medium its features: those of the file, or no rows where the request brings none."""
    for medium, encoder in full.encoders.items():
        made = {name: f"{medium}.{name}" for name in encoder.ports.inputs}
        seen = Steps(
            steps=(
                Invoke(component=preprocessor(medium), inputs={"encoded": f"request.{medium}"}, outputs=made),
                Invoke(component=encoder.name, inputs=made, outputs={features(medium): f"{medium}.encoded"}),
            )
        )
        yield Branch(
            predicate=_present(medium),
            cases={"true": seen},
            default=Invoke(component=ABSENT, outputs={"features": f"{medium}.absent"}),
            outputs={
                f"{medium}.features": BranchOutput(
                    cases={"true": f"{medium}.encoded"}, default=f"{medium}.absent"
                )
            },
        )


def _embedded(full: Full, steps: Sequence[Step], seen: Mapping[str, str]) -> Iterator[Step]:
    """Before every call of the decoder one of the embedding, with these features."""
    for step in steps:
        if not isinstance(step, Invoke) or step.component != full.decoder.name:
            yield step
            continue
        ids, out = step.inputs["input_ids"], step.outputs["logits"].removesuffix(".logits")
        made = {name: f"{out}.{name}" for name in full.embedding.ports.outputs}
        yield Invoke(component=full.embedding.name, inputs={"input_ids": ids, **seen}, outputs=made)
        fed = {"input_ids": ids, **made}
        rest = {name: value for name, value in step.inputs.items() if name != "input_ids"}
        yield step.model_copy(update={"inputs": {name: fed[name] for name in full.decoder.fed} | rest})
