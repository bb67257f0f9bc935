"""The model of the document: strict, frozen, every mistake with its path."""

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from cabochon.errors import MetadataError
from cabochon.metadata import forms, yaml
from cabochon.metadata.document import Document, RequestAligned, TensorContract
from documents import CONTRACT, GROUP, OTHERS, WORKFLOW, at, decoder, need_others, pair


def put(*path: str | int, value: Any) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        at(data, *path[:-1])[path[-1]] = value

    return change


def drop(*path: str | int) -> Callable[[Any], None]:
    return lambda data: at(data, *path[:-1]).pop(path[-1])


CELL = (*WORKFLOW, "state", "kv.4.key")
MISTAKES: dict[str, tuple[Callable[[Any], None], str, str, str]] = {
    "an unknown key at the top": (put("modle", value=1), "modle", "1", "no such key"),
    "an unknown key inside": (
        put(*CONTRACT, "strides", value=[1]),
        'pipeline.workflow.components.decoder.ports.inputs.input_ids.strides',
        "a sequence of 1",
        "no such key",
    ),
    "a missing key": (
        drop(*CELL, "scope"), 'pipeline.workflow.state["kv.4.key"].scope', "nothing", "it to be there"
    ),
    "a type that YAML could have made": (put("schema_version", value=1.1), "schema_version", "1.1", "a text"),
    "an integer in quotes": (put("model", "vocab_size", value="16"), "model.vocab_size", '"16"', "an integer"),
    "true for a number": (put("model", "vocab_size", value=True), "model.vocab_size", "true", "an integer"),
    "one for true": (put(*GROUP, "reuse", "prefix_reusable", value=1), ".reuse.prefix_reusable", "1", "true or"),
    "too small": (put("model", "vocab_size", value=0), "model.vocab_size", "0", "at least 1"),
    "a wrong word": (
        put(*GROUP, "kind", value="full"), "groups.full_attention.kind", '"full"', "'full_attention', 'sliding"
    ),
    "an element type that is none": (put(*CONTRACT, "dtype", value="int4"), "input_ids.dtype", '"int4"', "int32"),
    "a kind that is none": (
        put(*CONTRACT, "batch_layout", value={"kind": "rows"}), "input_ids.batch_layout", "a mapping",
        "'request_aligned'",
    ),
    "no kind": (put(*CONTRACT, "batch_layout", value={"axis": 0}), "input_ids.batch_layout", "a mapping", "`kind`"),
    "a negative dimension": (put(*CONTRACT, "shape", value=["batch", -1]), "shape[1]", "-1", "at least 0"),
    "an empty symbol": (put(*CONTRACT, "shape", value=[""]), "shape[0]", '""', "a text that is not empty"),
    "a name twice": (
        put(*WORKFLOW, "manifest", "capabilities", value=["a", "a"]), "manifest.capabilities", "a sequence of 2",
        "'a' is there twice",
    ),
    "a mapping for a sequence": (put(*WORKFLOW, "steps", value={}), "workflow.steps", "an empty mapping", "a sequence"),
    "a role without its version": (
        drop(*WORKFLOW, "inputs", "request.input_ids", "role", "version"), 'inputs["request.input_ids"].role',
        "a mapping", "the key `version`",
    ),
    "a step within a step": (
        put(*WORKFLOW, "steps", 0, value={"kind": "sequence", "steps": [{"kind": "emit"}]}),
        "pipeline.workflow.steps[0].steps[0].value", "nothing", "it to be there",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_has_an_address(name: str) -> None:
    change, where, found, expected = MISTAKES[name]
    data = forms.dump(decoder(), "v1")
    change(data)
    with pytest.raises(MetadataError) as raised:
        forms.load(data, "inference_metadata.yaml")
    error = raised.value
    assert error.at.startswith("inference_metadata.yaml: ") and error.at.endswith(where)
    assert error.found == found
    assert expected in error.expected
    assert error.remedy


def test_all_mistakes_at_once_with_lines() -> None:
    text = b"schema_version: v1\nmodel:\n  vocab_size: 0\n  max_sequence_length: many\nextra: 1\n"
    with pytest.raises(MetadataError) as raised:
        forms.read(text, "m.yaml")
    errors = [raised.value, *raised.value.others]
    assert [error.at for error in errors] == [
        "m.yaml:4:3: model.max_sequence_length",
        "m.yaml:3:3: model.vocab_size",
        "m.yaml:5:1: extra",
    ]
    assert "(and 2 more)" in str(raised.value)


@pytest.mark.parametrize("data", [None, [], "text", 3, True])
def test_the_top_is_a_mapping(data: Any) -> None:
    with pytest.raises(MetadataError, match="expected a mapping") as raised:
        forms.load(data, "m.yaml")
    assert raised.value.at == "m.yaml"


def test_parts_are_frozen() -> None:
    contract = TensorContract(
        dtype="float16", shape=("batch", 1, "past", 256), batch_layout=RequestAligned(axis=0)
    )
    assert contract.shape == ("batch", 1, "past", 256) and contract.rank is None
    with pytest.raises(ValidationError):
        contract.dtype = "float32"


def test_only_what_was_said_is_written() -> None:
    contract = TensorContract(dtype="bool", shape=(), batch_layout=RequestAligned(axis=0))
    assert forms.plain(contract) == {
        "dtype": "bool",
        "shape": [],
        "batch_layout": {"kind": "request_aligned", "axis": 0},
    }
    cell = forms.plain(decoder())["pipeline"]["workflow"]["state"]["kv.4.key"]
    assert cell["class"] == "semantic" and "session" not in cell


def test_others_may_add_to_what_the_specification_leaves_open() -> None:
    data = {"schema_version": "v1", "model": {"vocab_size": 3, "theirs": {"a": [1, None]}}}
    assert forms.plain(forms.load(data, "m.yaml")) == data


@pytest.mark.parametrize("document", [decoder(), pair()], ids=["decoder", "pair"])
@pytest.mark.parametrize("dialect", ["v1", "v1.8"])
def test_ours_come_back_from_yaml(document: Document, dialect: str) -> None:
    data = forms.dump(document, dialect)
    read = forms.read(yaml.write(data), "inference_metadata.yaml")
    assert forms.plain(read) == data
    assert forms.dump(read, dialect) == data


def test_documents_of_others_are_read() -> None:
    need_others()
    for path in OTHERS:
        text = path.read_bytes()
        assert forms.plain(forms.read(text, path.name)) == yaml.read(text, path.name), path.name


def test_the_package_is_imported_without_the_model() -> None:
    code = "import cabochon, cabochon.cli.app, sys; print('pydantic' in sys.modules, 'yaml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_a_thousand_mistakes_are_placed_in_one_reading() -> None:
    text = b"schema_version: v1\n" + b"".join(b"wrong_%d: 1\n" % i for i in range(5000))
    before = time.process_time()
    with pytest.raises(MetadataError) as raised:
        forms.read(text, "m.yaml")
    assert raised.value.others[-1].at == "m.yaml:5001:1: wrong_4999"
    assert time.process_time() - before < 5
