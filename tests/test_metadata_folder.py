"""A package in another version: the document converted, everything else the same bytes, sums right, or nothing."""

import json
import os
import shutil
from pathlib import Path

import pytest

from cabochon import sums
from cabochon.errors import MetadataError, PackageError
from cabochon.metadata import forms, versions
from cabochon.metadata.document import Loop
from cabochon.metadata.folder import convert_package, open_decoder
from packages import Packages

NAME, LOOP, ANNOTATED = (f"inference_metadata{part}.yaml" for part in ("", ".loop", ".annotated"))


@pytest.fixture
def miniature(packages: Packages) -> Path:
    return packages("miniature")


def test_v1_8(miniature: Path, tmp_path: Path) -> None:
    made = convert_package(miniature, tmp_path / "out", "v1.8")
    out = made.path
    document = forms.read((out / NAME).read_bytes(), NAME)
    assert document.schema_version == "v1.8" and versions.check(document) == []
    assert document.pipeline is not None
    (loop,) = document.pipeline.workflow.steps
    assert isinstance(loop, Loop) and loop.termination == "generation_eos"
    policies = forms.read((out / LOOP).read_bytes(), LOOP)
    assert policies.schema_version == "v1.8" and policies.package and policies.package.tokenizer
    assert document.package and document.package.tokenizer
    ours, theirs = document.package.tokenizer.special_tokens, policies.package.tokenizer.special_tokens
    assert getattr(ours, "eos_token_id", 0) == getattr(theirs, "eos_token_id", 1)
    assert sums.verify(out) == [] and not (out / ANNOTATED).exists()
    assert f"{ANNOTATED} is left out: its comments explain the other version" in made.remarks
    new = {NAME, LOOP, sums.SUMS}
    names = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    assert set(sums.read(out)) == names - {sums.SUMS}
    for name in names - new:
        assert (out / name).samefile(miniature / name), name


def test_v1_of_v1_is_the_same_document(miniature: Path, tmp_path: Path) -> None:
    made = convert_package(miniature, tmp_path / "out", "v1")
    assert (made.path / NAME).read_bytes() == (miniature / NAME).read_bytes()


def test_files_are_copied_where_nothing_can_be_linked(
    miniature: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cabochon.files.hard_link", lambda source, name: "no links here")
    made = convert_package(miniature, tmp_path / "out", "v1.8")
    assert made.copied == "no links here"
    assert not (made.path / "model.onnx").samefile(miniature / "model.onnx") and sums.verify(made.path) == []


def test_the_facts_of_a_built_package(miniature: Path) -> None:
    decoder = open_decoder(miniature)
    assert decoder.vocabulary is not None and decoder.vocabulary.ends
    assert {cache.past.name for cache in decoder.caches} <= set(decoder.ports.inputs)


def test_a_package_of_others_keeps_its_workflow(miniature: Path, tmp_path: Path) -> None:
    package = tmp_path / "package"
    shutil.copytree(miniature, package)
    (package / "config.json").unlink()
    made = convert_package(package, tmp_path / "out", "v1.8")
    document = forms.read((made.path / NAME).read_bytes(), NAME)
    assert document.pipeline is not None and not isinstance(document.pipeline.workflow.steps[0], Loop)
    assert made.remarks[0].startswith("the document says what it said before; a loop could not be derived")


def test_refused(miniature: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(PackageError, match="no inference_metadata"):
        convert_package(tmp_path / "empty", tmp_path / "out", "v1.8")
    with pytest.raises(PackageError, match=r"is not a folder; expected a package\n  -> make one"):
        convert_package(tmp_path / "nowhere", tmp_path / "out", "v1.8")
    with pytest.raises(PackageError, match="lies inside"):
        convert_package(miniature, miniature / "out", "v1.8")
    with pytest.raises(PackageError, match="exists already"):
        convert_package(miniature, tmp_path / "empty", "v1.8")
    package = tmp_path / "package"
    shutil.copytree(miniature, package)
    (package / NAME).write_text("schema_version: v1\nmodel: {vocab_size: 0}\n")
    with pytest.raises(MetadataError) as raised:
        convert_package(package, tmp_path / "out", "v1.8")
    assert raised.value.at == f"{NAME}:2:9: model.vocab_size"
    (package / NAME).write_bytes((miniature / NAME).read_bytes())
    (package / "generation_config.json").write_text("{")
    with pytest.raises(PackageError, match="not JSON"):
        convert_package(package, tmp_path / "out", "v1.8")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "package"]


def test_what_is_no_graph_is_waited_for_by_nobody(miniature: Path, tmp_path: Path) -> None:
    package = tmp_path / "package"
    shutil.copytree(miniature, package)
    (package / "model.onnx").unlink()
    os.mkfifo(package / "model.onnx")
    made = convert_package(package, tmp_path / "out", "v1.8")
    assert made.remarks[0].endswith("model.onnx: is missing or no file; expected a graph")


def test_a_pair_whose_target_is_another_graph(packages: Packages, tmp_path: Path) -> None:
    pair = tmp_path / "pair"
    shutil.copytree(packages("miniature-pair"), pair)
    graph = pair / "target" / "model.onnx"
    graph.write_bytes((pair / "target" / "policies" / "termination.onnx").read_bytes())
    made = convert_package(pair, tmp_path / "out", "v1.8")
    assert made.remarks[0].endswith("input_ids: there is no such port; expected a decoder's")


def test_a_pair_whose_target_is_a_link(packages: Packages, tmp_path: Path) -> None:
    pair = tmp_path / "pair"
    shutil.copytree(packages("miniature-pair"), pair)
    (pair / "target").rename(tmp_path / "target")
    (pair / "target").symlink_to(tmp_path / "target")
    with pytest.raises(PackageError, match="is a link to a folder") as raised:
        convert_package(pair, tmp_path / "out", "v1.8")
    assert raised.value.at == "target" and not (tmp_path / "out").exists()


def test_back_to_v1_needs_what_only_v1_says(miniature: Path, tmp_path: Path) -> None:
    new = convert_package(miniature, tmp_path / "new", "v1.8").path
    with pytest.raises(MetadataError) as raised:
        convert_package(new, tmp_path / "old", "v1")
    assert raised.value.at == f"{NAME}: package.tokenizer.algorithm"
    assert not (tmp_path / "old").exists()


def test_json_documents(miniature: Path, tmp_path: Path) -> None:
    package = tmp_path / "package"
    shutil.copytree(miniature, package)
    data = forms.plain(forms.read((package / NAME).read_bytes(), NAME))
    (package / NAME).unlink()
    (package / "inference_metadata.json").write_text(json.dumps(data))
    made = convert_package(package, tmp_path / "out", "v1.8")
    assert (made.path / NAME).is_file() and not (made.path / "inference_metadata.json").exists()
