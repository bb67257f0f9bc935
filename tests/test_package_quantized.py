"""What quantized packages say of themselves, against their files: a pair for each target, one over a full package."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import cabochon
from cabochon.checkpoint import open_checkpoint
from cabochon.dialects import TARGETS
from cabochon.metadata import yaml
from cabochon.metadata.folder import convert_package, open_full, open_pair
from cabochon.metadata.forms import dump
from cabochon.metadata.full_documents import full_document
from cabochon.metadata.pair import pair_document
from cabochon.packing import Scheme, pack, unpack
from cabochon.recipes.recipe_file import read_recipe
from packages import TINY, Packages

NAME, TABLE = "Q4_K_M", "model.embed_tokens.weight"
# The per-layer table of the tiny checkpoints has rows of 8 numbers, and so blocks that kernels read with 8 bits.
OTHERS = [
    {"component": name, "precision": "int8"} for name in ("vision_encoder", "audio_encoder", "embedding")
]


@pytest.fixture(scope="module", params=TARGETS)
def pair(request: pytest.FixtureRequest, packages: Packages) -> Path:
    """The drafter's package, which holds the target's."""
    return packages("tiny-pair", request.param, NAME)


@pytest.fixture(scope="module")
def over_full(packages: Packages) -> Path:
    """The same over a full package."""
    out = packages.root / f"pair-over-full-{NAME}"
    built = packages("tiny-full", "default", NAME)
    cabochon.build(built, out, assistant=TINY / "assistant", precision=NAME, license="apache-2.0")
    return out


def build_of(package: Path) -> dict[str, Any]:
    return json.loads((package / "provenance.json").read_text())["build"]


def graphs(package: Path) -> dict[str, onnx.ModelProto]:
    """A package's own, but for the look-up of a pair."""
    found = [*package.glob("model.onnx"), *package.glob("*/model.onnx")]
    names = [path.relative_to(package).as_posix() for path in found]
    return {
        name: onnx.load(package / name, load_external_data=False)
        for name in names
        if name != "target/model.onnx"
    }


def referred(package: Path) -> tuple[int, int]:
    """Bytes of the files that graphs refer to, each counted once, and of the ranges of them that they refer to."""
    files, ranges = dict[int, int](), dict[tuple[int, str], int]()
    for name, graph in graphs(package).items():
        for tensor in graph.graph.initializer:
            said = {entry.key: entry.value for entry in tensor.external_data}
            if said:
                stat = (package / name).with_name(said["location"]).stat()
                files[stat.st_ino] = stat.st_size
                ranges[stat.st_ino, said["offset"]] = int(said["length"])
    return sum(files.values()), sum(ranges.values())


def summed(package: Path) -> None:
    said = build_of(package)["stored"]
    files, ranges = referred(package)
    lines = sum(line["bytes"] for line in said["weights"])
    assert (said["bytes"], lines, said["padding"]) == (files, ranges, files - ranges)


def test_the_report_is_what_the_graphs_refer_to(pair: Path):
    summed(pair)
    summed(pair / "target")


def test_the_report_of_a_full_package_counts_its_table_once(packages: Packages):
    summed(packages("tiny-full", "default", NAME))


def test_the_contract_is_derived_from_the_graphs_alone(pair: Path):
    document = pair_document(open_pair(pair))
    assert yaml.write(dump(document, "v1")) == (pair / "inference_metadata.yaml").read_bytes()
    assert dump(document, "v1")["quantization"] == {"default": "int4"}


def test_components_that_differ_are_overrides(over_full: Path):
    inner = over_full / "target"
    for folder, document in (
        (over_full, pair_document(open_pair(over_full))),
        (inner, full_document(open_full(inner))),
    ):
        assert dump(document, "v1")["quantization"] == {"default": "int4", "overrides": OTHERS}
        assert yaml.write(dump(document, "v1")) == (folder / "inference_metadata.yaml").read_bytes()
    loop = yaml.read((inner / "inference_metadata.loop.yaml").read_bytes(), "loop")
    assert loop["quantization"] == {"default": "int4", "overrides": OTHERS}


def test_the_other_version_says_the_same(packages: Packages, tmp_path: Path):
    made = convert_package(packages("tiny", "default", NAME), tmp_path / "v1.8", "v1.8")
    assert yaml.read((made.path / "inference_metadata.yaml").read_bytes(), "v1.8")["quantization"] == {
        "default": "int4"
    }


def test_the_annotated_copy_says_what_the_contract_cannot(pair: Path):
    text = (pair / "inference_metadata.annotated.yaml").read_text()
    assert "# int4: what most weights are stored as, counted in the graphs.\n" in text
    assert "# It has no keys for blocks, zero points, scales and roles: README.md and build.recipe" in text
    assert "no weight is quantized" not in text
    assert f"# The table is in blocks: it holds codes, and {TABLE}" in text


def test_types_of_ports_are_those_of_activations(pair: Path):
    kind = {"f32": "float32", "f16": "float16"}[TARGETS[build_of(pair)["target"]].storage.activations]
    assert build_of(pair)["dtype"] == build_of(pair / "target")["dtype"] == kind
    contract = yaml.read((pair / "component_contract.yaml").read_bytes(), "contract")["components"]
    assert contract["assistant"]["activations"] == {"float32": "f32", "float16": "f16"}[kind]
    assert contract["token_embedding"]["outputs"]["inputs_embeds"]["dtype"] == kind
    assert contract["token_embedding"]["tables"] == [TABLE]
    assert all(name.startswith(f"{TABLE}_") for name in contract["token_embedding"]["beside_tables"])
    for readme in (pair / "README.md", pair / "target" / "README.md"):
        assert f"- **dtype / EP**: `{kind}`" in readme.read_text()
        assert f"np.{kind})" in readme.read_text()


def expected_rows(package: Path, source: Path, ids: np.ndarray) -> np.ndarray:
    """Rows of the table as blocks stand for them that are made as the package's recipe says, f32, times 8."""
    said = build_of(package)
    kind = {"float32": "f32", "float16": "f16"}[said["dtype"]]
    scheme = read_recipe({"name": NAME, "activations": kind, "rules": said["recipe"]}, "recipe").scheme(TABLE)
    assert isinstance(scheme, Scheme)
    tensors = open_checkpoint(source).tensors
    table = next(tensors[name].array() for name in tensors if name.endswith("embed_tokens.weight"))
    return unpack(pack(np.ascontiguousarray(table), scheme), scheme, 64)[ids] * np.float32(8)


IDS = np.array([[0, 5, 511], [7, 7, 2]])


def looked_up(pair: Path) -> np.ndarray:
    onnx.checker.check_model(str(pair / "token_embedding.onnx"), full_check=True)
    session = onnxruntime.InferenceSession(pair / "token_embedding.onnx", providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"input_ids": IDS})[0])


def test_a_drafter_is_given_the_rows_that_the_targets_blocks_stand_for(pair: Path):
    rows, exact = looked_up(pair), expected_rows(pair / "target", TINY / "text", IDS)
    np.testing.assert_allclose(
        rows.astype(np.float32), exact, rtol=2e-3 if rows.dtype == np.float16 else 1e-6
    )
    assert np.abs(exact).max() > 2


def test_and_so_it_is_over_a_full_package(over_full: Path):
    exact = expected_rows(over_full / "target", TINY / "target", IDS)
    np.testing.assert_allclose(looked_up(over_full), exact, rtol=1e-6)


def test_its_weights_are_the_targets_own(pair: Path):
    proto = onnx.load(pair / "token_embedding.onnx", load_external_data=False)
    target = onnx.load(pair / "target" / "model.onnx", load_external_data=False)

    def places(graph: onnx.ModelProto, folder: str) -> dict[str, tuple[str, str, str]]:
        entries = {t.name: {e.key: e.value for e in t.external_data} for t in graph.graph.initializer}
        return {n: (folder + e["location"], e["offset"], e["length"]) for n, e in entries.items() if e}

    own = places(proto, "")
    assert own.items() <= places(target, "target/").items()
    assert own.keys() > {TABLE, f"{TABLE}_scales"} - {TABLE} and len(own) in (2, 3)
    assert (pair / "token_embedding.onnx").stat().st_size < 8000


def test_what_each_version_cannot_say_is_said(pair: Path, over_full: Path):
    status = (pair / "METADATA_STATUS.md").read_text()
    assert (
        f"A table in blocks: `token_embedding.table` names its codes, and nothing names `{TABLE}_" in status
    )
    for package in (pair, over_full, over_full / "target"):
        assert (
            "How weights are stored in blocks. `quantization` names the precision of most of them"
            in (package / "METADATA_STATUS.md").read_text()
        )


def test_a_head_that_is_stored_apart_leaves_the_table_to_the_embedding(tmp_path: Path):
    out, said = tmp_path / "pair", {"precision": "NF4", "license": "apache-2.0"}
    cabochon.build(TINY / "target", out, model="full", assistant=TINY / "assistant", **said)  # type: ignore[arg-type]
    document = yaml.read((out / "inference_metadata.yaml").read_bytes(), "document")
    chained = document["speculative"]["proposal_execution"]
    assert chained["token_embedding"] == {"component": "embedding", "table": TABLE}
    assert document["quantization"]["default"] == "nf4"
    contract = yaml.read((out / "component_contract.yaml").read_bytes(), "contract")["components"]
    assert contract["token_embedding"]["table_in"] == "target/embedding/model.onnx"
    assert contract["assistant"]["head"]["centroids"] == 32
    status = (out / "METADATA_STATUS.md").read_text()
    assert (
        "A table that `target` has not: its head is another weight, and `embedding` looks up tokens."
        in status
    )
    tensors = open_checkpoint(TINY / "target").tensors
    table = next(tensors[name].array() for name in tensors if name.endswith("embed_tokens.weight"))
    np.testing.assert_array_equal(looked_up(out), table.astype(np.float16)[IDS].astype(np.float32) * 8)
