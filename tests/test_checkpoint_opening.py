import json
import os
import shutil

import pytest

import checkpoints
from cabochon.checkpoint import Checkpoint, Tensor, open_checkpoint
from cabochon.errors import ConfigError, SourceError, UnsupportedError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(tmp_path):
    return checkpoints.copy(tmp_path / "checkpoint")


def test_a_folder_is_opened_as_it_is(folder):
    opened = open_checkpoint(folder)
    assert isinstance(opened, Checkpoint)
    assert opened.source == str(folder)
    assert opened.root == folder.resolve()
    assert (opened.id, opened.revision, opened.remarks) == (None, None, ())
    assert opened.config == json.loads((folder / "config.json").read_bytes())
    assert opened.tensors["model.embed_tokens.weight"] == Tensor(
        "model.embed_tokens.weight", "BF16", (512, 64), folder.resolve() / "model.safetensors",
        opened.tensors["model.embed_tokens.weight"].offset, 65536,
    )  # fmt: skip
    assert set(opened.files) == {
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    with pytest.raises(TypeError):
        opened.tensors["x"] = None


def test_no_weight_is_read(folder, monkeypatch):
    """A checkpoint whose data is a hole of 1 TiB opens at once."""
    header = {"big": {"dtype": "BF16", "shape": [1 << 39], "data_offsets": [0, 1 << 40]}}
    file = folder / "model.safetensors"
    file.write_bytes(checkpoints.raw(header))
    os.truncate(file, file.stat().st_size + (1 << 40))
    assert open_checkpoint(folder).tensors["big"].nbytes == 1 << 40


def test_a_hub_cache_of_symlinks_is_read_through(tmp_path):
    snapshot = checkpoints.hub_cache(tmp_path, checkpoints.TINY / "text", "org/tiny", COMMIT)
    opened = open_checkpoint(str(snapshot))
    assert (opened.id, opened.revision) == ("org/tiny", COMMIT)
    real = [*opened.files.values(), *(tensor.file for tensor in opened.tensors.values())]
    assert all(file.parent.name == "blobs" and not file.is_symlink() for file in real)
    plain = open_checkpoint(checkpoints.TINY / "text")
    assert {n: bytes(t.raw()) for n, t in opened.tensors.items()} == {
        n: bytes(t.raw()) for n, t in plain.tensors.items()
    }
    assert open_checkpoint(snapshot, revision=COMMIT).revision == COMMIT
    with pytest.raises(
        SourceError, match=f"revision 'main' was asked for, but this is a local folder at {COMMIT}"
    ):
        open_checkpoint(snapshot, revision="main")


def test_a_symlinked_cache_of_shards(tmp_path):
    sharded = checkpoints.copy(tmp_path / "plain")
    checkpoints.shard(sharded)
    snapshot = checkpoints.hub_cache(tmp_path / "cache", sharded, "org/tiny", COMMIT)
    assert len(open_checkpoint(snapshot).tensors) == 163


def test_a_blob_that_was_deleted_is_named(tmp_path):
    snapshot = checkpoints.hub_cache(tmp_path, checkpoints.TINY / "text", "org/tiny", COMMIT)
    for name in ("tokenizer.json", "model.safetensors", "config.json"):
        (snapshot / name).resolve().unlink()
        with pytest.raises(SourceError, match=f"{name}: a link that leads to no file"):
            open_checkpoint(snapshot)


def test_a_revision_of_a_plain_folder_is_refused(folder):
    with pytest.raises(
        SourceError, match="revision 'main' was asked for, but this is a local folder without"
    ):
        open_checkpoint(folder, revision="main")


def config_is(text):
    return lambda folder: (folder / "config.json").write_bytes(text)


def weights_are(name):
    return lambda folder: (folder / "model.safetensors").rename(folder / name)


def no_config(folder):
    (folder / "config.json").unlink()


def config_is_a_folder(folder):
    no_config(folder)
    (folder / "config.json").mkdir()


def tokenizer_is_a_pointer(folder):
    (folder / "tokenizer.json").write_bytes(checkpoints.POINTER)


QUANTIZED = b'{"model_type": "gemma4_text", "quantization_config": {"quant_method": "awq"}}'
TWICE = b'{"model_type": "a", "model_type": "b"}'

BROKEN = {
    "no config": (no_config, SourceError, "config.json: is missing"),
    "config is a folder": (config_is_a_folder, SourceError, "config.json: is not a file"),
    "config is empty": (config_is(b""), ConfigError, "config.json: not JSON"),
    "config is a list": (config_is(b"[]"), ConfigError, "config.json: the top is a list"),
    "config says it twice": (
        config_is(TWICE),
        ConfigError,
        "config.json: the key 'model_type' is given twice",
    ),
    "config is a pointer": (
        config_is(checkpoints.POINTER),
        SourceError,
        "config.json: this is a Git LFS pointer",
    ),
    "tokenizer is a pointer": (
        tokenizer_is_a_pointer,
        SourceError,
        "tokenizer.json: this is a Git LFS pointer",
    ),
    "no weights": (weights_are("weights"), SourceError, "neither model.safetensors nor"),
    "only an adapter": (weights_are("adapter_model.safetensors"), UnsupportedError, "a LoRA adapter"),
    "only pickles": (weights_are("pytorch_model.bin"), UnsupportedError, "none was opened"),
    "only GGUF": (weights_are("q4.gguf"), UnsupportedError, "GGUF"),
    "quantized": (
        config_is(QUANTIZED),
        UnsupportedError,
        "quantization_config: the checkpoint is quantized (awq)",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_opened_says_why(folder, name):
    how, kind, message = BROKEN[name]
    how(folder)
    with pytest.raises(SourceError) as caught:
        open_checkpoint(folder)
    assert type(caught.value) is kind
    assert message in str(caught.value)
    assert caught.value.at.startswith(str(folder))
    assert caught.value.remedy


def test_a_folder_without_a_config_is_perhaps_another_one(folder):
    no_config(folder)
    with pytest.raises(SourceError, match="give the folder of the checkpoint") as caught:
        open_checkpoint(folder)
    assert caught.value.at == f"{folder}/config.json"


def test_a_shard_is_said_with_its_folder(folder):
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(SourceError) as caught:
        open_checkpoint(folder)
    assert caught.value.at == f"{folder}/model.safetensors"


def test_pickles_are_never_opened(folder):
    """Also where their content is no pickle and their owner may read them."""
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "pytorch_model.bin")  # opening it would wait for ever
    with pytest.raises(UnsupportedError, match="a pickle can run code, none was opened"):
        open_checkpoint(folder)


def test_pickles_beside_safetensors_are_left_alone(folder):
    (folder / "optimizer.pt").write_bytes(b"\x80\x02")
    assert "optimizer.pt" not in open_checkpoint(folder).files


def test_an_adapter_beside_the_checkpoint_is_a_remark(folder):
    (folder / "adapter_config.json").write_text("{}")
    assert "NOT applied" in open_checkpoint(folder).remarks[0]


def test_the_check_sees_the_config_and_may_refuse(folder):
    seen = []
    open_checkpoint(folder, check=seen.append)
    assert seen == [checkpoints.tiny_config()]

    def refuse(config):
        raise UnsupportedError("not this one")

    with pytest.raises(UnsupportedError, match="not this one"):
        open_checkpoint(folder, check=refuse)


def test_a_folder_without_permission_is_no_traceback(folder, monkeypatch):
    def denied(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.read_bytes", denied)
    with pytest.raises(SourceError, match="Permission denied"):
        open_checkpoint(folder)


def test_nothing_is_written_beside_the_checkpoint(folder):
    before = sorted(folder.iterdir())
    open_checkpoint(folder)
    assert sorted(folder.iterdir()) == before
    shutil.rmtree(folder)
    with pytest.raises(SourceError, match="no such folder"):
        open_checkpoint(folder)
