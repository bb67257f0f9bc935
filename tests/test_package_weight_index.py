"""Packages whose weights take several files, as webgpu's do from 2 GiB on: here from a few kilobytes on."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from safetensors.numpy import save_file

import cabochon
from cabochon.checkpoint import open_checkpoint
from cabochon.dialects import TARGETS
from full_packages import GREEDY
from packages import TINY

LIMIT = 350_000  # bytes
SUFFIX = ".data.index.json"


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of webgpu end early."""
    monkeypatch.setitem(TARGETS, "webgpu", replace(TARGETS["webgpu"], file_bytes=LIMIT))


def build(out: Path, source: Path = TINY / "text", **how: Any) -> Path:
    cabochon.build(source, out, target="webgpu", precision="f32", license="apache-2.0", **how)
    return out


def external(graph: Path) -> tuple[dict[str, str], int]:
    """The file of each weight, as the graph itself has it, and the bytes of all of them."""
    proto = onnx.load(graph, load_external_data=False)
    said = {t.name: {e.key: e.value for e in t.external_data} for t in proto.graph.initializer}
    files = {name: entries["location"] for name, entries in said.items() if entries}
    return files, sum(int(entries["length"]) for entries in said.values() if entries)


def require_indexes(package: Path, *graphs: str) -> None:
    """Every one of these graphs has an index that is right, and nothing is said against the package."""
    found = {p.relative_to(package).as_posix() for p in package.rglob(f"*{SUFFIX}")}
    assert found == {f"{graph}{SUFFIX}" for graph in graphs}
    card = (package / "README.md").read_text()
    for graph in graphs:
        index = json.loads((package / f"{graph}{SUFFIX}").read_text())
        where, nbytes = external(package / graph)
        assert index["weight_map"] == where and set(index["files"]) == set(where.values())
        assert index["metadata"] == {"total_size": nbytes}
        for name, said in index["files"].items():
            content = ((package / graph).parent / name).read_bytes()
            assert said == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            assert len(content) <= LIMIT
        assert graph.startswith("target/") or f"`{graph}{SUFFIX}`" in card
    verdict = cabochon.validate(package)
    assert verdict.passed and not [found for found in verdict.findings if found.code.startswith("FIL")]


@pytest.mark.usefixtures("limited")
def test_a_text_package_of_several_files_is_the_same_model(recorded: dict[str, Any], tmp_path: Path) -> None:
    package = build(tmp_path / "package")
    names = {path.name for path in package.glob("model.onnx.data*")} - {f"model.onnx{SUFFIX}"}
    assert names == {"model.onnx.data", *(f"model.onnx.data_{i}" for i in range(1, len(names)))}
    assert len(names) > 2
    require_indexes(package, "model.onnx")
    files = json.loads((package / "provenance.json").read_text())["files"]
    assert set(files) == {"model.onnx"} | names
    plan = cabochon.plan(TINY / "text", precision="f32")
    verdict = next(v for v in plan.verdicts if v.target == "webgpu")
    assert verdict.components[0].disk == sum((package / name).stat().st_size for name in names)
    said = recorded["text/text"]
    model = cabochon.load(package, threads=1, provider="cpu")
    assert model.generate(said["prompt"], **GREEDY).ids == said["tokens"]


@pytest.mark.usefixtures("limited")
def test_every_graph_of_a_full_package_has_an_index(tmp_path: Path) -> None:
    package = build(tmp_path / "package", TINY / "target", model="full")
    names = ("decoder", "embedding", "vision_encoder", "audio_encoder")
    require_indexes(package, *(f"{name}/model.onnx" for name in names))
    assert (package / "decoder" / "model.onnx.data_1").exists()
    tables = {path.parent.name: path.stat().st_ino for path in package.rglob("model.embed_tokens.*")}
    assert set(tables) == {"decoder", "embedding"} and len(set(tables.values())) == 1


@pytest.mark.usefixtures("limited")
def test_a_pair_has_one_for_each_of_its_graphs(tmp_path: Path) -> None:
    built, package = build(tmp_path / "target"), tmp_path / "pair"
    build(package, built, assistant=TINY / "assistant", weights="link")
    require_indexes(package, "model.onnx", "token_embedding.onnx", "target/model.onnx")
    assert (package / "target" / "model.onnx.data_1").stat().st_nlink == 2
    files = set(external(package / "token_embedding.onnx")[0].values())
    assert {name.partition("/")[0] for name in files} == {"target"}


@pytest.mark.parametrize("short", [0, 1])
def test_a_checkpoint_beyond_the_limit_is_not_linked(
    short: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    shutil.copytree(TINY / "assistant", source, copy_function=shutil.copyfile)
    tensors = {name: np.array(tensor.array()) for name, tensor in open_checkpoint(source).tensors.items()}
    save_file(tensors, source / "model.safetensors")  # which pads the header
    size = (source / "model.safetensors").stat().st_size
    limited = replace(TARGETS["default"], file_bytes=size - short)
    monkeypatch.setitem(TARGETS, "default", limited)  # of webgpu's packages, too little is stored as it comes
    asked: Any = {"precision": "bf16", "weights": "link", "license": "apache-2.0"}
    built = cabochon.build(source, tmp_path / "package", model="drafter", **asked)
    why = f"the file has {size:,} bytes, default reads files of at most {size - short:,}"
    assert built.linked == any("another name" in said for said in built.remarks) == (not short)
    assert any(why in said for said in built.remarks) == bool(short)
    assert (tmp_path / "package" / f"model.onnx{SUFFIX}").exists()
