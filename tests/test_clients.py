"""Packages through the runtimes that others wrote: the same tokens as ours, and what does not work there, as it is.

Released versions as pinned; everything on the CPU, the graphs of cuda and webgpu included.
"""

import json
from pathlib import Path
from typing import Any

import pytest

import cabochon
import cabochon.dialects
import loop_document
from cabochon import sums
from cabochon.clients import Client, Probes, onnx_genai, onnxruntime_genai, probe, record
from cabochon.clients.probing import ask
from packages import MINIATURE, Packages

pytestmark = pytest.mark.clients

IN_PLACE = ("cuda", "webgpu")
ALL = [
    *((source, target, "f32") for source in ("miniature", "tiny") for target in cabochon.dialects.TARGETS),
    *(("miniature", target, "f16") for target in cabochon.dialects.TARGETS),
]
TOO_LONG = "RuntimeError: Requested length of rewind is greater than the current length."


def served(package: Path, folder: Path, **how: object) -> Path:
    return loop_document.write(package, folder / "served", **how)


# with `--dist loadgroup` all tests of a package run in one process, which probes it once


@pytest.fixture(scope="module", params=ALL, ids="-".join)
def tried(request: pytest.FixtureRequest, packages: Packages) -> Probes:
    return probe(packages(*request.param), seconds=120)


def in_place(tried: Probes) -> bool:
    return tried.measured["package"]["target"] in IN_PLACE


def test_the_same_tokens(tried: Probes) -> None:
    """Heterogeneous head sizes and all: 40 tokens, across the window of either checkpoint."""
    assert len(tried.measured["head_sizes"]) == 2
    for name in ("load", "greedy", "chunks"):
        assert tried["onnxruntime-genai"][name].outcome == "worked", tried["onnxruntime-genai"][name]
    for name in ("show", "load", "tokenize", "generate"):
        assert tried["onnx-genai"][name].outcome == "worked", tried["onnx-genai"][name]
    assert "the same 40 tokens" in tried["onnxruntime-genai"]["greedy"].happened
    assert "the same 40 tokens" in tried["onnx-genai"]["generate"].happened
    assert (tried["onnxruntime-genai"].version, tried["onnx-genai"].version) == ("0.18.0", "0.1.0.dev6")


def test_rewinding_needs_a_shared_buffer(tried: Probes) -> None:
    client = tried["onnxruntime-genai"]
    if in_place(tried):
        assert client["rewind"].outcome == client["rewind into the prompt"].outcome == "worked"
        without = client["without a shared buffer: rewind"]
    else:
        without = client["rewind"]
    assert (without.outcome, without.happened) == ("refused", TOO_LONG)


def test_a_shared_buffer_needs_a_graph_that_updates_in_place(tried: Probes) -> None:
    client = tried["onnxruntime-genai"]
    if in_place(tried):
        assert client["without a shared buffer: greedy"].outcome == "worked"
    else:
        assert client["with a shared buffer: greedy"].outcome in ("refused", "crashed", "differs")


def test_ragged_batches_are_recorded(tried: Probes) -> None:
    """Only padding on the right is masked there: see docs/clients.md."""
    client = tried["onnxruntime-genai"]
    assert client["ragged, right"].outcome == "worked"
    assert client["ragged, left"].outcome == "differs"


def test_evidence_of_what_was_tried(packages: Packages, tmp_path: Path) -> None:
    package = cabochon.build(MINIATURE / "target", tmp_path / "p", precision="f32", license="apache-2.0").path
    tried = probe(package, seconds=120)
    assert [file.name for file in tmp_path.iterdir()] == ["p"], "the converted folder is removed"
    assert tried["onnx-genai"]["generate"].outcome == "worked", "the package's own document, converted"
    assert record(tried) == "evidence/runtime_limitations.json"
    found = json.loads((package / "evidence" / "runtime_limitations.json").read_text())
    assert sums.verify(package) == [] and "evidence/runtime_limitations.json" in sums.read(package)
    assert found["package"]["sha256"]["model.onnx"] == sums.read(package)["model.onnx"]
    assert found["versions"]["onnxruntime"] and found["head_sizes"] == tried.measured["head_sizes"]
    assert [client["name"] for client in found["clients"]] == ["onnxruntime-genai", "onnx-genai"]
    assert found["limitations"] == list(tried.limitations)
    assert any(
        TOO_LONG in said and said.startswith("onnxruntime-genai 0.18.0: ") for said in found["limitations"]
    )
    assert not any("head" in said for said in found["limitations"]), "what works is no limitation"


def answered(package: Path, folder: Path) -> Client:
    """What onnx-genai alone does with a folder."""
    asked = ask(package)
    return onnx_genai.client(folder, asked.text, asked.prompt, asked.answer, seconds=120)


@pytest.mark.parametrize("target", IN_PLACE)
@pytest.mark.parametrize("aliasing", ["permitted", "required"])
def test_onnx_genai_aliases_graphs_that_update_in_place(
    packages: Packages, tmp_path: Path, target: str, aliasing: str
) -> None:
    package = packages("miniature", target)
    found = answered(package, served(package, tmp_path, aliasing=aliasing))
    assert found["generate"].outcome == "worked", found


def test_onnx_genai_does_without_where_it_may(packages: Packages, tmp_path: Path) -> None:
    package = packages("miniature")
    found = answered(package, served(package, tmp_path, aliasing="permitted"))
    assert found["generate"].outcome == "worked", found


def test_onnx_genai_refuses_to_alias_others(packages: Packages, tmp_path: Path) -> None:
    package = packages("miniature")
    found = answered(package, served(package, tmp_path, aliasing="required"))
    assert found["show"].outcome == "worked"
    assert found["load"].outcome == "refused" and "cannot alias present onto past" in found["load"].happened


def test_a_document_that_onnx_genai_does_not_take(packages: Packages, tmp_path: Path) -> None:
    folder = served(packages("miniature"), tmp_path)
    document = json.loads((folder / "inference_metadata.yaml").read_text())
    del document["package"]
    (folder / "inference_metadata.yaml").write_text(json.dumps(document))
    found = answered(packages("miniature"), folder)
    assert [(p.name, p.outcome) for p in found.probes] == [("show", "refused"), ("load", "refused")]
    for refused in found.probes:
        assert "must declare non-empty `package.tokenizer.special_tokens.eos_token_id`" in refused.happened


@pytest.mark.parametrize("target", ["default", "cuda"])
def test_a_graph_that_keeps_the_last_position(tmp_path: Path, target: str) -> None:
    """Neither feeds a count: a graph that keeps the last position says so in its ports."""
    source, out = MINIATURE / "target", tmp_path / "p"
    how: dict[str, Any] = {"target": target, "precision": "f32", "license": "apache-2.0", "logits_to_keep": 1}
    package = cabochon.build(source, out, **how).path
    assert answered(package, served(package, tmp_path))["generate"].outcome == "worked"
    greedy = onnxruntime_genai.client(package, ask(package).trials[:1], seconds=120)["greedy"]
    assert greedy.outcome == "worked"
