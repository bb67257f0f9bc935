"""Pairs: both packages in one, what ties them, what is refused."""

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from bench.checkpoints import ROOT, header
from bench.watch import python
from ruamel.yaml import YAML

import cabochon
import checkpoints
import drafters
from cabochon import sums
from cabochon.checkpoint import open_checkpoint
from cabochon.errors import GraphError, PackageError, UnsupportedError
from cabochon.gemma4.layout import layout
from cabochon.metadata import forms
from cabochon.metadata.folder import convert_package
from cabochon.package.token_embedding import token_embedding
from checkpoints import TINY, hub_cache
from packages import MINIATURE, Packages

TARGET, ASSISTANT = TINY / "text", TINY / "assistant"
FILES = {
    "METADATA_STATUS.md", "README.md", "SHA256SUMS", "SOURCE_LICENSE.md", "assistant_generation_config.json",
    "chat_template.jinja", "component_contract.yaml", "config.json", "evidence/validation.json",
    "generation_config.json", "inference_metadata.annotated.yaml", "inference_metadata.yaml", "model.onnx",
    "model.onnx.data", "provenance.json", "runtime-requirements.txt", "token_embedding.onnx", "tokenizer.json",
    "tokenizer_config.json",
}  # fmt: skip
NUMPY = {"f32": np.float32, "f16": np.float16}
TABLE = "model.embed_tokens.weight"


def contents(package: Path) -> dict[str, bytes]:
    found = (path for path in package.rglob("*") if path.is_file())
    return {path.relative_to(package).as_posix(): path.read_bytes() for path in found}


@pytest.fixture
def pair(packages: Packages) -> Path:
    return packages("tiny-pair")


def test_a_pair_is_complete_and_summed(pair: Path):
    found = set(contents(pair))
    assert {name for name in found if not name.startswith("target/")} == FILES
    assert set(sums.read(pair)) == found - {sums.SUMS} and sums.verify(pair) == []
    assert sums.verify(pair / "target") == []
    named = re.findall(r"^\| `([^`]+)` \|", (pair / "README.md").read_text(), re.M)
    assert set(named) == FILES - {"README.md"} | {"target/"}


def test_the_files_are_the_ones_of_whom_they_speak(pair: Path):
    assert (pair / "config.json").read_bytes() == (ASSISTANT / "config.json").read_bytes()
    said = (pair / "assistant_generation_config.json").read_bytes()
    assert said == (ASSISTANT / "generation_config.json").read_bytes()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        assert (pair / name).read_bytes() == (TARGET / name).read_bytes()


def test_both_are_the_packages_that_they_are_alone(packages: Packages, pair: Path):
    """The target file by file; of the drafter the graph and its weights."""
    assert contents(pair / "target") == contents(packages("tiny"))
    for name in ("model.onnx", "model.onnx.data"):
        assert (pair / name).read_bytes() == (packages("tiny-drafter") / name).read_bytes()


def test_a_pair_of_two_checkpoints_is_the_same_graphs(packages: Packages, tmp_path: Path):
    built = cabochon.build(TARGET, tmp_path / "p", assistant=ASSISTANT, precision="f32", license="apache-2.0")
    found, expected = contents(built.path), contents(packages("tiny-pair"))
    assert set(found) == set(expected)
    differ = {name for name in found if found[name] != expected[name]}
    assert differ == set() and built.nbytes == sum(map(len, found.values()))
    model = cabochon.load(built.path / "target", threads=1)  # valid and loadable by itself
    assert model.generate("a", max_new_tokens=2).text is not None


@pytest.mark.parametrize(("source", "target", "precision", "warnings"), [
    ("tiny-pair", "default", "f32", set()), ("tiny-dense-pair", "onnx-standard", "f16", set()),
    ("miniature-pair", "default", "f16", set()), ("tiny-pair", "webgpu", "f16", set()),
    ("tiny-pair", "cuda", "f32", {"RUN002"}),
])  # fmt: skip
def test_every_rule_passes(packages: Packages, source: str, target: str, precision: str, warnings: set[str]):
    verdict = cabochon.validate(packages(source, target, precision), execute=True)
    assert not verdict.errors and {finding.code for finding in verdict.warnings} == warnings
    assert {"STA004", "ATT003", "HON001", "SPC008", "BEH015"} <= set(verdict.rules)


REBUILD = """
    import sys, cabochon
    cabochon.build(sys.argv[1], sys.argv[3], assistant=sys.argv[2], license="apache-2.0", target="cuda")
"""


def test_rebuilds_are_byte_identical(packages: Packages, tmp_path: Path):
    """From a built target here, and from its checkpoint in another process, with other hashes, in another time zone."""
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(REBUILD),
        str(TARGET),
        str(ASSISTANT),
        str(tmp_path / "p"),
    ]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": "1", "TZ": "UTC+9"})
    assert contents(tmp_path / "p") == contents(packages("tiny-pair", "cuda", "f16"))


# the look-up of tokens


@pytest.mark.parametrize(("target", "precision"), [
    ("default", "f32"), ("default", "f16"), ("onnx-standard", "f16"), ("cuda", "f16"), ("webgpu", "f32"),
])  # fmt: skip
def test_rows_are_those_of_the_targets_table_times_its_scale(packages: Packages, target: str, precision: str):
    built = packages("tiny-pair", target, precision)
    session = onnxruntime.InferenceSession(built / "token_embedding.onnx", providers=["CPUExecutionProvider"])
    ids = np.array([[0, 5, 511], [7, 7, 2]])
    (rows,) = session.run(None, {"input_ids": ids})
    table = open_checkpoint(TARGET).tensors[TABLE].array().astype(NUMPY[precision])
    np.testing.assert_array_equal(rows, table[ids] * NUMPY[precision](64**0.5))
    assert rows.dtype == NUMPY[precision]


def test_the_table_lies_where_the_target_has_it(pair: Path):
    proto, target = (onnx.load(pair / name, load_external_data=False) for name in (
        "token_embedding.onnx", "target/model.onnx"
    ))  # fmt: skip
    places = [{e.key: e.value for t in p.graph.initializer if t.name == TABLE for e in t.external_data} for p in (
        proto, target
    )]  # fmt: skip
    assert places[0].pop("location") == f"target/{places[1].pop('location')}" and places[0] == places[1]
    assert (pair / "token_embedding.onnx").stat().st_size < 2000
    onnx.checker.check_model(str(pair / "token_embedding.onnx"), full_check=True)


def test_bf16_rows_are_looked_up_in_bf16(tmp_path: Path):
    built = cabochon.build(TARGET, tmp_path / "p", assistant=ASSISTANT, target="cuda", precision="bf16").path
    (output,) = onnx.load(built / "token_embedding.onnx", load_external_data=False).graph.output
    assert output.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16


def test_a_look_up_that_cannot_be_told_is_refused(packages: Packages):
    proto = onnx.load(packages() / "model.onnx", load_external_data=False)
    for node in proto.graph.node:
        for names in (node.input, node.output):
            names[:] = ["rows" if name == "token_rows" else name for name in names]
    with pytest.raises(GraphError, match="no value is called token_rows"):
        token_embedding(proto, "target", 64)


# links


def test_a_built_target_is_linked(packages: Packages, tmp_path: Path):
    target = shutil.copytree(packages(), tmp_path / "target")
    built = cabochon.build(target, tmp_path / "p", assistant=ASSISTANT, precision="f32", weights="link")
    assert built.linked and (built.path / "target" / "model.onnx.data").samefile(target / "model.onnx.data")
    assert not (built.path / "model.onnx.data").samefile(ASSISTANT / "model.safetensors")
    assert built.nbytes < 1_000_000 < (target / "model.onnx.data").stat().st_size
    assert any(
        "files of the target are other names of those it was built as" in line for line in built.remarks
    )
    assert cabochon.validate(built.path).passed


def test_both_checkpoints_may_be_linked(tmp_path: Path):
    from safetensors.numpy import save_file

    sources = [checkpoints.copy(tmp_path / name, name) for name in ("text", "assistant")]
    for source in sources:
        arrays = {name: tensor.array() for name, tensor in open_checkpoint(source).tensors.items()}
        wide = {name: a if name == drafters.ORDERING else a.astype(np.float32) for name, a in arrays.items()}
        save_file(wide, source / "model.safetensors")
    built = cabochon.build(sources[0], tmp_path / "p", assistant=sources[1], precision="f32", weights="link")
    for folder, source in zip((built.path / "target", built.path), sources, strict=True):
        assert (folder / "model.onnx.data").samefile(source / "model.safetensors")
    session = onnxruntime.InferenceSession(
        built.path / "token_embedding.onnx", providers=["CPUExecutionProvider"]
    )
    (row,) = session.run(None, {"input_ids": np.array([[9]])})
    np.testing.assert_array_equal(
        row[0, 0], open_checkpoint(TARGET).tensors[TABLE].array()[9].astype("f") * 8
    )


def test_progress_counts_both(packages: Packages, tmp_path: Path):
    told: list[Any] = []

    class Told:
        def start(self, nbytes: int) -> None:
            told.append(nbytes)

        def advance(self, nbytes: int) -> None:
            told.append(-nbytes)

        def done(self) -> None:
            told.append("done")

    for source in (TARGET, packages()):
        told.clear()
        out = tmp_path / Path(source).name
        cabochon.build(source, out, assistant=ASSISTANT, precision="f32", license="mit", progress=Told())
        assert told[-1] == "done" and told.count("done") == 1 and sum(told[:-1]) == 0


def test_a_drafter_that_fails_leaves_nothing_of_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from cabochon.package import filling

    real = filling.trace

    def fail(known: Any) -> Any:
        if known.kind.name == "drafter":
            raise GraphError("no such operator")
        return real(known)

    monkeypatch.setattr(filling, "trace", fail)
    with pytest.raises(GraphError, match="no such operator"):
        cabochon.build(TARGET, tmp_path / "p", assistant=ASSISTANT)
    assert list(tmp_path.iterdir()) == []


# what does not fit


def changed(folder: Path, **keys: Any) -> Path:
    """The tiny assistant with other entries of its text_config; its tensors are not looked at before."""
    source = checkpoints.copy(folder, "assistant")
    config = json.loads((source / "config.json").read_text())
    for key, value in keys.items():
        (config if key in config else config["text_config"])[key] = value
    checkpoints.write_config(source, config)
    return source


ROPE = {
    "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1e5, "rope_type": "proportional"},
    "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"},
}


@pytest.mark.parametrize(("text", "message"), [
    ({"sliding_window": 16}, "its sliding_window is 16, the target's sliding_window 8"),
    ({"rope_parameters": ROPE}, "its rope of full_attention is Rope.*the target's rope"),
])  # fmt: skip
def test_what_the_config_says_must_fit(tmp_path: Path, text: dict[str, Any], message: str):
    with pytest.raises(PackageError, match=message):
        cabochon.build(TARGET, tmp_path / "p", assistant=changed(tmp_path / "a", **text))
    assert not (tmp_path / "p").exists()


@pytest.mark.parametrize(("top", "text", "message"), [
    ({"backbone_hidden_size": 32}, {}, "its backbone_hidden_size is 32, the target's hidden_size 64"),
    ({}, {"vocab_size": 256}, "its vocab_size is 256, the target's vocab_size 512"),
    ({}, {"head_dim": 8}, "its head_dim of sliding_attention is 8, the target's head_dim 16"),
    ({}, {"num_key_value_heads": 2}, "its key/value heads of full_attention is 2, the target's key/value heads 1"),
])  # fmt: skip
def test_what_the_tensors_are_must_fit(
    tmp_path: Path, top: dict[str, Any], text: dict[str, Any], message: str
):
    other = drafters.random_drafter(tmp_path / "a", top, **text)
    with pytest.raises(PackageError, match=message) as caught:
        cabochon.build(TARGET, tmp_path / "p", assistant=other)
    assert "made for this target" in (caught.value.remedy or "") and not (tmp_path / "p").exists()


def test_everything_that_differs_is_named_at_once(tmp_path: Path):
    with pytest.raises(PackageError) as caught:
        cabochon.build(TARGET, tmp_path / "p", assistant=MINIATURE / "assistant")
    assert all(name in str(caught.value) for name in ("backbone_hidden_size", "vocab_size", "sliding_window"))


@pytest.mark.parametrize(("options", "message"), [
    ({"precision": "f16"}, "was built with precision f32; f16 is asked for"),
    ({"precision": "f32", "target": "cuda"}, "was built with target default; cuda is asked for"),
    ({"precision": "f32", "revision": "main"}, r"without a known revision; main .*\n  -> leave --revision out"),
    ({"precision": "f32", "logits_to_keep": 3}, "was built with logits_to_keep 0; 3 is asked for"),
    ({"precision": "f32", "logits_to_keep": 1}, "a target verifies several tokens at once"),
])  # fmt: skip
def test_a_built_target_must_be_the_one_asked_for(
    packages: Packages, tmp_path: Path, options: Any, message: str
):
    with pytest.raises(PackageError, match=message):
        cabochon.build(packages(), tmp_path / "p", assistant=ASSISTANT, **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("source", "message"), [
    ("tiny-pair", "is a drafter; expected a text package"), ("tiny-drafter", "is a drafter"),
])  # fmt: skip
def test_a_target_is_a_text_package(packages: Packages, tmp_path: Path, source: str, message: str):
    with pytest.raises(PackageError, match=message) as caught:
        cabochon.build(packages(source), tmp_path / "p", assistant=ASSISTANT, precision="f32")
    assert "target/" in (caught.value.remedy or "")


def test_a_target_that_keeps_one_position_verifies_nothing(tmp_path: Path):
    cabochon.build(TARGET, tmp_path / "t", logits_to_keep=1)
    inputs = onnx.load(tmp_path / "t" / "model.onnx", load_external_data=False).graph.input
    assert not any(value.name == "logits_to_keep" for value in inputs)
    with pytest.raises(PackageError, match="gives the logits of the last position alone"):
        cabochon.build(tmp_path / "t", tmp_path / "p", assistant=ASSISTANT)


def test_a_target_with_a_changed_byte_is_refused(packages: Packages, tmp_path: Path):
    target = shutil.copytree(packages(), tmp_path / "target")
    data = bytearray((target / "model.onnx.data").read_bytes())
    data[1000] ^= 1
    (target / "model.onnx.data").write_bytes(data)
    with pytest.raises(PackageError, match=r"model\.onnx\.data is not what SHA256SUMS says"):
        cabochon.build(target, tmp_path / "p", assistant=ASSISTANT, precision="f32")
    (target / "model.onnx.data").unlink()
    with pytest.raises(PackageError, match=r"has no model\.onnx\.data"):
        cabochon.build(target, tmp_path / "p", assistant=ASSISTANT, precision="f32")
    assert [path.name for path in tmp_path.iterdir()] == ["target"]


def test_the_two_are_not_exchanged(tmp_path: Path):
    with pytest.raises(UnsupportedError, match="is no drafter") as caught:
        cabochon.build(TARGET, tmp_path / "p", assistant=TARGET)
    assert caught.value.at == f"{TARGET}/config.json"
    with pytest.raises(UnsupportedError, match="is a drafter"):
        cabochon.build(ASSISTANT, tmp_path / "p", assistant=ASSISTANT)


def test_an_assistant_of_another_name_is_remarked_on(tmp_path: Path):
    commit = "0123456789abcdef" * 2 + "01234567"
    target = hub_cache(tmp_path / "hub", TARGET, "google/gemma-4-tiny", commit)
    names = {"google/gemma-4-tiny-assistant": False, "google/gemma-4-tiny-it-assistant": True}
    for i, (name, remarked) in enumerate(names.items()):
        assistant = hub_cache(tmp_path / f"hub{i}", ASSISTANT, name, commit)
        built = cabochon.build(target, tmp_path / f"p{i}", assistant=assistant)
        assert any("is called after" in line for line in built.remarks) is remarked
        found = json.loads((built.path / "provenance.json").read_text())
        assert (found["target"]["id"], found["assistant"]["id"]) == ("google/gemma-4-tiny", name)
        assert found["assistant"]["revision"] == commit


# what is said


def test_the_contract_names_the_layers_that_are_read(pair: Path):
    found = YAML(typ="safe").load(pair / "component_contract.yaml")["components"]
    assert set(found) == {"assistant", "token_embedding", "target"}
    assert found["assistant"]["borrows"]["full_attention"]["layer"] == 4
    assert found["assistant"]["borrows"]["sliding_attention"]["layer"] == 5
    assert found["target"]["read_by_the_drafter"] == {
        "full_attention": "layer 4",
        "sliding_attention": "layer 5",
    }
    assert found["target"]["hidden_states"] == "hidden_states.9"
    assert (found["token_embedding"]["tables"], found["token_embedding"]["scale"]) == ([TABLE], 8.0)


def test_the_status_says_what_each_dialect_can(packages: Packages):
    text = (packages("miniature-pair", "default", "f16") / "METADATA_STATUS.md").read_text()
    assert "must multiply them by 11.3125: unscaled rows" in text  # sqrt(128) in f16
    assert "`probabilities` are not stated" in text and "in blocks" not in text
    assert "onnx-genai: its own validator is another set of rules" in text
    assert "32 keys and the drafter's 33" in text and "chained, up to 6 between" in text


def test_the_record_has_both_sources_and_every_graph(pair: Path):
    found = json.loads((pair / "provenance.json").read_text())
    assert (found["target"]["name"], found["assistant"]["name"]) == ("text", "assistant")
    assert found["build"]["embed_scale"] == 8.0 and found["build"]["max_proposal_width"] == 6
    listed = sums.read(pair)
    for name in (
        "model.onnx",
        "model.onnx.data",
        "token_embedding.onnx",
        "target/model.onnx",
        "target/model.onnx.data",
    ):
        assert found["files"][name]["sha256"] == listed[name]


def test_the_snippet_of_the_card_runs_as_it_stands(pair: Path, monkeypatch: pytest.MonkeyPatch):
    code = (pair / "README.md").read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(pair)
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, names)
    assert names["out"][0].shape == (1, 1, 512)


def test_the_other_version_passes_too(pair: Path, tmp_path: Path):
    made = convert_package(pair, tmp_path / "c", "v1.8")
    found = forms.read((made.path / "inference_metadata.yaml").read_bytes(), "x")
    assert found.speculative is not None and found.speculative.identity == "onnx-genai.speculative"
    assert found.speculative.verification is not None and found.speculative.version == "1"
    verdict = cabochon.validate(made.path)
    assert verdict.passed and not verdict.warnings
    assert contents(made.path / "target") == contents(pair / "target")


def test_a_source_is_that_of_one_of_both(pair: Path):
    for source in (TARGET, ASSISTANT):
        verdict = cabochon.validate(pair, source=source, select=("SRC",))
        assert verdict.passed and not verdict.findings and verdict.rules == ("SRC001", "SRC002")
    found = cabochon.validate(pair, source=TINY / "assistant-dense", select=("SRC",)).errors
    assert found and all(finding.at.startswith("model.onnx: ") for finding in found)
    other = cabochon.validate(pair, source=TINY / "assistant-dense", select=("SRC002",)).findings
    assert [finding.at.split(": ")[1] for finding in other] == ["target.fingerprint", "assistant.fingerprint"]


def test_a_fault_of_the_target_is_one_of_the_pair(pair: Path, tmp_path: Path):
    package = shutil.copytree(pair, tmp_path / "p")
    config = json.loads((package / "target" / "config.json").read_text())
    (package / "target" / "config.json").write_text(json.dumps(config | {"sliding_window": 9}))
    found = cabochon.validate(package, quick=True, ignore=("FIL",)).errors
    assert {finding.code for finding in found} >= {"ATT003"}
    assert all(finding.at.startswith("target/") for finding in found)


MEMORY = """
import sys
sys.path.insert(0, sys.argv[2])
import onnxruntime as ort
from bench.watch import status
before = status()["RssAnon"]
session = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
session.run(None, {"input_ids": [[5, 1_999_999]]})
print(status()["RssAnon"] - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the anonymous memory from /proc")
def test_the_table_is_looked_up_in_the_targets_own_file(tmp_path: Path) -> None:
    """256 MB of rows in f16: their pages are the file's, and no copy of them is made."""
    source = checkpoints.copy(tmp_path / "source", vocab_size=2_000_000, hidden_size_per_layer_input=0)
    slots = layout(json.loads((source / "config.json").read_text()))
    with (source / "model.safetensors").open("wb") as file:
        file.write(header(json.loads((source / "config.json").read_text()), slots))
        file.truncate(file.tell() + sum(2 * slot.elements for slot in slots))  # sparse: zeros without blocks
    target = cabochon.build(source, tmp_path / "target", precision="f16", license="apache-2.0").path
    proto = onnx.load(target / "model.onnx", load_external_data=False)
    graph = tmp_path / "token_embedding.onnx"
    graph.write_bytes(token_embedding(proto, "target", 64).SerializeToString())
    taken = python(MEMORY, str(graph), str(ROOT)).said
    (target / "model.onnx.data").unlink()
    assert taken < 30_000_000, f"{taken:,} bytes"
