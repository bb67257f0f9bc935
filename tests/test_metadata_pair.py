"""The document of a pair: what the worked example of E2B says, derived from the graphs of both."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import checkpoints
from cabochon.dialects import TARGETS
from cabochon.errors import GraphError
from cabochon.gemma4 import read_drafter_config, trace_drafter
from cabochon.metadata import yaml
from cabochon.metadata.document import Chained, Document, Workflow
from cabochon.metadata.drafter import Drafter, drafter_document, read_drafter
from cabochon.metadata.folder import open_drafter, open_pair
from cabochon.metadata.forms import dump
from cabochon.metadata.pair import (
    WIDTH,
    Pair,
    pair_comments,
    pair_document,
    read_embedding,
    served_pair,
    width,
)
from cabochon.recipes import PRECISIONS
from decoders import E2B, decoder
from drafters import imagined
from packages import Packages
from test_metadata_derive import WORKED, without_symbols

TABLE = "model.embed_tokens.weight"
ASSISTANT = {"backbone_hidden_size": 1536, "num_centroids": 2048, "centroid_intermediate_top_k": 32}
ASSISTANT_TEXT = {
    "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256, "vocab_size": 262144,
    "sliding_window": 512, "max_position_embeddings": 131072, "intermediate_size": 512,
    "per_layer_config": {"3": {"head_dim": 512}},
}  # fmt: skip


def embedding(rows: int, hidden: int, scale: float, dtype: int = TensorProto.FLOAT16) -> ir.Model:
    """A token_embedding graph over a table that lies nowhere."""
    table = TensorProto(name=TABLE, data_type=dtype, dims=[rows, hidden], data_location=TensorProto.EXTERNAL)
    for key, value in {
        "location": "target/model.onnx.data",
        "offset": "0",
        "length": str(2 * rows * hidden),
    }.items():
        table.external_data.add(key=key, value=value)
    number = helper.make_tensor("scale", dtype, [], [scale])
    nodes = [
        helper.make_node("Gather", [TABLE, "input_ids"], ["rows"]),
        helper.make_node("Mul", ["rows", "scale"], ["inputs_embeds"]),
    ]
    ends = [
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"])],
        [helper.make_tensor_value_info("inputs_embeds", dtype, ["batch", "sequence", hidden])],
    ]
    graph = helper.make_graph(nodes, "token_embedding", *ends, [table, number])
    return ir.from_proto(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10))


def drafter(target: str = "default", precision: str = "f16", **text: Any) -> Drafter:
    raw = checkpoints.published(checkpoints.tiny_config("assistant")) | ASSISTANT
    raw["text_config"] = {**raw["text_config"], **ASSISTANT_TEXT, **text}
    raw["text_config"].pop("global_head_dim", None)
    config = read_drafter_config(raw)
    return read_drafter(
        trace_drafter(config, imagined(config), TARGETS[target], PRECISIONS[precision]), config, None
    )


def made(target: str = "default") -> Pair:
    from dataclasses import replace

    decoded = replace(decoder(E2B, target=target), name="target", artifact="target/model.onnx")
    scale = float(np.float16(1536**0.5))
    return Pair(decoded, drafter(target), read_embedding(embedding(262144, 1536, scale)), 4)


@pytest.fixture(scope="module")
def e2b() -> Pair:
    return made()


def workflow(document: Document) -> Workflow:
    assert document.pipeline is not None
    return document.pipeline.workflow


def test_the_worked_example_of_e2b_says_the_same(e2b: Pair):
    """All but symbols, and the mask: the drafter's covers what is remembered, the worked one feeds the target's."""
    if not WORKED.is_dir():
        pytest.skip("the worked examples of inference metadata are not beside the project")
    theirs = yaml.read((WORKED / "gemma4-e2b-pair.v1.yaml").read_bytes(), "worked.yaml")
    ours = dump(pair_document(e2b), "v1")
    a, b = ({**d["speculative"]} for d in (ours, theirs))
    assert sorted(a.pop("shared_state")) == sorted(b.pop("shared_state"))
    assert sorted(a.pop("rollback_state")) == sorted(b.pop("rollback_state"))
    assert a == b
    a, b = (document["pipeline"]["workflow"] for document in (ours, theirs))
    for name in ("full_attention", "sliding_attention"):
        found, expected = (w["serving"]["state_service"]["groups"][name] for w in (a, b))
        assert found == expected
    assert {n: without_symbols(c) for n, c in a["state"].items()} == {
        n: without_symbols(c) for n, c in b["state"].items()
    }
    for component in ("target", "assistant"):
        ports, others = (w["components"][component]["ports"] for w in (a, b))
        for way in ("inputs", "outputs"):
            for port, contract in others[way].items():
                assert without_symbols(ports[way][port]) == without_symbols(contract), port
        assert a["components"][component]["implementation"] == b["components"][component]["implementation"]
    assert a["manifest"] == b["manifest"]
    first, others = a["steps"][0], b["steps"][0]
    assert first["outputs"] == others["outputs"] and first["component"] == "assistant"
    assert first["inputs"] == others["inputs"] | {"attention_mask": "request.shared_mask"}
    assert set(a["inputs"]) - set(b["inputs"]) == {"request.shared_mask"} and set(b["inputs"]) <= set(
        a["inputs"]
    )


def test_the_other_form_adds_what_the_worked_one_adds(e2b: Pair):
    found = dump(served_pair(e2b), "v1.8")
    said = found["speculative"]
    assert (said["identity"], said["version"]) == ("onnx-genai.speculative", "1")
    assert said["verification"] == {
        "target_output": {"component": "target", "output": "logits"},
        "accepted_path": {"kind": "runtime", "binding": "accepted_prefix"},
    }
    assert said["proposal_execution"]["token_embedding"]["scale"] == 39.1875  # sqrt(1536) in f16
    assert found["pipeline"]["workflow"]["components"]["token_policy"]["implementation"] == {
        "kind": "binding"
    }
    assert found["package"]["tokenizer"]["special_tokens"]["eos_token_id"] == [1, 6]


def test_v1_has_no_scale_and_the_comments_say_so(e2b: Pair):
    document = pair_document(e2b)
    assert isinstance(document.speculative and document.speculative.proposal_execution, Chained)
    plain = dump(document, "v1")
    assert plain["speculative"]["proposal_execution"]["token_embedding"] == {
        "component": "target",
        "table": TABLE,
    }
    text = yaml.write(plain, pair_comments(document, e2b)).decode()
    assert "target multiplies rows of this table by 39.1875" in text
    assert "Layer 14 of the target." in text and "Layer 13 of the target." in text
    assert "The last 513 real keys are seen: the target's window of 512" in text
    assert "4096 of 262144 tokens are scored: those of the 32 best of 2048 centroids" in text
    assert yaml.read(text.encode(), "x") == yaml.read(yaml.write(plain), "x")


def test_every_comment_stands_above_a_key(e2b: Pair):
    document = pair_document(e2b)
    for path in pair_comments(document, e2b):
        here: Any = dump(document, "v1")
        for key in path:
            here = here[key]


@pytest.mark.parametrize("target", ["default", "cuda", "webgpu"])
def test_the_drafter_owns_nothing_whatever_the_target(target: str):
    pair = made(target)
    found = workflow(pair_document(pair))
    assert not any(
        name.startswith(("present", "past")) for name in found.components["assistant"].ports.outputs
    )
    assert found.serving is not None
    for group in found.serving.state_service.groups.values():
        assert {alias.access for alias in group.ports["assistant"].values()} == {"read_only"}
        assert all(alias.output is None for alias in group.ports["assistant"].values())
        assert group.capabilities.rollback_positions == 4
        assert group.capabilities.snapshot and group.capabilities.fork


def test_a_drafter_alone_is_supplied_with_everything(e2b: Pair):
    found = workflow(drafter_document(e2b.drafter))
    assert set(found.inputs) == {f"request.{name}" for name in e2b.drafter.ports.inputs}
    assert dump(drafter_document(e2b.drafter), "v1")["pipeline"]["workflow"]["manifest"] == {
        "capabilities": ["workflow_ssa", "typed_emit"]
    }
    assert (e2b.drafter.head.scored, e2b.drafter.window, e2b.drafter.backbone) == (4096, 512, 1536)


def test_how_many_are_proposed():
    assert width({"num_assistant_tokens": 6}) == 6
    assert width({}) == width({"num_assistant_tokens": 0}) == width({"num_assistant_tokens": "x"}) == WIDTH


def test_a_look_up_without_its_number_is_none():
    graph = embedding(8, 4, 2.0)
    graph.graph.initializers.pop("scale")
    with pytest.raises(GraphError, match="and 0 numbers; expected a table and its scale"):
        read_embedding(graph)


def test_a_target_without_hidden_states_begins_nothing(e2b: Pair):
    from dataclasses import replace

    ports = e2b.target.ports
    outputs = {name: port for name, port in ports.outputs.items() if not name.startswith("hidden")}
    bare = replace(e2b, target=replace(e2b.target, ports=replace(ports, outputs=outputs)))
    with pytest.raises(GraphError, match="no hidden_states output, which a drafter begins with"):
        pair_document(bare)


@pytest.mark.parametrize("kind", ["full_attention", "sliding_attention"])
def test_a_target_that_remembers_nothing_of_a_kind_has_no_drafter(e2b: Pair, kind: str):
    from dataclasses import replace

    caches = tuple(cache for cache in e2b.target.caches if cache.kind != kind)
    with pytest.raises(GraphError, match=f"no cache of {kind}; expected one, which a drafter reads"):
        pair_document(replace(e2b, target=replace(e2b.target, caches=caches)))


def test_a_built_pair_gives_the_document_that_was_written(packages: Packages):
    for source in ("tiny-pair", "tiny-dense-pair"):
        built: Path = packages(source)
        document = pair_document(open_pair(built))
        assert yaml.write(dump(document, "v1")) == (built / "inference_metadata.yaml").read_bytes()


def test_a_built_drafter_gives_the_document_that_was_written(packages: Packages):
    built: Path = packages("tiny-drafter")
    document = drafter_document(open_drafter(built))
    assert yaml.write(dump(document, "v1")) == (built / "inference_metadata.yaml").read_bytes()


def test_a_graph_that_is_no_drafter(packages: Packages):
    config = read_drafter_config(checkpoints.tiny_config("assistant"))
    graph = ir.from_proto(onnx.load(packages() / "model.onnx", load_external_data=False))
    with pytest.raises(GraphError, match="expected a drafter's"):
        read_drafter(graph, config, None)
