from pathlib import Path

import pytest

from cabochon.checkpoint.source import hub_id_of, snapshot_identity
from cabochon.errors import SourceError, UnsupportedError

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize("source", ["google/gemma-4-E2B-it", "org/name", "o1/a.b_c-d"])
def test_what_does_not_exist_here_and_has_the_form_is_a_hub_id(source):
    assert hub_id_of(source) == source


def test_what_exists_here_is_local(tmp_path, monkeypatch):
    (tmp_path / "org" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert hub_id_of("org/name") is None
    assert hub_id_of(Path("org/name")) is None
    assert hub_id_of("org/other") == "org/other"


@pytest.mark.parametrize(
    "source", ["./x", "../x", "/no/such/x", "a/b/c", "name", "~/no-such-folder", "org/", "org/na me"]
)
def test_a_missing_folder_is_an_error(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError, match="no such folder"):
        hub_id_of(source)


def test_a_path_is_never_a_hub_id():
    with pytest.raises(SourceError, match="no such folder"):
        hub_id_of(Path("org/name"))


def test_an_address_is_not_a_source():
    with pytest.raises(SourceError, match="is an address") as caught:
        hub_id_of("https://example.org/google/gemma-4-E2B-it")
    assert "org/name" in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("model.safetensors", SourceError, "one file of a checkpoint"),
        ("model.gguf", UnsupportedError, "GGUF"),
        ("pytorch_model.bin", SourceError, "expected the folder"),
    ],
)
def test_a_file_is_not_a_source(tmp_path, name, kind, message):
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(kind, match=message):
        hub_id_of(str(tmp_path / name))


def test_a_snapshot_knows_its_id_and_commit(tmp_path):
    snapshot = tmp_path / "models--org--a--b" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(snapshot)
    assert snapshot_identity(snapshot) == ("org/a--b", COMMIT)
    assert snapshot_identity(link) == ("org/a--b", COMMIT)
    assert snapshot_identity(tmp_path) == (None, None)
    assert snapshot_identity(snapshot.parent) == (None, None)
