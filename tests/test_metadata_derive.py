"""The canonical document: every statement is the graph's, the config's or the tokenizer's."""

from pathlib import Path
from typing import Any

import pytest

import checkpoints
from cabochon.errors import GraphError, PackageError
from cabochon.metadata import yaml
from cabochon.metadata.decoder import Decoder, read_decoder
from cabochon.metadata.derive import decoder_document
from cabochon.metadata.document import Document, Group, Workflow
from cabochon.metadata.forms import dump
from cabochon.metadata.served import served_document
from decoders import E2B, decoder

WORKED = Path(__file__).parents[2] / "shared" / "data" / "inference-metadata" / "worked"


def workflow(document: Document) -> Workflow:
    assert document.pipeline is not None
    return document.pipeline.workflow


def served(document: Document) -> dict[str, Group]:
    serving = workflow(document).serving
    assert serving is not None
    return serving.state_service.groups


def layers(group: Group) -> list[int | None]:
    return sorted({alias.layer for alias in group.ports["decoder"].values() if alias.layer is not None})


@pytest.fixture(scope="module")
def e2b() -> Decoder:
    return decoder(E2B)


def test_e2b_has_fifteen_owners_in_two_groups(e2b: Decoder):
    document = decoder_document(e2b)
    groups = served(document)
    assert list(groups) == ["sliding_attention", "full_attention"]
    assert layers(groups["full_attention"]) == [4, 9, 14]
    assert layers(groups["sliding_attention"]) == [0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12, 13]
    assert len(workflow(document).state) == 30
    assert groups["sliding_attention"].reuse.evictable_prefix
    assert not groups["full_attention"].reuse.evictable_prefix


def test_e2b_has_its_head_sizes_on_the_ports(e2b: Decoder):
    ports = workflow(decoder_document(e2b)).components["decoder"].ports
    size = {i: 512 if i in (4, 9, 14) else 256 for i in range(15)}
    for i, wide in size.items():
        for part in ("key", "value"):
            past = "past_sequence" if wide == 512 else "sliding_past_sequence"
            present = past.replace("past", "present")
            assert ports.inputs[f"past_key_values.{i}.{part}"].shape == ("batch", 1, past, wide)
            assert ports.outputs[f"present.{i}.{part}"].shape == ("batch", 1, present, wide)
    assert ports.outputs["logits"].shape == ("batch", "kept", 262144)
    assert ports.roles["hidden_states.34"] == "hidden_states"
    assert decoder_document(e2b).model is not None
    assert decoder_document(e2b).model.attention is None  # one head size would be a lie


def test_the_ports_are_those_of_the_graph(e2b: Decoder):
    component = workflow(decoder_document(e2b)).components["decoder"]
    for said, ports in (
        (component.ports.inputs, e2b.ports.inputs),
        (component.ports.outputs, e2b.ports.outputs),
    ):
        found = {name: (c.dtype, c.shape, c.optional) for name, c in said.items()}
        assert found == {name: (p.dtype, p.shape, p.optional) for name, p in ports.items()}
    assert component.ports.inputs["logits_to_keep"].optional


@pytest.mark.parametrize(
    ("target", "aliasing"),
    [
        ("default", "forbidden"),
        ("onnx-standard", "forbidden"),
        ("cuda", "permitted"),
        ("webgpu", "permitted"),
    ],
)
def test_one_buffer_only_where_the_graph_writes_into_it(target: str, aliasing: str):
    groups = served(decoder_document(decoder(target=target)))
    assert {group.aliasing for group in groups.values()} == {aliasing}


@pytest.mark.parametrize("precision", ["f32", "f16", "bf16"])
def test_types_are_the_packages(precision: str):
    ports = workflow(decoder_document(decoder(precision=precision))).components["decoder"].ports
    wide = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}[precision]
    types = {name: contract.dtype for name, contract in ports.inputs.items()}
    assert types.pop("input_ids") == types.pop("attention_mask") == types.pop("logits_to_keep") == "int64"
    assert set(types.values()) == {ports.outputs["logits"].dtype} == {wide}


def test_special_tokens_have_the_names_of_the_tokenizer():
    document = decoder_document(decoder())
    tokenizer = document.package and document.package.tokenizer
    assert tokenizer
    assert isinstance(tokenizer.special_tokens, dict)
    said = {name: (token.id, token.content) for name, token in tokenizer.special_tokens.items()}
    assert said["bos"] == (2, "<bos>")
    assert said["eos"] == (1, "<eos>")
    assert said["eot"] == (6, "<turn|>")
    assert (tokenizer.algorithm, tokenizer.byte_level) == ("bpe", False)


def test_an_end_token_without_a_name_gets_one():
    found = decoder(eot_token=None).vocabulary
    assert found is not None
    assert (found.special["eos_6"].id, found.special["eos_6"].content) == (6, "<turn|>")
    assert "eot" not in found.special
    assert found.ends == (1, 6)


def test_without_a_tokenizer_nothing_is_said_of_tokens():
    bare = decoder(tokens=None)
    assert decoder_document(bare).package is None
    with pytest.raises(PackageError, match="names no end token"):
        served_document(bare)


def test_a_tokenizer_that_is_none(tmp_path: Path):
    folder = checkpoints.copy(tmp_path / "broken")
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(PackageError, match="not a tokenizer"):
        decoder(tokens=folder)


def test_a_decoder_without_one_of_its_presents(e2b: Decoder):
    from cabochon.dialects import TARGETS
    from cabochon.gemma4 import read_text_config, trace_text
    from cabochon.recipes import PRECISIONS
    from graphs import imagined

    config = read_text_config(checkpoints.tiny_config("text"))
    model = trace_text(config, imagined(config), TARGETS["default"], PRECISIONS["f16"])
    model.graph.outputs.remove(next(v for v in model.graph.outputs if v.name == "present.3.value"))
    with pytest.raises(GraphError, match=r"present\.3\.value"):
        read_decoder(model, config, None, {})


@pytest.mark.parametrize("port", ["input_ids", "attention_mask", "logits"])
def test_a_graph_that_is_no_decoder(port: str):
    import onnx_ir as ir

    from cabochon.gemma4 import read_text_config

    def value(name: str) -> ir.Value:
        return ir.Value(name=name, shape=ir.Shape([1]), type=ir.TensorType(ir.DataType.FLOAT))

    names = {"input_ids", "attention_mask", "past_key_values.0.key"} - {port}
    made = {"present.0.key", "logits"} - {port}
    graph = ir.Graph(
        [value(name) for name in sorted(names)], [value(name) for name in sorted(made)], nodes=[]
    )
    config = read_text_config(checkpoints.tiny_config("text"))
    with pytest.raises(GraphError, match="there is no such port; expected a decoder's") as caught:
        read_decoder(ir.Model(graph, ir_version=10), config, None, {})
    assert caught.value.at == port
    graph.inputs.append(value(port)) if port != "logits" else graph.outputs.append(value(port))
    with pytest.raises(GraphError, match=r"its shape is \[1\]; expected \[batch, heads, positions, size\]"):
        read_decoder(ir.Model(graph, ir_version=10), config, None, {})


def test_the_document_carries_no_hash(e2b: Decoder):
    text = yaml.write(dump(decoder_document(e2b), "v1")).decode()
    assert not any(word in text for word in ("sha256", "hash", "fingerprint", "digest"))


def test_the_worked_example_of_e2b_says_the_same(e2b: Decoder):
    """Groups, aliases, cells and cache ports; only the symbols are ours: each kind of cache has a length of its own."""
    if not WORKED.is_dir():
        pytest.skip("the worked examples of inference metadata are not beside the project")
    theirs = yaml.read((WORKED / "gemma4-e2b-decoder.v1.yaml").read_bytes(), "worked.yaml")
    ours = dump(decoder_document(e2b), "v1")
    a, b = (document["pipeline"]["workflow"] for document in (ours, theirs))
    assert set(a["state"]) == set(b["state"])
    for name, cell in b["state"].items():
        assert without_symbols(a["state"][name]) == without_symbols(cell)
    found, expected = (w["serving"]["state_service"]["groups"] for w in (a, b))
    assert found == expected
    ports, others = (w["components"]["decoder"]["ports"] for w in (a, b))
    for way in ("inputs", "outputs"):
        for name, contract in others[way].items():
            assert without_symbols(ports[way][name]) == without_symbols(contract), name
    assert set(ports["inputs"]) - set(others["inputs"]) == {"logits_to_keep"}
    assert set(ports["outputs"]) == set(others["outputs"])
    assert ports["roles"] == others["roles"]
    assert a["manifest"] == b["manifest"]
    assert ours["model"] == theirs["model"]


def without_symbols(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: [d if isinstance(d, int) else "" for d in child]
            if key == "shape"
            else without_symbols(child)
            for key, child in value.items()
        }
    return value
