"""Packages of drafters: what is in them, that it is the graph's, and that they hold what every package promises."""

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

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from ruamel.yaml import YAML

import cabochon
import drafters
from cabochon import sums
from cabochon.checkpoint import open_checkpoint
from cabochon.errors import PackageError, TargetError, UnsupportedError
from cabochon.gemma4 import drafter_shapes, drafter_tensors, read_drafter_config
from cabochon.metadata import forms
from checkpoints import TINY, Entry, copy, write, write_config
from graphs import difference
from packages import MINIATURE, Packages

SOURCE = TINY / "assistant"
GEOMETRIES, HALF = Path(__file__).parent / "data" / "geometries", 5e-3
FILES = {
    "README.md", "SHA256SUMS", "SOURCE_LICENSE.md", "chat_template.jinja", "component_contract.yaml", "config.json",
    "evidence/validation.json", "generation_config.json", "inference_metadata.annotated.yaml",
    "inference_metadata.yaml", "model.onnx", "model.onnx.data", "provenance.json", "runtime-requirements.txt",
    "tokenizer.json", "tokenizer_config.json",
}  # fmt: skip
NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
E2B = {"backbone_hidden_size": 1536, "num_centroids": 2048, "centroid_intermediate_top_k": 32}


def contents(package: Path) -> dict[str, bytes]:
    found = (path for path in package.rglob("*") if path.is_file())
    return {path.relative_to(package).as_posix(): path.read_bytes() for path in found}


def contract(package: Path) -> dict[str, Any]:
    return YAML(typ="safe").load(package / "component_contract.yaml")["components"]["assistant"]


def weights(package: Path) -> dict[str, np.ndarray]:
    proto = onnx.load(package / "model.onnx")
    tensors = (tensor for tensor in proto.graph.initializer if not tensor.name.startswith("constant"))
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in tensors}


@pytest.fixture
def drafter(packages: Packages) -> Path:
    return packages("tiny-drafter")


def test_a_package_is_complete_and_summed(drafter: Path):
    assert set(contents(drafter)) == FILES
    assert set(sums.read(drafter)) == FILES - {sums.SUMS} and sums.verify(drafter) == []
    named = re.findall(r"^\| `([^`]+)` \|", (drafter / "README.md").read_text(), re.M)
    assert set(named) == FILES - {"README.md"}
    for name in ("config.json", "tokenizer.json", "generation_config.json"):
        assert (drafter / name).read_bytes() == (SOURCE / name).read_bytes()


@pytest.mark.parametrize(("target", "precision"), [
    ("default", "f32"), ("default", "f16"), ("onnx-standard", "bf16"), ("cuda", "bf16"), ("webgpu", "f16"),
])  # fmt: skip
def test_every_tensor_is_read_back_and_compared(tmp_path: Path, target: str, precision: Any):
    built = cabochon.build(SOURCE, tmp_path / "p", model="drafter", target=target, precision=precision)
    checkpoint = open_checkpoint(SOURCE)
    used = drafter_tensors(checkpoint.tensors, read_drafter_config(checkpoint.config)).used
    found = weights(built.path)
    for name, tensor in used.items():
        dtype = np.int64 if name == drafters.ORDERING else NUMPY[precision]
        expected = tensor.array().astype(dtype)
        assert found[name].dtype == dtype
        np.testing.assert_array_equal(found[name].view(np.uint8), expected.view(np.uint8), err_msg=name)


@pytest.mark.parametrize("source", ["tiny-drafter", "tiny-dense-drafter", "miniature-drafter"])
@pytest.mark.parametrize("target", ["default", "cuda"])
def test_every_rule_passes(packages: Packages, source: str, target: str):
    verdict = cabochon.validate(packages(source, target), execute=True)
    assert not verdict.errors and not verdict.warnings


REBUILD = """
    import sys, cabochon
    for target in ("default", "webgpu"):
        cabochon.build(sys.argv[1], f"{sys.argv[2]}/{target}", model="drafter", target=target, license="apache-2.0")
"""


def test_rebuilds_are_byte_identical(packages: Packages, tmp_path: Path):
    """Here and in another process, with other hashes, in another time zone."""
    command = [sys.executable, "-c", textwrap.dedent(REBUILD), str(SOURCE), str(tmp_path)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": "1", "TZ": "UTC+9"})
    for target in ("default", "webgpu"):
        assert contents(tmp_path / target) == contents(packages("tiny-drafter", target, "f16"))


# what is said


def test_the_contract_is_the_graphs(drafter: Path):
    found = contract(drafter)
    assert found["inputs"]["inputs_embeds"]["shape"] == ["batch", "sequence", 128]
    assert found["inputs"]["shared_kv.full_attention.key"] == {
        "dtype": "float32", "shape": ["batch", 1, "kv_sequence", 32],
    }  # fmt: skip
    assert found["outputs"]["projected_state"]["shape"] == ["batch", "sequence", 64]
    assert found["owns"] == [] and set(found["borrows"]) == {"full_attention", "sliding_attention"}
    sliding = found["borrows"]["sliding_attention"]
    assert (sliding["keys_seen"], sliding["window_of_the_target"], sliding["head_size"]) == (9, 8, 16)
    assert sliding["access"] == "read_only" and "layer" not in sliding
    assert found["borrows"]["full_attention"]["keys_seen"] == "all"
    assert found["carry"]["columns"] == [64, 128]
    assert found["head"] == {
        "kind": "ordered", "vocabulary": 512, "scored": 64, "centroids": 32, "top_k": 4,
        "not_scored": "the least score of the call minus 1",
    }  # fmt: skip


def test_a_dense_head_has_no_centroids(packages: Packages):
    found = contract(packages("tiny-dense-drafter"))["head"]
    assert found == {"kind": "dense", "vocabulary": 512, "scored": 512}


def test_the_document_owns_nothing_and_gives_everything(drafter: Path):
    document = forms.read((drafter / "inference_metadata.yaml").read_bytes(), "x")
    assert document.pipeline is not None and document.speculative is None
    workflow = document.pipeline.workflow
    assert list(workflow.components) == ["assistant"] and not workflow.state and workflow.serving is None
    assert set(workflow.outputs) == {"logits", "projected_state"}
    graph = onnx.load(drafter / "model.onnx", load_external_data=False).graph
    assert {
        given.source.name for given in workflow.inputs.values() if given.source.kind == "application"
    } == {value.name for value in graph.input}
    plain, annotated = ((drafter / f"inference_metadata{x}.yaml").read_text() for x in ("", ".annotated"))
    kept = [line for line in annotated.splitlines() if not line.lstrip().startswith("#")]
    assert YAML(typ="safe").load("\n".join(kept)) == YAML(typ="safe").load(plain)
    assert "The last 9 real keys are seen" in annotated


def test_there_is_no_genai_config_and_the_card_says_why(drafter: Path):
    card = (drafter / "README.md").read_text()
    assert not (drafter / "genai_config.json").exists() and "onnxruntime-genai has no route" in card
    assert "| **Borrowed read-only KV** | reads the target's `shared_kv.full_attention.{key,value}`" in card
    assert "`num_centroids=32`, `top_k=4`, 64 active logits of 512" in card
    assert "- speculative-decoding" in card


def test_the_record_names_the_assistant_and_its_tensors(drafter: Path):
    found = json.loads((drafter / "provenance.json").read_text())
    assert found["assistant"]["name"] == "assistant" and "target" not in found
    assert found["build"]["features"] == ["drafter"] and "embed_scale" not in found["build"]
    assert found["architecture_contracts"]["keys_seen_by_sliding_layers"] == 9
    assert found["architecture_contracts"]["borrowed_kv"]["full_attention"] == {"heads": 1, "head_dim": 32}
    assert set(found["tensors"]["used"]) == set(weights(drafter))
    assert set(found["files"]) == {"model.onnx", "model.onnx.data"}


def snippet(package: Path) -> str:
    return (package / "README.md").read_text().split("```python\n")[1].split("```")[0]


@pytest.mark.parametrize(("source", "target", "precision", "vocabulary"), [
    ("tiny-drafter", "default", "f16", 512), ("tiny-dense-drafter", "onnx-standard", "f32", 512),
    ("miniature-drafter", "default", "f32", 2048),
])  # fmt: skip
def test_the_snippet_of_the_card_runs_as_it_stands(
    packages: Packages,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    target: str,
    precision: str,
    vocabulary: int,
):
    built = packages(source, target, precision)
    monkeypatch.chdir(built)
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(snippet(built), names)
    logits, state = names["out"]
    assert logits.shape == (1, 1, vocabulary) and state.shape[-1] * 2 == names["inputs_embeds"].shape[-1]
    assert logits.dtype == NUMPY[precision] and int(printed.getvalue()) == int(logits[0, -1].argmax())


SEED = """
import numpy as np, onnxruntime as ort
s = ort.InferenceSession("model.onnx", providers=["CPUExecutionProvider"])
out = s.run(["logits", "projected_state"], {
    "inputs_embeds": inputs_embeds,                          # f16 [1,q,3072]
    "attention_mask": np.ones((1, kv_len), np.int64),
    "shared_kv.sliding_attention.key":   skv_sliding_k,      # f16 [1,1,kv,256]
    "shared_kv.sliding_attention.value": skv_sliding_v,
    "shared_kv.full_attention.key":      skv_full_k,         # f16 [1,1,kv,512]
    "shared_kv.full_attention.value":    skv_full_v,
})
"""


def test_the_snippet_of_the_published_card_runs_too(packages: Packages, monkeypatch: pytest.MonkeyPatch):
    """As it is written there, but for the provider; the numbers are this model's. It says what the oracle says."""
    monkeypatch.chdir(packages("tiny-drafter", "default", "f32"))
    truth, rng = drafters.Truth(SOURCE), np.random.default_rng(0)
    shared, fused = truth.keys(rng, 11), rng.standard_normal(2 * truth.backbone).astype(np.float32)
    names: dict[str, Any] = {"inputs_embeds": fused[None, None], "kv_len": 11}
    for kind, short in (("full_attention", "full"), ("sliding_attention", "sliding")):
        names[f"skv_{short}_k"], names[f"skv_{short}_v"] = shared[kind]
    exec(SEED, names)
    logits, state = truth.step(fused, shared)
    np.testing.assert_allclose(names["out"][0][0, 0], logits, atol=2e-4)
    np.testing.assert_allclose(names["out"][1][0, 0], state, atol=2e-4)


def test_a_bf16_snippet_feeds_what_the_graph_asks_for(packages: Packages, monkeypatch: pytest.MonkeyPatch):
    """bf16 has no kernels on a CPU, so the session is replaced by one that looks at its feeds."""
    built = packages("tiny-drafter", "cuda", "bf16")
    inputs = onnx.load(built / "model.onnx", load_external_data=False).graph.input

    class Session:
        def __init__(self, path: str, providers: list[str]) -> None:
            assert (path, providers) == ("model.onnx", ["CUDAExecutionProvider"])

        def run_with_ort_values(self, outputs: list[str], feeds: dict[str, Any]) -> list[str]:
            assert outputs == ["logits", "projected_state"] and set(feeds) == {value.name for value in inputs}
            for value in inputs:
                assert feeds[value.name].element_type() == value.type.tensor_type.elem_type
            return ["seen", ""]

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.chdir(built)
    names: dict[str, Any] = {}
    exec(snippet(built), names)
    assert names["out"][0] == "seen"


# what a build takes and refuses


def test_a_drafter_needs_no_tokenizer(tmp_path: Path):
    source = copy(tmp_path / "source", "assistant")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        (source / name).unlink()
    built = cabochon.build(source, tmp_path / "p", model="drafter")
    assert not (built.path / "tokenizer.json").exists() and not any(
        "tokenizer" in line for line in built.remarks
    )
    assert forms.read((built.path / "inference_metadata.yaml").read_bytes(), "x").package is None


def test_links_are_the_checkpoints_own_file(tmp_path: Path):
    from safetensors.numpy import save_file

    source = copy(tmp_path / "source", "assistant")
    arrays = {name: tensor.array() for name, tensor in open_checkpoint(source).tensors.items()}
    wide = {name: a if name == drafters.ORDERING else a.astype(np.float32) for name, a in arrays.items()}
    save_file(wide, source / "model.safetensors")
    built = cabochon.build(source, tmp_path / "p", model="drafter", precision="f32", weights="link")
    assert built.linked and (built.path / "model.onnx.data").samefile(source / "model.safetensors")
    assert cabochon.validate(built.path).passed


def test_a_file_is_not_linked_for_the_sake_of_the_ordering(tmp_path: Path):
    """It is the one tensor whose bytes are the checkpoint's where the rest is cast."""
    built = cabochon.build(SOURCE, tmp_path / "p", model="drafter", precision="f16", weights="link")
    assert not built.linked
    assert any("most of the file is stored otherwise" in line for line in built.remarks)


def test_the_caveats_of_a_target_are_said(tmp_path: Path):
    built = cabochon.build(SOURCE, tmp_path / "p", model="drafter", precision="bf16")
    assert any(line.startswith("bf16 on default: no released onnxruntime") for line in built.remarks)
    assert "bf16 on default: no released onnxruntime" in (built.path / "README.md").read_text()
    with pytest.raises(TargetError, match="cannot carry 'bf16'"):
        cabochon.build(SOURCE, tmp_path / "q", model="drafter", target="webgpu", precision="bf16")


def test_each_kind_of_checkpoint_is_built_as_what_it_is(tmp_path: Path):
    with pytest.raises(UnsupportedError, match="is a drafter") as caught:
        cabochon.build(SOURCE, tmp_path / "p")
    assert "--model drafter" in (caught.value.remedy or "")
    with pytest.raises(UnsupportedError, match="is no drafter") as caught:
        cabochon.build(TINY / "text", tmp_path / "p", model="drafter")
    assert "--model text" in (caught.value.remedy or "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("options", "message"), [
    ({"model": "image"}, "model is 'image'; expected one of text, full, drafter"),
    ({"model": "drafter", "logits_to_keep": 1}, "a drafter has no such input"),
    ({"model": "drafter", "assistant": SOURCE}, "an assistant is given for a drafter"),
])  # fmt: skip
def test_options_that_mean_nothing(tmp_path: Path, options: Any, message: str):
    with pytest.raises(PackageError, match=message):
        cabochon.build(SOURCE, tmp_path / "p", **options)


def test_a_source_of_the_other_kind_is_another_source(drafter: Path):
    assert cabochon.validate(drafter, source=SOURCE, select=("SRC",)).passed
    found = cabochon.validate(drafter, source=TINY / "text", select=("SRC",)).errors
    assert [finding.expected.split(",")[0] for finding in found] == ["a model that generates by itself"]


def test_converting_a_drafter_says_what_it_said(drafter: Path, tmp_path: Path):
    from cabochon.metadata.folder import convert_package

    made = convert_package(drafter, tmp_path / "c", "v1.8")
    assert "a drafter generates nothing by itself: the document says what it said before" in made.remarks
    assert cabochon.validate(made.path, quick=True).passed


def test_a_changed_byte_is_found(drafter: Path, tmp_path: Path):
    package = shutil.copytree(drafter, tmp_path / "p")
    data = bytearray((package / "model.onnx.data").read_bytes())
    data[len(data) // 2] ^= 1
    (package / "model.onnx.data").write_bytes(data)
    assert {finding.code for finding in cabochon.validate(package).errors} == {"FIL017"}


def test_the_miniature_is_a_drafter(packages: Packages):
    found = contract(packages("miniature-drafter", "default", "f16"))
    config = json.loads((MINIATURE / "assistant" / "config.json").read_text())
    assert found["borrows"]["sliding_attention"]["keys_seen"] == config["text_config"]["sliding_window"] + 1
    assert found["head"]["vocabulary"] == config["text_config"]["vocab_size"]


def e2b(folder: Path) -> Path:
    """A checkpoint of the real geometry, with random weights in bf16."""
    folder.mkdir()
    raw = json.loads((GEOMETRIES / "e2b-assistant.json").read_text())
    write_config(folder, raw)
    rng = np.random.default_rng(0)

    def stored(name: str, shape: tuple[int, ...]) -> Entry:
        if name == drafters.ORDERING:
            return "I64", list(shape), rng.permutation(shape[0]).tobytes()
        values = rng.standard_normal(shape, np.float32)
        values = values / shape[1] ** 0.5 if len(shape) == 2 else 1 + 0.15 * values
        if "q_norm" in name:
            values *= shape[0] ** -0.25  # scores of unit size whatever the head's size
        return "BF16", list(shape), values.astype(ml_dtypes.bfloat16).tobytes()

    shapes = drafter_shapes(read_drafter_config(raw))
    write(folder / "model.safetensors", {name: stored(name, shape) for name, shape in shapes.items()})
    return folder


def test_the_drafter_of_e2b_is_built_and_stepped(tmp_path: Path):
    """157 MB; four steps, each on the state of the last, behind more keys than the window has."""
    source = e2b(tmp_path / "source")
    package = cabochon.build(source, tmp_path / "p", model="drafter", precision="f16", license="mit").path
    nbytes = 157_559_816  # and what aligns the tensors
    assert nbytes <= (package / "model.onnx.data").stat().st_size < 1.005 * nbytes
    truth, rng = drafters.Truth(source), np.random.default_rng(1)
    keys = truth.keys(rng, 700, sliding=513)
    feeds = {
        f"shared_kv.{kind}.{part}": values.astype(np.float16)
        for kind, pair in keys.items()
        for part, values in zip(("key", "value"), pair, strict=True)
    }
    feeds["attention_mask"] = np.ones((1, 700), np.int64)
    session = onnxruntime.InferenceSession(package / "model.onnx", providers=["CPUExecutionProvider"])
    state = rng.standard_normal(1536).astype(np.float32)
    for _ in range(4):
        fused = np.concatenate([rng.standard_normal(1536).astype(np.float32), state])
        feeds["inputs_embeds"] = fused.astype(np.float16)[None, None]
        logits, projected = (
            out[0, 0].astype(np.float32) for out in session.run(["logits", "projected_state"], feeds)
        )
        expected, state = truth.step(fused, keys)
        both, either = (
            how(truth.scored(logits), truth.scored(expected)) for how in (np.logical_and, np.logical_or)
        )
        assert difference(projected, state) < HALF
        assert difference(logits[both], expected[both]) < HALF
        assert both.sum() / either.sum() > 0.9 and 4096 - 256 <= truth.scored(logits).sum() <= 4096


def test_a_caveat_of_the_kernel_of_attention_is_none_of_a_drafters(packages: Packages):
    """Its attention is written out in plain operators, for which CUDA has kernels in f32."""
    card = (packages("tiny-drafter", "cuda", "f32") / "README.md").read_text()
    assert "GroupQueryAttention" not in card and "attention in plain operators" in card
