"""The written forms: what each must have and must not have, converting, and what gets lost by name."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cabochon.errors import MetadataError
from cabochon.metadata import forms, versions, yaml
from cabochon.metadata.capabilities import capabilities
from cabochon.metadata.document import Document, Emit, Loop, TokenPacked, Workflow
from cabochon.metadata.identity import identity
from documents import CONTRACT, GROUP, OTHERS, SHARED, WORKFLOW, at, decoder, need_others, pair

TOKENS = ("package", "tokenizer", "special_tokens")
OUTPUT = (*WORKFLOW, "outputs", "logits")
CONTENTS = {1: "<eos>", 2: "<bos>", 6: "<turn|>"}


def workflow(document: Document) -> Workflow:
    assert document.pipeline is not None
    return document.pipeline.workflow


@pytest.mark.parametrize(
    "version", [None, "v1", "1", "1.0", "v1.0", *(f"v1.{minor}" for minor in range(1, 9))]
)
def test_known_versions(version: str | None) -> None:
    assert forms.load({"schema_version": version} if version else {}, "m.yaml").schema_version == version


@pytest.mark.parametrize("version", ["v1.9", "v2", "2.0", "v99", "", "v1.", "V1", 1, 1.0, 1.1, True, ["v1"]])
def test_unknown_versions(version: Any) -> None:
    with pytest.raises(MetadataError) as raised:
        forms.read(yaml.write({"model": {}, "schema_version": version}), "m.yaml")
    assert raised.value.at == "m.yaml:2:1: schema_version"
    assert raised.value.expected in ("v1 to v1.8, as a text", "a text")


def test_v1_says_ranks_and_capabilities() -> None:
    data = forms.dump(pair(), "v1")
    assert data["schema_version"] == "v1"
    assert at(data, *CONTRACT) == {
        "dtype": "int64",
        "rank": 2,
        "shape": ["batch", "sequence"],
        "batch_layout": {"kind": "request_aligned", "axis": 0},
    }
    assert at(data, *WORKFLOW, "manifest") == {
        "capabilities": ["workflow_ssa", "typed_emit", "serving_service_contract"]
    }
    assert "publication_mode" not in at(data, *WORKFLOW) and "family" not in at(data, *OUTPUT)
    assert at(data, *TOKENS)["eos"] == {"id": 1, "content": "<eos>"}
    assert data["speculative"]["shared_weights"] == ["embed"]
    assert not {"identity", "version", "verification"} & set(data["speculative"])
    assert "scale" not in data["speculative"]["proposal_execution"]["token_embedding"]


def test_v1_8_says_neither() -> None:
    data = forms.dump(pair(), "v1.8")
    assert data["schema_version"] == "v1.8"
    assert at(data, *CONTRACT) == {
        "dtype": "int64",
        "shape": ["batch", "sequence"],
        "batch_layout": {"kind": "request_aligned", "axis": 0},
    }
    assert at(data, *WORKFLOW, "manifest") == {}
    assert at(data, *WORKFLOW, "publication_mode") == "commit_only"
    assert at(data, *OUTPUT, "family") == {"kind": "materialized"}
    assert at(data, *TOKENS) == {"bos_token_id": 2, "eos_token_id": [1, 6]}
    said = data["speculative"]
    assert (said["identity"], said["version"]) == ("onnx-genai.speculative", "1")
    assert said["verification"] == {
        "target_output": {"component": "decoder", "output": "logits"},
        "accepted_path": {"kind": "runtime", "binding": "accepted_prefix"},
    }
    assert said["shared_weights"] == [{"component": "decoder", "initializer": "embed"}]
    assert said["proposal_execution"]["token_embedding"]["scale"] == 2.5


def test_what_is_lost_is_remarked_on() -> None:
    special = "package.tokenizer.special_tokens"
    assert forms.convert(pair(), "v1.8").remarks == (
        f"{special}: the contents of the tokens are left out: v1.8 has ids alone",
        f"{special}: mask are left out: v1.8 has no such roles",
    )
    assert forms.convert(pair(), "v1").remarks == (
        "speculative.proposal_execution.token_embedding.scale: 2.5 is left out: v1 has no place for it",
    )
    data = forms.dump(pair(), "v1")
    data["required_capabilities"] = ["kv_cache"]
    at(data, *WORKFLOW, "manifest")["capabilities"].append("their_own")
    data["model"]["runtime_configurable"] = {"continuous_batching": True}
    converted = forms.convert(forms.load(data, "m.yaml"), "v1.8")
    assert [remark.partition(":")[0] for remark in converted.remarks] == [
        "model.runtime_configurable.continuous_batching",
        "package.tokenizer.special_tokens",
        "package.tokenizer.special_tokens",
        "pipeline.workflow.manifest.capabilities",
        "speculative.proposal_execution.token_embedding.scale",
        "required_capabilities",
    ]


def test_the_tokens_that_end_are_those_of_the_package() -> None:
    data = forms.plain(forms.convert(decoder(), "v1.8", ends=(1, 9)).document)
    assert at(data, *TOKENS) == {"bos_token_id": 2, "eos_token_id": [1, 9]}


@pytest.mark.parametrize("document", [decoder(), pair()], ids=["decoder", "pair"])
def test_there_and_back(document: Document) -> None:
    there = forms.load(forms.dump(document, "v1.8"), "m.yaml")
    back = forms.plain(forms.convert(there, "v1", contents=CONTENTS).document)
    expected = forms.dump(document, "v1")
    del at(expected, *TOKENS)["mask"]
    assert identity(back) == identity(expected)
    again = forms.dump(forms.load(expected, "m.yaml"), "v1.8")
    if document.speculative:
        at(again, "speculative", "proposal_execution", "token_embedding")["scale"] = 2.5
    assert identity(again) == identity(forms.dump(document, "v1.8"))


def test_contents_must_be_known() -> None:
    there = forms.load(forms.dump(decoder(), "v1.8"), "m.yaml")
    with pytest.raises(MetadataError, match=r"special token 6 \(eos_6\) without a content") as raised:
        forms.convert(there, "v1", contents={1: "<eos>", 2: "<bos>"}, at="m.yaml")
    assert raised.value.at == "m.yaml: package.tokenizer.special_tokens"


def test_unknown_shapes() -> None:
    data = forms.dump(decoder(), "v1")
    del at(data, *CONTRACT)["shape"]
    there = forms.dump(forms.load(data, "m.yaml"), "v1.8")
    assert at(there, *CONTRACT)["shape"] == ["Any", "Any"]
    back = forms.plain(forms.convert(forms.load(there, "m.yaml"), "v1", contents=CONTENTS).document)
    assert at(back, *CONTRACT) == at(data, *CONTRACT)


def test_a_rank_that_the_shape_denies() -> None:
    data = forms.dump(decoder(), "v1")
    at(data, *CONTRACT)["rank"] = 3
    document = forms.load(data, "m.yaml")
    assert at(forms.dump(document, "v1"), *CONTRACT)["rank"] == 3
    with pytest.raises(MetadataError, match="3; expected 2, as the shape has") as raised:
        forms.dump(document, "v1.8")
    assert raised.value.at == "pipeline.workflow.components.decoder.ports.inputs.input_ids.rank"


def test_packed_tokens() -> None:
    data = forms.dump(decoder(), "v1")
    at(data, *CONTRACT)["batch_layout"] = {"kind": "token_packed", "axis": 0, "offsets": "o", "owner": "w"}
    there = forms.dump(forms.load(data, "m.yaml"), "v1.8")
    levels = {"kind": "token_packed", "axis": 0, "levels": [{"offsets": "o", "owner": "w"}]}
    assert at(there, *CONTRACT)["batch_layout"] == levels
    layout = (
        workflow(forms.load(there, "m.yaml")).components["decoder"].ports.inputs["input_ids"].batch_layout
    )
    assert isinstance(layout, TokenPacked) and layout.offsets is None


def test_events() -> None:
    data = forms.dump(decoder(), "v1")
    at(data, *WORKFLOW, "steps")[1]["mode"] = "event"
    assert at(forms.dump(forms.load(data, "m.yaml"), "v1.8"), *OUTPUT)["family"] == {"kind": "events"}


# What one version alone can say: path, value, the versions that take it.
ONLY: dict[str, tuple[tuple[str | int, ...], Any, set[int]]] = {
    "required_capabilities": (("required_capabilities",), ["a"], {0}),
    "model.io": (("model", "io"), {"a": 1}, set()),
    "continuous batching": (("model", "runtime_configurable"), {"continuous_batching": True}, {0}),
    "padding": ((*CONTRACT, "padding"), [{"dimension": 1, "valid_lengths": "n"}], set(range(1, 9))),
    "batch capacity": ((*WORKFLOW, "components", "decoder", "batch_capacity"), {"budgets": 1}, set(range(1, 9))),
    "video": (("preprocessing",), {"video": {"outputs": []}}, set(range(1, 9))),
    "ids": (TOKENS, {"eos_token_id": [1]}, set(range(2, 9))),
    "contents": (TOKENS, {"eos": {"id": 1, "content": "x"}}, {0}),
    "eos ids as an input": (
        (*WORKFLOW, "inputs", "request.input_ids", "role", "role"), "eos_token_ids", set(range(2, 9)),
    ),
    "tools": (("package", "tool_protocol"), {"identity": "a", "version": "1"}, set(range(3, 9))),
    "a stream": ((*WORKFLOW, "steps", 1, "stream"), "s", set(range(5, 9))),
    "compressed": ((*GROUP, "kind"), "compressed_attention", {8}),
    "properties": ((*GROUP, "properties"), {"kind": "x"}, {8}),
    "batch invariance": (
        ("profiles",), {"p": {"kind": "embedding", "version": "1", "batch_invariance": "row_independent"}}, {0},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONLY)
def test_gates(name: str) -> None:
    path, value, known = ONLY[name]
    data = forms.dump(decoder(), "v1")
    at(data, *path[:-1])[path[-1]] = value
    document = forms.load(data, "m.yaml")
    for minor in range(9):
        found = [p for p in versions.check(document, versions.name(minor)) if p.path[: len(path)] == path]
        assert bool(found) == (minor not in known), (minor, found)
    assert all(problem.expected for problem in versions.check(document, "v1.4"))


def test_speculation_came_twice() -> None:
    data = forms.dump(pair(), "v1")
    document = forms.load(data, "m.yaml")
    for minor in range(9):
        found = {p.path for p in versions.check(document, versions.name(minor)) if p.path[0] == "speculative"}
        if minor == 0:
            assert not found
        elif minor < 6:
            assert found == {("speculative",), ("speculative", "shared_weights")}
        else:
            missing = ("identity", "version", "verification", "shared_weights")
            assert found == {("speculative", key) for key in missing}


def test_what_a_version_lacks_is_named() -> None:
    data = forms.dump(decoder(), "v1")
    del at(data, *WORKFLOW, "manifest")["capabilities"], at(data, *CONTRACT)["rank"]
    found = versions.check(forms.load(data, "m.yaml"))
    assert [(p.path, p.found, p.expected) for p in found] == [
        ((*WORKFLOW, "manifest", "capabilities"), "nothing", "it to be there in v1"),
        ((*CONTRACT, "rank"), "nothing", "it to be there in v1"),
    ]


def test_a_loop_that_ends_with_generation_needs_its_tokens() -> None:
    data = forms.dump(decoder(), "v1.8")
    steps = at(data, *WORKFLOW)["steps"]
    at(data, *WORKFLOW)["steps"] = [
        {
            "kind": "loop",
            "steps": steps,
            "continue_when": "a",
            "max_iterations": "n",
            "termination": "generation_eos",
        }
    ]
    assert versions.check(forms.load(data, "m.yaml")) == []
    del at(data, *TOKENS)["eos_token_id"]
    (found,) = versions.check(forms.load(data, "m.yaml"))
    assert found.path == (*TOKENS, "eos_token_id") and "pipeline.workflow.steps[0]" in found.expected


REFUSED = {
    "provisional": ((*WORKFLOW, "publication_mode"), "provisional_revisions"),
    "revisions": ((*OUTPUT, "family"), {"kind": "revisions", "version": "1"}),
    "padding": ((*CONTRACT, "padding"), [{"dimension": 1, "valid_lengths": "n"}]),
    "tools": (("package", "tool_protocol"), {"identity": "a", "version": "1"}),
    "stream": ((*WORKFLOW, "steps", 1, "stream"), "s"),
    "two levels": (
        (*CONTRACT, "batch_layout"),
        {"kind": "token_packed", "axis": 0, "levels": [{"offsets": "o", "owner": "w"}] * 2},
    ),
    "a tree": (
        ("speculative", "proposal_execution"),
        {"kind": "candidate_tree", "candidate_tokens": "c", "topology": {"kind": "x"}},
    ),
    "another output verified": (
        ("speculative", "verification"),
        {
            "target_output": {"component": "decoder", "output": "hidden"},
            "accepted_path": {"kind": "runtime", "binding": "accepted_prefix"},
        },
    ),
    "another identity": (("speculative", "identity"), "theirs"),
    "target bindings": (("speculative", "target_port_bindings"), {"a": "b"}),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_v1_cannot_say(name: str) -> None:
    path, value = REFUSED[name]
    data = forms.dump(pair(), "v1.8")
    at(data, *path[:-1])[path[-1]] = value
    document = forms.load(data, "m.yaml")
    assert versions.check(document) == []
    with pytest.raises(MetadataError) as raised:
        forms.convert(document, "v1", contents=CONTENTS)
    at_all = [raised.value.at, *(error.at for error in raised.value.others)]
    assert any(where.startswith(versions_path(path)) for where in at_all)


def versions_path(path: tuple[str | int, ...]) -> str:
    from cabochon.metadata.addresses import dotted

    return dotted(path)


def test_v1_8_wants_to_know_what_is_verified() -> None:
    data = forms.dump(pair(), "v1")
    del at(data, *WORKFLOW, "components", "decoder", "ports", "roles")["logits"]
    with pytest.raises(MetadataError) as raised:
        forms.dump(forms.load(data, "m.yaml"), "v1.8")
    assert raised.value.at == "speculative.verification"


def test_capabilities() -> None:
    document = decoder()
    flow = workflow(document)
    assert capabilities(flow) == ("workflow_ssa", "typed_emit", "serving_service_contract")
    loop = Loop(steps=flow.steps, continue_when="a", max_iterations="n")
    looped = flow.model_copy(update={"steps": (loop,)})
    assert capabilities(looped) == (
        "workflow_ssa",
        "linear_effects",
        "nested_control_flow",
        "typed_emit",
        "serving_service_contract",
    )
    events = flow.model_copy(
        update={"steps": (Emit(value="a", output="logits", mode="event", valid_length="n"),), "serving": None}
    )
    assert capabilities(events) == ("workflow_ssa", "typed_emit", "streaming_emit", "emit_valid_length")


def test_capabilities_of_others_are_those_they_list() -> None:
    need_others()
    for path in OTHERS:
        flow = workflow(forms.read(path.read_bytes(), path.name))
        if flow.manifest.capabilities is not None:
            assert set(flow.manifest.capabilities) == set(capabilities(flow)), path.name


def test_documents_of_others_are_of_their_version() -> None:
    need_others()
    for path in OTHERS:
        assert versions.check(forms.read(path.read_bytes(), path.name)) == [], path.name


@pytest.mark.parametrize("name", ["decoder", "pair"])
def test_the_worked_documents_convert_into_each_other(name: str) -> None:
    need_others()
    old, new = (
        yaml.read((SHARED / "worked" / f"gemma4-e2b-{name}.{dialect}.yaml").read_bytes(), "m.yaml")
        for dialect in ("v1", "v1.8")
    )
    made = forms.dump(forms.load(old, "m.yaml"), "v1.8")
    for fact in ("algorithm", "byte_level"):  # allowed in v1.8, and left out in the worked documents
        made["package"]["tokenizer"].pop(fact)
    if name == "pair":  # v1 cannot know these
        new["speculative"]["proposal_execution"]["token_embedding"].pop("scale")
        new["pipeline"]["workflow"]["components"].pop("token_policy")
    assert identity(made) == identity(new)


def paths(data: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    children = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(deep for key, child in children for deep in paths(child, (*path, key)))]


GOOD = [forms.dump(document, dialect) for document in (decoder(), pair()) for dialect in ("v1", "v1.8")]
junk = (
    st.sampled_from(
        [None, True, 0, -1, 2**63, 1.5, "", "kind", "v1", "request_aligned", [], {}, [[]], {"kind": 1}]
    )
    | st.text(max_size=5)
    | st.dictionaries(st.sampled_from(["kind", "axis", "steps", "x"]), st.integers(-9, 9), max_size=3)
)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_mutated_document_is_read_or_refused_with_an_address(data: st.DataObject) -> None:
    good = yaml.read(yaml.write(data.draw(st.sampled_from(GOOD))), "m.yaml")
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(paths(good)[1:] or [("x",)]))
        parent = at(good, *path[:-1])
        action = data.draw(st.sampled_from(["replace", "drop", "add"]))
        if action == "drop":
            del parent[path[-1]]
        elif action == "add" and isinstance(parent, dict):
            parent[data.draw(st.text(min_size=1, max_size=4))] = data.draw(junk)
        else:
            parent[path[-1]] = data.draw(junk)
    text = yaml.write(good)
    try:
        document = forms.read(text, "m.yaml")
    except MetadataError as error:
        assert all(
            one.at.startswith("m.yaml:") and one.found and one.expected for one in (error, *error.others)
        )
        return
    assert all(problem.path for problem in versions.check(document))
    for dialect in versions.DIALECTS:
        try:
            assert forms.load(forms.dump(document, dialect), "m.yaml")
        except MetadataError as error:
            assert error.at and error.found


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_a_mutated_text_is_read_or_refused_with_an_address(data: st.DataObject) -> None:
    text = bytearray(yaml.write(data.draw(st.sampled_from(GOOD))))
    for _ in range(data.draw(st.integers(1, 4))):
        i = data.draw(st.integers(0, len(text) - 1))
        text[i : i + data.draw(st.integers(0, 3))] = data.draw(
            st.binary(max_size=3) | st.sampled_from([b"&a ", b"- ", b"{"])
        )
    try:
        forms.read(bytes(text), "m.yaml")
    except MetadataError as error:
        assert error.at.startswith("m.yaml:") and error.found
