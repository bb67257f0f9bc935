"""Whole builds: what is written, what is refused, and what is left when a build does not end."""

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

from cabochon import sums
from cabochon.checkpoint import open_checkpoint
from cabochon.errors import ConfigError, GraphError, PackageError, SourceError, TargetError, TensorError
from cabochon.gemma4 import read_text_config, text_tensors
from cabochon.package import Built, build, filling
from cabochon.package.kinds import KINDS, TEXT
from checkpoints import TINY, change, copy, hub_cache, published, rename, shard, tiny_config, write_config

SOURCE = TINY / "text"
NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
FILES = {
    "README.md", "SHA256SUMS", "SOURCE_LICENSE.md", "chat_template.jinja", "config.json", "evidence/validation.json",
    "genai_config.json", "generation_config.json", "inference_metadata.annotated.yaml", "inference_metadata.loop.yaml",
    "inference_metadata.yaml", "model.onnx", "model.onnx.data", "provenance.json", "runtime-requirements.txt",
    "tokenizer.json", "tokenizer_config.json",
}  # fmt: skip


def contents(package):
    """Every file by its path inside the package."""
    return {
        path.relative_to(package).as_posix(): path.read_bytes()
        for path in package.rglob("*")
        if path.is_file()
    }


def is_complete(package):
    """All files are there, and the graphs of the loop in their folder, but nothing else."""
    policies = {f"policies/{path.name}" for path in (package / "policies").glob("*.onnx")}
    return len(policies) >= 8 and set(contents(package)) == FILES | policies


def references(proto):
    """Of every external initializer: its name, the file, the offset and the length in bytes."""
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            said = {entry.key: entry.value for entry in tensor.external_data}
            yield tensor.name, said["location"], int(said["offset"]), int(said["length"])


def weights(package):
    """Every weight of a package by name, read as a runtime would."""
    proto = onnx.load(package / "model.onnx", load_external_data=False)
    types = {t.name: onnx.helper.tensor_dtype_to_np_dtype(t.data_type) for t in proto.graph.initializer}
    shapes = {t.name: tuple(t.dims) for t in proto.graph.initializer}
    data = contents(package)
    return {
        name: np.frombuffer(data[file][offset : offset + length], types[name]).reshape(shapes[name])
        for name, file, offset, length in references(proto)
    }


def used(source):
    checkpoint = open_checkpoint(source)
    return text_tensors(checkpoint.tensors, read_text_config(checkpoint.config)).used


def is_whole(package):
    """Every file of the package but the sums themselves is listed there, and is what was summed."""
    return set(sums.read(package)) == set(contents(package)) - {sums.SUMS} and sums.verify(package) == []


def bits(array):
    return np.ascontiguousarray(array).view(np.uint8)


@pytest.fixture
def package(packages):
    return packages("tiny", "default", "f16")


def test_a_package_is_complete(package):
    assert is_complete(package)
    for path in package.rglob("*"):
        assert stat.S_ISDIR(path.lstat().st_mode) or (
            stat.S_ISREG(path.lstat().st_mode) and path.stat().st_size > 0
        )
    for name in ("config.json", "tokenizer.json", "chat_template.jinja", "generation_config.json"):
        assert (package / name).read_bytes() == (SOURCE / name).read_bytes()
    assert is_whole(package)


def test_every_file_that_a_document_names_exists(package):
    provenance = json.loads((package / "provenance.json").read_text())
    assert set(provenance["files"]) <= FILES
    for name, said in provenance["files"].items():
        content = (package / name).read_bytes()
        assert said == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    named = re.findall(r"^\| `([^`]+)` \|", (package / "README.md").read_text(), re.M)
    assert set(named) == FILES - {"README.md"} | {"policies/"}


@pytest.mark.parametrize("target, precision", [
    ("default", "f32"), ("default", "f16"), ("onnx-standard", "bf16"), ("cuda", "bf16"), ("webgpu", "f16"),
])  # fmt: skip
def test_every_tensor_is_read_back_and_compared(packages, target, precision):
    found = weights(packages("tiny", target, precision))
    tensors, table = used(SOURCE), "model.embed_tokens_per_layer.weight"
    for name, tensor in tensors.items():
        with np.errstate(all="ignore"):
            expected = tensor.array().astype(NUMPY[precision])
        if name == table and name not in found:
            parts = [found.pop(f"model.embed_tokens_per_layer.{i}.weight") for i in range(10)]
            actual = np.concatenate(parts, axis=1)
        else:
            actual = found.pop(name)
        assert actual.dtype == NUMPY[precision] and actual.shape == expected.shape
        np.testing.assert_array_equal(bits(actual), bits(expected), err_msg=name)
    assert not found


def test_offsets_are_multiples_of_a_page_and_gaps_are_zero(package):
    proto = onnx.load(package / "model.onnx", load_external_data=False)
    data, end = bytearray((package / "model.onnx.data").read_bytes()), 0
    for _, _, offset, length in sorted(references(proto), key=lambda found: found[2]):
        assert offset % 4096 == 0 and offset >= end
        end = offset + length
        data[offset:end] = bytes(length)
    assert end == len(data) and not any(data)


def test_a_flipped_bit_is_found_through_the_sums(package, tmp_path):
    shutil.copytree(package, tmp_path / "p")
    data = bytearray((tmp_path / "p" / "model.onnx.data").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "p" / "model.onnx.data").write_bytes(data)
    assert sums.verify(tmp_path / "p") == ["model.onnx.data"]


REBUILD = """
    import sys, cabochon
    for target in ("default", "cuda", "webgpu"):
        cabochon.build(sys.argv[1], f"{sys.argv[2]}/{target}", target=target, license="apache-2.0")
"""


def test_rebuilds_are_byte_identical(packages, tmp_path):
    """Here and in another process, with other hashes, in another time zone."""
    command = [sys.executable, "-c", textwrap.dedent(REBUILD), str(SOURCE), str(tmp_path)]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": "1", "TZ": "UTC+9"})
    for target in ("default", "cuda", "webgpu"):
        assert contents(tmp_path / target) == contents(packages("tiny", target, "f16"))


SPELLINGS = {
    "published": lambda config: published(config),
    "zero": lambda config: published(config) | {"num_global_key_value_heads": 0},
    "absent": lambda config: {
        key: value for key, value in published(config).items() if key != "num_global_key_value_heads"
    },
    "padded": lambda config: config | {"per_layer_config": {"04": {"head_dim": 32}, "09": {"head_dim": 32}}},
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_both_spellings_of_a_config_give_the_same_package(tmp_path, package, monkeypatch, spelling):
    for absent in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, absent, None)  # to import it would fail
    source = copy(tmp_path / "text")
    config = SPELLINGS[spelling](tiny_config())
    assert config != tiny_config()
    write_config(source, config)
    found, expected = contents(build(source, tmp_path / "p", license="apache-2.0").path), contents(package)
    differing = {name for name in FILES if found[name] != expected[name]}
    assert differing == {"config.json", "SHA256SUMS", "provenance.json"}
    records = [json.loads(files["provenance.json"]) for files in (found, expected)]
    prints = [record["target"].pop("fingerprint") for record in records]
    assert prints[0] != prints[1], "of config.json as it is written"
    assert records[0] == records[1]


def graph_and_data(package):
    return [(package / name).read_bytes() for name in ("model.onnx", "model.onnx.data")]


PREFIXES = {
    "model.language_model.": lambda name: name.replace("model.", "model.language_model.", 1),
    "language_model.model.": lambda name: f"language_model.{name}",
    "bare": lambda name: name.removeprefix("model."),
}


@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_prefix_gives_the_same_graph_and_data(tmp_path, package, prefix):
    """The fourth is `package` itself: model.*"""
    source = rename(copy(tmp_path / "source"), PREFIXES[prefix])
    built = build(source, tmp_path / "p").path
    assert graph_and_data(built) == graph_and_data(package)
    names = json.loads((built / "provenance.json").read_bytes())["tensors"]["used"]
    assert names["model.norm.weight"] == PREFIXES[prefix]("model.norm.weight")


def test_keys_and_values_of_borrowers_and_towers_change_nothing(tmp_path, package):
    """The fifth prefix, model.language_model.* with towers beside it, and keys and values that nothing reads."""
    borrowed = {
        f"model.language_model.layers.{layer}.self_attn.{part}.weight"
        for layer in range(6, 10)
        for part in ("k_proj", "v_proj", "k_norm")
    }

    def scramble(tensors):
        assert borrowed < set(tensors)
        random = np.random.default_rng(0)
        noise = {name: random.bytes(len(tensors[name][2])) for name in borrowed}
        return {name: (*entry[:2], noise.get(name, entry[2])) for name, entry in tensors.items()}

    for source in (TINY / "target", change(copy(tmp_path / "source", "target"), scramble)):
        built = build(source, tmp_path / f"p-{source.name}").path
        assert graph_and_data(built) == graph_and_data(package)
        unused = json.loads((built / "provenance.json").read_bytes())["tensors"]["unused"]
        said = {name: reason for name, reason in unused.items() if "borrows the keys and values" in reason}
        assert set(said) == borrowed
        assert {name.split(".")[1] for name in set(unused) - borrowed} == {
            "vision_tower", "embed_vision", "audio_tower", "embed_audio",
        }  # fmt: skip


def test_shards_give_the_same_weights(tmp_path, package):
    source = copy(tmp_path / "source")
    shard(source)
    built = build(source, tmp_path / "p", license="apache-2.0").path
    assert graph_and_data(built) == graph_and_data(package)


def test_a_hub_cache_gives_a_package_without_symlinks(tmp_path, package):
    snapshot = hub_cache(tmp_path / "hub", SOURCE, "google/gemma-4-tiny", "0123456789abcdef" * 2 + "01234567")
    built = build(snapshot, tmp_path / "p")
    assert not any(path.is_symlink() for path in built.path.iterdir())
    assert (built.path / "model.onnx.data").read_bytes() == (package / "model.onnx.data").read_bytes()
    assert json.loads((built.path / "provenance.json").read_text())["target"]["id"] == "google/gemma-4-tiny"


def snippet(package):
    return (package / "README.md").read_text().split("```python\n")[1].split("```")[0]


@pytest.mark.parametrize("source, target, precision", [
    ("tiny", "default", "f16"), ("tiny", "onnx-standard", "f32"), ("miniature", "default", "f16"),
])  # fmt: skip
def test_the_snippet_of_the_card_runs_as_it_stands(packages, monkeypatch, source, target, precision):
    built = packages(source, target, precision)
    monkeypatch.chdir(built)
    names: dict = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(snippet(built), names)
    vocab = json.loads((built / "config.json").read_text())["vocab_size"]
    assert names["logits"].shape == (1, names["ids"].shape[1], vocab)
    assert names["logits"].dtype == NUMPY[precision]
    assert int(printed.getvalue()) == int(names["logits"][0, -1].argmax())


@pytest.mark.parametrize("missing", ["tokenizer", None])
def test_the_snippet_of_other_packages_feeds_what_the_graph_asks_for(tmp_path, monkeypatch, missing):
    """bf16 has no kernels on a CPU, so the session is replaced by one that looks at its feeds."""
    source = copy(tmp_path / "source")
    if missing:
        (source / "tokenizer.json").unlink()
    built = build(source, tmp_path / "p", target="cuda", precision="bf16", allow_missing=["tokenizer"]).path
    inputs = onnx.load(built / "model.onnx", load_external_data=False).graph.input

    class Session:
        def __init__(self, path, providers):
            assert (path, providers) == ("model.onnx", ["CUDAExecutionProvider"])

        def run_with_ort_values(self, outputs, feeds):
            assert outputs == ["logits"]
            assert set(feeds) == {value.name for value in inputs} - {"logits_to_keep"}
            for value in inputs:
                if value.name in feeds:
                    assert feeds[value.name].element_type() == value.type.tensor_type.elem_type
                    sizes = [d.dim_value for d in value.type.tensor_type.shape.dim]
                    assert all(s in (0, n) for s, n in zip(sizes, feeds[value.name].shape(), strict=True))
            return ["seen"]

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    monkeypatch.chdir(built)
    names: dict = {}
    exec(snippet(built), names)
    assert names["logits"] == "seen"


# links


def widened(folder, dtype=np.float32):
    """A copy of the tiny checkpoint whose header is padded, as safetensors itself writes it, in another dtype."""
    from safetensors.numpy import save_file

    folder = copy(folder)
    tensors = {name: tensor.array().astype(dtype) for name, tensor in open_checkpoint(folder).tensors.items()}
    save_file(tensors, folder / "model.safetensors")
    return folder


def run(package, ids=((2, 7, 9, 4, 30, 2),)):
    session = onnxruntime.InferenceSession(package / "model.onnx", providers=["CPUExecutionProvider"])
    feeds = {"input_ids": np.array(ids), "attention_mask": np.ones_like(np.array(ids))}
    for port in session.get_inputs():
        if port.name.startswith("past_key_values."):
            dtype = np.float16 if "16" in port.type else np.float32
            feeds[port.name] = np.zeros((1, port.shape[1], 0, port.shape[3]), dtype)
    return session.run(["logits"], feeds)[0]


def test_a_link_is_the_checkpoints_own_file(tmp_path):
    source = widened(tmp_path / "source")
    linked = build(source, tmp_path / "linked", precision="f32", weights="link")
    data = linked.path / "model.onnx.data"
    assert linked.linked and data.samefile(source / "model.safetensors") and not data.is_symlink()
    assert any("another name of the checkpoint's file" in remark for remark in linked.remarks)
    assert linked.nbytes < data.stat().st_size
    assert is_whole(linked.path)
    copied = build(source, tmp_path / "copied", precision="f32")
    assert not copied.linked
    ours, theirs = weights(linked.path), weights(copied.path)
    assert set(ours) == set(theirs)
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name])
    np.testing.assert_array_equal(run(linked.path), run(copied.path))
    provenance = json.loads((linked.path / "provenance.json").read_text())
    assert provenance["build"]["linked_files"] == ["model.onnx.data"]


def test_what_cannot_be_linked_is_copied_and_said(packages, tmp_path):
    source = widened(tmp_path / "source", np.float16)
    built = build(source, tmp_path / "p", target="cuda", precision="f16", weights="link")
    assert built.linked and (built.path / "model.onnx.data").stat().st_nlink == 1
    link = built.path / "checkpoint-00001-of-00001.safetensors"
    assert link.samefile(source / "model.safetensors")
    assert (
        "copied, not linked: model.embed_tokens_per_layer.0.weight and 9 more: only a part of a tensor is needed"
        in built.remarks
    )
    assert is_whole(built.path)
    np.testing.assert_array_equal(run(built.path), run(packages("tiny", "cuda", "f16")))


def test_shards_are_linked_one_by_one(packages, tmp_path):
    source = widened(tmp_path / "source")
    names = shard(source, 2)
    for name in names:  # pad the header, so that elements are aligned
        from safetensors.numpy import load_file, save_file

        save_file(load_file(source / name), source / name)
    built = build(source, tmp_path / "p", precision="f32", weights="link")
    links = sorted(built.path.glob("checkpoint-*"))
    assert [path.name for path in links] == [f"checkpoint-0000{i}-of-00002.safetensors" for i in (1, 2)]
    assert {path.stat().st_ino for path in links} == {(source / name).stat().st_ino for name in names}
    assert not (built.path / "model.onnx.data").exists()
    assert is_whole(built.path)
    np.testing.assert_array_equal(run(built.path), run(packages()))


def test_another_dtype_is_copied(tmp_path):
    built = build(SOURCE, tmp_path / "p", precision="f16", weights="link")
    assert not built.linked and any(
        remark.endswith(": the checkpoint holds BF16") for remark in built.remarks
    )


def test_odd_offsets_are_copied(tmp_path):
    """A header may have any length; safetensors itself pads it to a multiple of eight."""
    source, name = widened(tmp_path / "source"), "model.vision_tower."
    while (8 + int.from_bytes((source / "model.safetensors").read_bytes()[:8], "little")) % 4 == 0:
        name += "x"
        change(source, lambda tensors, name=name: tensors | {name: ("F32", [1], bytes(4))})
    built = build(source, tmp_path / "p", precision="f32", weights="link")
    assert not built.linked
    assert any("which is no multiple of its element's size" in remark for remark in built.remarks)


# refusals


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"target": "cudaa"}, TargetError, "unknown target 'cudaa'; expected one of default, onnx-standard, cuda"),
        ({"precision": "fp16"}, TargetError, "unknown precision 'fp16'; expected one of f32, f16, bf16"),
        ({"target": "webgpu", "precision": "bf16"}, TargetError, "target 'webgpu' cannot carry 'bf16'"),
        ({"weights": "move"}, PackageError, "weights is 'move'; expected 'copy' or 'link'"),
        ({"logits_to_keep": -1}, PackageError, "logits_to_keep is -1; expected 0, for all, or up to 2147483647"),
        ({"logits_to_keep": 10**20}, PackageError, "is 100000000000000000000; expected 0, for all, or up to 2"),
        ({"target": "cuda", "logits_to_keep": 2}, TargetError, "the kernels of 'cuda' keep all positions or the last"),
        ({"license": "\udcff"}, PackageError, "license is '\\udcff'; expected an identifier, such as apache-2.0"),
        ({"license": "a\nb"}, PackageError, "license is 'a\\nb'; expected an identifier"),
    ],
)  # fmt: skip
def test_wrong_requests_are_refused_before_anything_is_read(tmp_path, options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        build(tmp_path / "no such source", tmp_path / "p", **options)


def test_a_source_whose_name_is_no_text(tmp_path):
    source = copy(tmp_path / os.fsdecode(b"bad\xff"))
    command = ["cabochon", "build", str(source)]
    package = build(source, tmp_path / "p", command=command).path
    assert json.loads((package / "provenance.json").read_bytes())["build"]["command"] == command
    assert "bad\\udcff" in (package / "README.md").read_text("utf-8")
    assert is_whole(package)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_no_number_is_named(tmp_path, value):
    def spoil(tensors):
        dtype, shape, data = tensors["model.norm.weight"]
        return tensors | {"model.norm.weight": (dtype, shape, np.float32(value).tobytes() + data[4:])}

    source = change(widened(tmp_path / "source"), spoil)
    for precision, weights in (("f32", "copy"), ("f32", "link"), ("f16", "copy")):
        with pytest.raises(TensorError, match=f"holds {value}; expected finite numbers") as caught:
            build(source, tmp_path / "p", precision=precision, weights=weights)
        assert caught.value.at == "model.norm.weight"
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_what_is_refused_leaves_nothing(tmp_path):
    source = copy(tmp_path / "source")
    (source / "tokenizer.json").unlink()
    with pytest.raises(PackageError, match="the checkpoint has no tokenizer"):
        build(source, tmp_path / "p")
    with pytest.raises(PackageError, match="OUT lies inside "):
        build(source, source / "onnx", allow_missing=["tokenizer"])
    with pytest.raises(PackageError, match="OUT exists already"):
        build(source, source, allow_missing=["tokenizer"])
    with pytest.raises(ConfigError):
        build(copy(tmp_path / "other", hidden_sizes=3), tmp_path / "p")
    shard(copy(tmp_path / "stale"))
    (tmp_path / "stale" / "model-00004-of-00004.safetensors").write_bytes(b"")
    with pytest.raises(SourceError, match=r"does not name model-00004-of-00004\.safetensors"):
        build(tmp_path / "stale", tmp_path / "p")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "source", "stale"]
    built = build(source, tmp_path / "p", allow_missing=["tokenizer"])
    assert "the package has no tokenizer (tokenizer.json and tokenizer_config.json)" in built.remarks


def test_a_value_that_f16_cannot_hold_is_named(tmp_path):
    source = widened(tmp_path / "source")

    def too_large(tensors):
        dtype, shape, data = tensors["model.norm.weight"]
        return tensors | {"model.norm.weight": (dtype, shape, np.float32(1e6).tobytes() + data[4:])}

    change(source, too_large)
    with pytest.raises(TensorError, match="holds 1e\\+06, which would be infinite in f16") as caught:
        build(source, tmp_path / "p")
    assert caught.value.at == "model.norm.weight" and caught.value.remedy == "build with f32 or bf16"
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    build(source, tmp_path / "p", precision="f32")


def test_remarks(tmp_path):
    built = build(SOURCE, tmp_path / "p", precision="bf16")
    assert isinstance(built, Built) and built.precision == "bf16" and built.seconds > 0
    assert built.nbytes == sum(len(content) for content in contents(built.path).values())
    assert any(remark.startswith("bf16 on default: no released onnxruntime") for remark in built.remarks)
    assert any(remark.startswith("the licence is unknown") for remark in built.remarks)
    source = copy(tmp_path / "source")
    (source / "README.md").write_text("---\nlicense: gemma\n---\n")
    other = build(source, tmp_path / "q", license="mit")
    assert other.remarks == ("--license mit is not used: the source's README.md: license: gemma",)


@pytest.mark.parametrize("weights", ["copy", "link"])
def test_progress_is_told_every_byte(tmp_path, weights):
    told = []

    class Told:
        def start(self, nbytes):
            told.append(nbytes)

        def advance(self, nbytes):
            told.append(-nbytes)

        def done(self):
            told.append("done")

    source = widened(tmp_path / "source")
    built = build(source, tmp_path / "p", precision="f32", weights=weights, progress=Told())
    assert built.linked == (weights == "link")
    assert told[-1] == "done" and sum(told[:-1]) == 0
    assert told[0] == (built.path / "model.onnx.data").stat().st_size


# builds that do not end

LOADED = """
    # What a build imports, once for the processes that are forked, each of which would take two seconds for it.
    import jinja2.sandbox, onnx_ir, onnxruntime, tokenizers
    from cabochon.gemma4 import trace
    from cabochon.metadata import annotate, folder, loop
    from cabochon.package import text_package
    from cabochon.validation import rules, validate
    rules.load()
"""
KILLED = (
    LOADED
    + """
    import os, signal, sys
    import cabochon
    from cabochon import files
    from cabochon.package import assembly, build

    def die(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGKILL)

    class Dying:
        def start(self, nbytes):
            moment == "start" and die()
        def advance(self, nbytes):
            moment == "data" and die()
        def done(self):
            moment == "done" and die()

    source, root, *moments = sys.argv[1:]
    for moment in moments:
        out = os.path.join(root, moment, "package")
        if child := os.fork():
            assert os.waitpid(child, 0)[1] == signal.SIGKILL, moment
            continue
        sync = files._sync_folder
        if moment == "documents":
            assembly._describe = die
        if moment == "check":
            assembly.finish = die
        if moment == "rename":
            files.Path.rename = die
        if moment == "synced":
            files._sync_folder = die
        if moment == "after":
            files._sync_folder = lambda folder: die() if os.path.exists(out) else sync(folder)
        build(source, out, progress=Dying())
        os._exit(1)
"""
)
MOMENTS = ["start", "data", "documents", "check", "done", "synced", "rename", "after"]


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Folders with what is left of builds that were killed, by moment."""
    root = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(SOURCE), str(root), *MOMENTS]
    subprocess.run(command, check=True)
    return root


@pytest.mark.parametrize("moment", MOMENTS)
def test_sigkill_leaves_nothing_under_the_final_name_and_a_rerun_works(killed, moment):
    out = killed / moment / "package"
    if moment == "after":  # the rename is the last step: what stands there is complete
        assert is_whole(out)
        return
    assert not out.exists()
    assert any(path.name.startswith(".package.stage-") for path in out.parent.iterdir())
    assert is_complete(build(SOURCE, out).path)
    assert [path.name for path in out.parent.iterdir()] == ["package"]
    assert is_whole(out)


SLOW = """
    import sys, time
    import cabochon

    class Slow:
        def start(self, nbytes):
            print("started", flush=True)
        def advance(self, nbytes):
            time.sleep(0.02)
        def done(self):
            pass

    cabochon.build(sys.argv[1], sys.argv[2], progress=Slow())
"""


@pytest.mark.parametrize("number, code", [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, None)])
def test_a_signal_from_outside(tmp_path, number, code):
    out = tmp_path / "package"
    command = [sys.executable, "-c", textwrap.dedent(SLOW), str(SOURCE), str(out)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"started\n"
    time.sleep(0.1)
    child.send_signal(number)
    child.communicate()
    assert child.returncode == code if code else child.returncode != 0
    assert not out.exists()
    if number == signal.SIGINT:
        assert list(tmp_path.iterdir()) == []
    assert is_complete(build(SOURCE, out).path)


LIMITED = (
    LOADED
    + """
    import os, resource, signal, sys
    import cabochon
    from cabochon.package import build

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    for limit in sys.argv[3:]:
        if child := os.fork():
            os.waitpid(child, 0)
            continue
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
        try:
            build(sys.argv[1], sys.argv[2])
        except cabochon.CabochonError as error:
            print(type(error).__name__, error.message, flush=True)
        os._exit(0)
"""
)


def test_a_file_that_may_not_grow_is_a_clean_error(tmp_path):
    limits = ["0", "4097", "500000"]
    command = [
        sys.executable,
        "-Wignore::DeprecationWarning",  # of forks beside threads, which libraries have started
        "-c",
        textwrap.dedent(LIMITED),
        str(SOURCE),
        str(tmp_path / "package"),
        *limits,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    expected = "PackageError the package could not be written: file too large; nothing was left behind\n"
    assert (done.stdout, done.stderr) == (expected * len(limits), "")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 3 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_space_is_checked_before_starting(small_disk, monkeypatch):
    class Never:
        def start(self, nbytes):
            pytest.fail("writing has begun")

    with pytest.raises(PackageError, match=r"the package needs [\d,]+ bytes; [\d,]+ are free on this disk"):
        build(SOURCE, small_disk / "p", precision="f32", progress=Never())
    assert list(small_disk.iterdir()) == []


def test_a_disk_that_fills_up_meanwhile(small_disk):
    class Filling:
        def start(self, nbytes):
            (small_disk / "other").write_bytes(bytes(2_200_000))

        def advance(self, nbytes):
            pass

    with pytest.raises(PackageError, match=r"no space left on device.*; nothing was left behind") as caught:
        build(SOURCE, small_disk / "p", progress=Filling())
    assert caught.value.remedy == "free space or choose a folder on another disk"
    assert [path.name for path in small_disk.iterdir()] == ["other"]


def test_a_link_to_another_filesystem_is_a_copy(small_disk):
    source = widened(small_disk.parent / "source", np.float16)
    built = build(source, small_disk / "p", precision="f16", weights="link")
    assert not built.linked
    assert any(remark.endswith("the checkpoint lies on another filesystem") for remark in built.remarks)


def test_a_graph_that_fails_ends_the_writing_and_leaves_nothing(tmp_path, monkeypatch):
    told = []

    class Told:
        def start(self, nbytes):
            told.append(nbytes)

        def advance(self, nbytes):
            time.sleep(0.01)

    def fail(*known):
        raise GraphError("no such operator")

    monkeypatch.setattr(filling, "trace", fail)
    with pytest.raises(GraphError, match="no such operator"):
        build(SOURCE, tmp_path / "p", progress=Told())
    assert told and list(tmp_path.iterdir()) == []


def test_a_graph_of_other_weights_than_were_written_is_refused(tmp_path, monkeypatch):
    short = replace(TEXT, weights=lambda *known: {"": TEXT.weights(*known)[""][1:]})
    monkeypatch.setitem(KINDS, "text", short)
    with pytest.raises(GraphError, match="must be in both") as caught:
        build(SOURCE, tmp_path / "p")
    assert caught.value.at == "model.embed_tokens.weight" and list(tmp_path.iterdir()) == []
