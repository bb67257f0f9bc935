"""A hub on the loopback serves the tiny checkpoint; huggingface_hub fetches it into a cache."""

import json
import os
import subprocess
import sys

import pytest
from huggingface_hub import constants

import checkpoints
from cabochon.checkpoint import open_checkpoint
from cabochon.errors import SourceError, UnsupportedError
from hub_server import COMMIT, Hub, serving

TEXT = checkpoints.TINY / "text"
ID = "org/tiny"


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with serving(Hub({ID: TEXT})) as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.endpoint)
        template = running.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield running


def same_bytes(opened, folder=TEXT):
    plain = open_checkpoint(folder)
    return {n: bytes(t.raw()) for n, t in opened.tensors.items()} == {
        n: bytes(t.raw()) for n, t in plain.tensors.items()
    }


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_a_hub_id_is_fetched_and_its_commit_recorded(hub, tmp_path, revision):
    opened = open_checkpoint(ID, revision=revision)
    assert (opened.source, opened.id, opened.revision) == (ID, ID, COMMIT)
    assert opened.root == tmp_path / "cache" / "models--org--tiny" / "snapshots" / COMMIT
    assert same_bytes(opened)
    assert set(opened.files) == {file.name for file in TEXT.iterdir()} - {"model.safetensors"}
    fetched = hub.fetched()
    assert fetched.count("model.safetensors") == 1 and fetched[-1] == "model.safetensors", "weights come last"
    assert open_checkpoint(opened.root).id == ID, "the snapshot's folder knows where it came from"


def test_only_what_a_build_needs_is_fetched(hub, tmp_path):
    folder = checkpoints.copy(tmp_path / "repository")
    for name in (
        "README.md",
        "LICENSE",
        "tokenizer.model",
        "model.gguf",
        "pytorch_model.bin",
        "adapter_model.safetensors",
        "a.png",
    ):
        (folder / name).write_text(name)
    (folder / "original").mkdir()
    (folder / "original" / "params.json").write_text("{}")
    (folder / "original" / "x.safetensors").write_bytes(b"x")
    hub.repositories[ID] = folder
    open_checkpoint(ID)
    wanted = {file.name for file in TEXT.iterdir()} | {"README.md", "LICENSE", "tokenizer.model"}
    assert set(hub.fetched()) == wanted


def test_what_is_in_the_cache_is_not_fetched_again(hub):
    open_checkpoint(ID)
    before = len(hub.fetched())
    assert same_bytes(open_checkpoint(ID))
    assert len(hub.fetched()) == before


def test_a_broken_connection_is_resumed_in_the_middle_of_the_file(hub, monkeypatch):
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 10_000)
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub.drop_after["model.safetensors"] = [100_000]
    opened = open_checkpoint(ID)
    assert same_bytes(opened)
    ranges = [
        wanted for method, path, wanted in hub.asked if method == "GET" and path.endswith("model.safetensors")
    ]
    assert ranges == [None, "bytes=100000-"]


def test_an_interrupted_download_keeps_its_finished_files(hub, tmp_path, monkeypatch):
    folder = checkpoints.copy(tmp_path / "repository")
    names = checkpoints.shard(folder)
    hub.repositories[ID] = folder
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub.drop_after[names[2]] = [0] * 50
    with pytest.raises(SourceError, match="the download failed"):
        open_checkpoint(ID)
    assert set(names) <= set(hub.fetched())
    hub.drop_after.clear()
    hub.asked.clear()
    assert same_bytes(open_checkpoint(ID), folder)
    assert hub.fetched() == [names[2]]


def test_a_check_refuses_before_weights_are_fetched(hub, tmp_path):
    def refuse(config):
        raise UnsupportedError(f"not {config['model_type']}")

    with pytest.raises(UnsupportedError, match="not gemma4_text"):
        open_checkpoint(ID, check=refuse)
    hub.repositories["org/quantized"] = checkpoints.copy(
        tmp_path / "q", quantization_config={"quant_method": "gptq"}
    )
    with pytest.raises(UnsupportedError, match="gptq"):
        open_checkpoint("org/quantized")
    assert "model.safetensors" not in hub.fetched()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"model.gguf": "", "README.md": ""}, "GGUF"),
        ({"pytorch_model.bin": "", "config.json": "{}"}, "none was opened"),
        ({"adapter_config.json": "{}", "adapter_model.safetensors": ""}, "LoRA adapter"),
    ],
)
def test_repositories_of_other_kinds_are_refused_by_name(hub, tmp_path, files, message):
    folder = tmp_path / "repository"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content)
    hub.repositories["org/other"] = folder
    with pytest.raises(UnsupportedError, match=message):
        open_checkpoint("org/other")
    assert not {"model.gguf", "pytorch_model.bin", "adapter_model.safetensors"} & set(hub.fetched())


def test_a_repository_without_weights(hub, tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "README.md").write_text("nothing here")
    hub.repositories["org/empty"] = folder
    with pytest.raises(SourceError, match="org/empty: the repository holds no safetensors"):
        open_checkpoint("org/empty")


def failing(message, remedy, source=ID, revision=None):
    with pytest.raises(SourceError) as caught:
        open_checkpoint(source, revision=revision)
    assert message in caught.value.message
    assert remedy in caught.value.remedy
    assert caught.value.at == (f"{source}@{revision}" if revision else source)


def test_each_failure_of_the_hub_has_its_own_error(hub):
    failing(
        "no such repository on the hub (or a private one), and no such folder here",
        "check the spelling",
        "org/none",
    )
    failing("no such revision", "/commits/main", revision="v9")
    hub.gated.add(ID)
    failing("gated: access must be granted", f"accept the terms at {hub.endpoint}/{ID}")


def test_a_hub_that_does_not_answer(hub, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    failing("http://127.0.0.1:9 did not answer", "check the connection")


def test_a_download_that_fails_for_good(hub, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    hub.drop_after["model.safetensors"] = [0] * 50
    with pytest.raises(SourceError, match="the download failed") as caught:
        open_checkpoint(ID)
    assert "run again: finished files are kept" in caught.value.remedy


def run(environment, *arguments):
    """open_checkpoint in a process of its own, where huggingface_hub reads its variables."""
    code = (
        "import json, sys\n"
        "from cabochon.checkpoint import open_checkpoint\n"
        "from cabochon.errors import SourceError\n"
        "try:\n"
        "    opened = open_checkpoint(sys.argv[1])\n"
        "    print(json.dumps([opened.id, opened.revision, len(opened.tensors)]))\n"
        "except SourceError as error:\n"
        "    print(json.dumps([type(error).__name__, str(error), error.remedy]))\n"
    )
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=clean | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_the_variables_of_huggingface_hub_are_respected(tmp_path):
    with serving(Hub({ID: TEXT})) as hub:
        home = {"HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": hub.endpoint}
        offline = home | {"HF_HUB_OFFLINE": "1"}
        kind, message, remedy = run(offline, ID)
        assert kind == "SourceError" and "HF_HUB_OFFLINE forbids fetching it" in message
        assert "unset HF_HUB_OFFLINE" in remedy
        assert hub.asked == []
        assert run(home, ID) == [ID, COMMIT, 163]
        hub.asked.clear()
        assert run(offline, ID) == [ID, COMMIT, 163]
        assert hub.asked == []
        next((tmp_path / "home").rglob("model.safetensors")).unlink()
        assert "not complete in the cache" in run(offline, ID)[1]
