"""web.json: the page is told of a package what the runtime reads of it; what no browser can run is refused."""

import json
import os
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import onnx
import pytest

import cabochon
import cabochon.web
from cabochon import sums
from cabochon.dialects.targets import WEBGPU_FILE
from cabochon.errors import PackageError
from cabochon.web import manifest
from packages import Packages
from pairs import Pairs


def copied(package: Path, tmp_path: Path) -> Path:
    """A package that a test may change."""
    shutil.copytree(package, tmp_path / "copy")
    return tmp_path / "copy"


def files_of(said: dict[str, Any]) -> dict[str, int]:
    """The bytes of each file that is named with a size."""
    entries = [entry for graph in said["graphs"].values() for entry in (graph, *graph["data"])]
    return {unquote(entry["file"]): entry["bytes"] for entry in (*entries, said["tokenizer"])}


def test_a_text_package_is_told_as_the_runtime_reads_it(packages: Packages) -> None:
    package = packages("tiny", "webgpu", "f32")
    said = manifest(package)
    model = cabochon.load(package, threads=1, provider="cpu")
    ports = model.session.ports
    assert (said["kind"], said["target"], said["precision"]) == ("text", "webgpu", "f32")
    assert (said["activations"], said["needs_f16"], said["name"]) == ("f32", False, package.name)
    decoder = said["decoder"]
    assert [(c["past"], c["present"], c["heads"], c["size"], c["sliding"]) for c in decoder["caches"]] == [
        (c.past, c.present, c.heads, c.size, c.sliding) for c in ports.caches
    ]
    assert (decoder["mask"], decoder["window"]) == (ports.contract.mask, ports.contract.window)
    assert (decoder["vocabulary"], decoder["hidden"]) == (ports.vocabulary, ports.hidden)
    assert (decoder["keeps"], decoder["takes"], decoder["hidden_size"]) == (True, ["input_ids"], 64)
    assert said["generation"]["eos"] == sorted(model.eos_token_ids)
    assert model.tokens is not None
    assert said["generation"]["bos"] == model.tokens.bos
    assert (said["drafter"], said["embedding"]) == (None, None)
    assert json.loads(json.dumps(said)) == said


def test_every_file_is_named_with_its_bytes_and_its_sum(packages: Packages) -> None:
    package = packages("tiny", "webgpu", "f32")
    said = manifest(package)
    graph = said["graphs"]["decoder"]
    known = sums.read(package)
    for entry in (graph, *graph["data"], said["tokenizer"]):
        name = entry["file"].removeprefix("package/")
        assert entry["bytes"] == (package / name).stat().st_size
        assert entry["sha256"] == known[name]
    assert [entry["path"] for entry in graph["data"]] == ["model.onnx.data"]
    assert graph["inputs"]["input_ids"] == {"type": "int64", "shape": ["batch", "sequence"]}
    assert graph["inputs"]["logits_to_keep"] == {"type": "int64", "shape": []}
    assert graph["outputs"]["logits"] == {"type": "float32", "shape": ["batch", "kept", 512]}
    assert said["chat_template"] == "package/chat_template.jinja"
    assert said["tokenizer"]["config"] == "package/tokenizer_config.json"


def test_a_pair_names_the_drafter_and_what_it_reads_of_its_target(pairs: Pairs) -> None:
    said = manifest(pairs())
    assert said["kind"] == "pair"
    assert list(said["graphs"]) == ["decoder", "drafter", "token_embedding"]
    assert said["graphs"]["decoder"]["file"] == "package/target/model.onnx"
    assert said["graphs"]["token_embedding"]["data"][0]["path"] == "target/model.onnx.data"
    assert said["drafter"]["shared"] == {
        "full_attention": {"key": "present.4.key", "value": "present.4.value"},
        "sliding_attention": {"key": "present.5.key", "value": "present.5.value"},
    }
    assert said["drafter"]["window"] == said["decoder"]["window"] == 8
    assert said["drafter"]["num_assistant_tokens"] == 6
    files = files_of(said)
    assert said["total_bytes"] >= sum(files.values())
    assert len(files) == 6  # the target's data file serves two graphs and counts once


def test_a_full_package_is_told_without_its_encoders(packages: Packages) -> None:
    said = manifest(packages("tiny-full", "webgpu", "f32"))
    assert said["kind"] == "full"
    assert list(said["graphs"]) == ["decoder", "embedding"]
    assert said["decoder"]["takes"] == ["inputs_embeds", "per_layer_inputs"]
    assert said["embedding"] == {"pad": 0, "placeholders": {"image": 8, "video": 13, "audio": 11}}
    given = said["graphs"]["embedding"]["inputs"]
    assert given["image_features"] == {"type": "float32", "shape": ["image_tokens", 64]}


@pytest.mark.parametrize(("precision", "needed"), [("f16", True), ("f32", False)])
def test_half_precision_is_said(packages: Packages, precision: str, needed: bool) -> None:
    said = manifest(packages("tiny", "default", precision))
    assert (said["needs_f16"], said["activations"]) == (needed, precision)


def test_bfloat16_is_refused(packages: Packages) -> None:
    with pytest.raises(PackageError, match="bfloat16; neither WebGPU nor the wasm") as refused:
        manifest(packages("tiny", "onnx-standard", "bf16"))
    assert "--precision f16" in refused.value.remedy


def test_a_drafter_alone_is_refused(packages: Packages) -> None:
    with pytest.raises(PackageError, match=r"a drafter without target/model\.onnx; expected a pair"):
        manifest(packages("tiny-drafter"))


@pytest.mark.parametrize("name", ["nothing", "folder"])
def test_what_is_no_package_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(PackageError, match="expected a package"):
        manifest(tmp_path / name)


def test_a_graph_that_is_none_is_refused(packages: Packages, tmp_path: Path) -> None:
    package = copied(packages(), tmp_path)
    (package / "model.onnx").write_bytes(b"version https://git-lfs")
    with pytest.raises(PackageError, match="not a graph"):
        manifest(package)


def test_a_data_file_of_2_gib_is_refused(packages: Packages, tmp_path: Path) -> None:
    package = copied(packages(), tmp_path)
    with (package / "model.onnx.data").open("r+b") as file:
        file.truncate(1 << 31)  # sparse: takes no room
    with pytest.raises(PackageError, match="2,147,483,648 bytes in one file; a browser loads") as refused:
        manifest(package)
    assert "--target webgpu" in refused.value.remedy


def test_a_data_file_that_ends_too_early_is_refused(packages: Packages, tmp_path: Path) -> None:
    package = copied(packages(), tmp_path)
    whole = (package / "model.onnx.data").stat().st_size
    os.truncate(package / "model.onnx.data", 1000)
    with pytest.raises(PackageError, match=rf"1,000 bytes; the graph reads {whole:,}"):
        manifest(package)


def test_a_browser_and_python_know_one_limit() -> None:
    page = (Path(cabochon.web.__file__).parent / "page" / "engine" / "manifest.js").read_text()
    assert f"export const MOST_BYTES = {WEBGPU_FILE:#x};" in page


def test_another_target_is_refused(packages: Packages, tmp_path: Path) -> None:
    package = copied(packages(), tmp_path)
    graph = onnx.load(package / "model.onnx", load_external_data=False)
    next(p for p in graph.metadata_props if p.key == "cabochon.target").value = "openvino-ir"
    (package / "model.onnx").write_bytes(graph.SerializeToString())
    with pytest.raises(PackageError, match="of target 'openvino-ir'; a browser runs default, onnx-standard"):
        manifest(package)


@pytest.mark.parametrize("name", ["openvino_model.xml", "decoder/openvino_model.xml"])
def test_ir_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("<net/>")
    with pytest.raises(PackageError, match="OpenVINO's IR; a browser runs default") as refused:
        manifest(tmp_path)
    assert "--target webgpu" in refused.value.remedy


def missing(package: Path) -> None:
    (package / "model.onnx.data").unlink()


def outside(package: Path) -> None:
    (package / "model.onnx.data").rename(package.parent / "elsewhere")
    (package / "model.onnx.data").symlink_to("../elsewhere")


def unsummed(package: Path) -> None:
    lines = (package / "SHA256SUMS").read_text().splitlines(keepends=True)
    (package / "SHA256SUMS").write_text("".join(x for x in lines if not x.endswith("  model.onnx.data\n")))


def without_sums(package: Path) -> None:
    (package / "SHA256SUMS").unlink()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (missing, "it is missing"),
        (outside, "a symlink that leaves the package"),
        (unsummed, "SHA256SUMS does not know model.onnx.data"),
        (without_sums, "SHA256SUMS: cannot be read"),
    ],
)
def test_a_spoiled_package_is_refused(packages: Packages, tmp_path: Path, spoil: Any, said: str) -> None:
    package = copied(packages(), tmp_path)
    spoil(package)
    with pytest.raises(PackageError) as refused:
        manifest(package)
    assert said in str(refused.value)


def test_a_data_file_elsewhere_is_refused(packages: Packages, tmp_path: Path) -> None:
    package = copied(packages(), tmp_path)
    graph = onnx.load(package / "model.onnx", load_external_data=False)
    for tensor in graph.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../elsewhere"
    (package / "model.onnx").write_bytes(graph.SerializeToString())
    with pytest.raises(PackageError, match=r"its data file is '\.\./elsewhere'; expected one within"):
        manifest(package)


def test_a_package_may_be_reached_through_a_symlink(packages: Packages, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(packages())
    assert manifest(tmp_path / "link") == manifest(packages())
