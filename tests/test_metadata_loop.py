"""The loop as documents: ours over policy graphs, and the one that another runtime drives."""

from typing import Any

import pytest

from cabochon.metadata.decoder import Decoder
from cabochon.metadata.document import Document, Invoke, Loop, SpecialTokenIds
from cabochon.metadata.forms import dump
from cabochon.metadata.loop import loop_document
from cabochon.metadata.policies import policies
from cabochon.metadata.ports import read
from cabochon.metadata.served import served_document
from cabochon.metadata.versions import check
from decoders import E2B, MINIATURE, decoder


def loop(held: Decoder) -> Document:
    graphs = policies(held.ports, held.properties["cabochon.mask"])
    return loop_document(held, {name: read(graph) for name, graph in graphs.items()})


def turns(document: Document) -> Loop:
    assert document.pipeline is not None
    (step,) = document.pipeline.workflow.steps
    assert isinstance(step, Loop)
    return step


@pytest.mark.parametrize("config", [None, E2B])
@pytest.mark.parametrize("form", ["loop", "served"])
def test_every_value_is_made_before_it_is_used(form: str, config: dict[str, Any] | None):
    held = decoder(config)
    document = loop(held) if form == "loop" else served_document(held)
    assert document.pipeline is not None
    workflow = document.pipeline.workflow
    known = set(workflow.inputs)
    step = turns(document)
    for invoke in step.setup:
        assert isinstance(invoke, Invoke)
        assert set(invoke.inputs.values()) <= known
        assert not known & set(invoke.outputs.values())
        known |= set(invoke.outputs.values())
    assert {cell.initializer for cell in workflow.state.values()} <= known
    known |= set(workflow.state) | ({step.iteration.value} if step.iteration else set())
    for each in step.steps:
        if isinstance(each, Invoke):
            assert set(each.inputs.values()) <= known, each.component
            assert not known & set(each.outputs.values())
            known |= set(each.outputs.values())
        else:
            assert {each.value, each.when} <= known
    carried = {carry.cell: carry.next for carry in step.carried}
    assert set(carried.values()) <= known
    assert {step.continue_when, step.max_iterations} <= known
    assert set(carried) == set(workflow.state)


@pytest.mark.parametrize("form", ["loop", "served"])
def test_every_call_binds_every_port(form: str):
    """All inputs that must be bound are, and no other."""
    held = decoder()
    document = loop(held) if form == "loop" else served_document(held)
    assert document.pipeline is not None
    components = document.pipeline.workflow.components
    for step in (*turns(document).setup, *turns(document).steps):
        if isinstance(step, Invoke):
            ports = components[step.component].ports
            needed = {name for name, port in ports.inputs.items() if not port.optional}
            assert needed <= set(step.inputs) <= set(ports.inputs), step.component
            assert set(step.outputs) <= set(ports.outputs)


def test_the_forms_are_what_their_versions_allow():
    held = decoder()
    for document, dialect in ((loop(held), "v1"), (served_document(held), "v1.8")):
        from cabochon.metadata.forms import load

        assert check(load(dump(document, dialect), "document.yaml")) == []


def test_end_tokens_are_the_union_of_the_files():
    held = decoder(tokens=MINIATURE)
    assert loop(held).pipeline is not None
    eos = loop(held).pipeline.workflow.inputs["package.eos_ids"]
    assert (eos.contract.shape, eos.default) == ((1, 3), (1, 6, 18))
    package = served_document(held).package
    assert package and package.tokenizer
    assert isinstance(package.tokenizer.special_tokens, SpecialTokenIds)
    assert package.tokenizer.special_tokens.eos_token_id == (1, 6, 18)
    assert package.tokenizer.special_tokens.bos_token_id == 2


def test_without_end_tokens_no_id_ends_the_loop():
    inputs = loop(decoder(tokens=None)).pipeline.workflow.inputs  # type: ignore[union-attr]
    assert inputs["package.eos_ids"].default == (-1,)  # no token has it
    assert inputs["request.eos_lengths"].default == 0


def test_sampling_is_the_authors_unless_asked_otherwise():
    document = loop(decoder(tokens=MINIATURE))
    assert document.pipeline is not None
    inputs = document.pipeline.workflow.inputs
    defaults = {
        name: inputs[f"request.{name}"].default for name in ("temperature", "top_k", "top_p", "min_p")
    }
    assert defaults == {"temperature": 1.0, "top_k": 64, "top_p": 0.95, "min_p": 0.0}
    assert document.generation is not None
    assert document.generation.overrides["top_k"].input == "request.top_k"
    greedy = loop(decoder(tokens=None)).pipeline
    assert greedy is not None
    assert greedy.workflow.inputs["request.temperature"].default == 0.0


def test_caches_grow_up_to_the_positions_of_the_model():
    document = loop(decoder(E2B))
    assert document.pipeline is not None
    workflow = document.pipeline.workflow
    assert workflow.inputs["package.max_context"].default == 131072
    cell = workflow.state["kv.14.key"]
    assert (cell.recurrence.kind, cell.service_group) == ("bounded", "full_attention")
