import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from cabochon import sums
from cabochon.errors import PackageError

ZEROS = "0" * 64


def digest(data):
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def folder(tmp_path):
    """A package of three files, one in a folder of its own, with their sums."""
    (tmp_path / "evidence").mkdir()
    for name in ("b", "a b.json", "evidence/x.json"):
        (tmp_path / name).write_bytes(name.encode())
    sums.write(tmp_path, {})
    return tmp_path


def test_every_file_is_summed_in_the_form_of_sha256sum(folder):
    names = ("a b.json", "b", "evidence/x.json")
    text = "".join(f"{digest(name.encode())}  {name}\n" for name in names)
    assert (folder / "SHA256SUMS").read_text() == text
    assert sums.verify(folder) == []
    sums.write(folder, {})
    assert (folder / "SHA256SUMS").read_text() == text  # it never sums itself


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="the system has no sha256sum")
def test_sha256sum_agrees(folder):
    command = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    assert subprocess.run(command, cwd=folder).returncode == 0


def test_what_was_hashed_before_is_not_read_again(folder):
    sums.write(folder, {"b": ZEROS})
    assert sums.read(folder)["b"] == ZEROS
    assert sums.verify(folder) == ["b"]


def test_damaged_and_missing_files_are_found(folder):
    (folder / "a b.json").unlink()
    (folder / "evidence" / "x.json").write_bytes(b"evidence/x.jsoN")
    assert sums.verify(folder) == ["a b.json", "evidence/x.json"]
    (folder / "a b.json").mkdir()
    assert sums.verify(folder) == ["a b.json", "evidence/x.json"]


def test_a_line_is_added_or_replaced(folder):
    before = sums.read(folder)
    for data in (b"1", b"2"):
        (folder / "new").write_bytes(data)
        sums.note(folder, "new")
        assert sums.read(folder) == before | {"new": digest(data)}
    assert list(sums.read(folder)) == sorted([*before, "new"])
    assert sums.verify(folder) == []


def test_the_package_above_that_lists_these_sums_says_the_same(folder, monkeypatch):
    pair = folder / "pair"
    (pair / "target" / "evidence").mkdir(parents=True)
    (pair / "target" / "graph").write_bytes(b"1")
    sums.write(pair / "target", {})
    sums.write(pair, {})
    outside = (folder / "SHA256SUMS").read_bytes()
    monkeypatch.chdir(pair / "target")
    for n, package in enumerate((pair / "target", Path())):
        (package / "evidence" / "x.json").write_bytes(bytes([n]))
        sums.note(package, "evidence/x.json")
        assert sums.verify(pair) == sums.verify(pair / "target") == []
    assert "target/evidence/x.json" in sums.read(pair)
    assert (folder / "SHA256SUMS").read_bytes() == outside  # it does not list the pair


@pytest.mark.parametrize(
    "foreign", [None, b"\xff", b"x\n", f"{ZEROS} *inner/SHA256SUMS\n".encode(), f"{ZEROS}  y\n".encode()]
)
def test_sums_above_that_are_of_something_else_are_left_alone(folder, foreign):
    inner, above = folder / "inner", folder / "SHA256SUMS"
    inner.mkdir()
    (inner / "x").write_bytes(b"1")
    sums.write(inner, {})
    above.unlink() if foreign is None else above.write_bytes(foreign)
    sums.note(inner, "x")
    assert sums.verify(inner) == []
    assert (above.read_bytes() if above.exists() else None) == foreign


def test_a_folder_without_sums_gets_none_and_cannot_be_verified(tmp_path):
    (tmp_path / "x").write_bytes(b"")
    sums.note(tmp_path, "x")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]
    with pytest.raises(PackageError, match=r"cannot be read: .*No such file") as caught:
        sums.verify(tmp_path)
    assert caught.value.at == str(tmp_path / "SHA256SUMS") and "again" in caught.value.remedy


@pytest.mark.parametrize(
    "line", ["", "x", f"{ZEROS} x", f"{ZEROS[1:]}  x", f"{ZEROS}  ", f"{ZEROS}  /etc/passwd", f"{ZEROS}  a/../../x"]
)  # fmt: skip
def test_what_is_no_line_of_sums_is_said(folder, line):
    with (folder / "SHA256SUMS").open("a") as file:
        file.write(f"{line}\n")
    for ask in (sums.verify, lambda package: sums.note(package, "b")):
        with pytest.raises(PackageError, match="expected a SHA-256 and a file of the package") as caught:
            ask(folder)
        assert f"line 4 is {line!r}" in caught.value.message


def test_sums_that_are_no_text(folder):
    (folder / "SHA256SUMS").write_bytes(b"\xff\xfe")
    with pytest.raises(PackageError, match="cannot be read: 'utf-8' codec"):
        sums.verify(folder)
