"""Evidence files: whole, finite JSON, bound to the package's bytes, known to SHA256SUMS."""

import hashlib
import json
import shutil
from pathlib import Path

from cabochon.evidence import identity, versions, write
from packages import Packages


def sums(package: Path) -> dict[str, str]:
    lines = (package / "SHA256SUMS").read_text().splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def test_a_new_file_joins_the_checksums_and_a_second_writing_replaces_it(
    packages: Packages, tmp_path: Path
) -> None:
    package = shutil.copytree(packages(), tmp_path / "p")
    before = sums(package)
    for figure in (1.0, 2.0):
        assert write(package, "l4_parity.json", {"figure": figure}) == "evidence/l4_parity.json"
        file = package / "evidence" / "l4_parity.json"
        assert json.loads(file.read_text()) == {"figure": figure}
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        assert sums(package) == before | {"evidence/l4_parity.json": digest}
        assert list(sums(package)) == sorted(sums(package))
    assert sorted(p.name for p in (package / "evidence").iterdir()) == ["l4_parity.json", "validation.json"]


def test_a_folder_without_checksums_gets_none(tmp_path: Path) -> None:
    write(tmp_path, "x.json", {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["evidence"]


def test_what_is_no_number_is_said_in_words(tmp_path: Path) -> None:
    write(tmp_path, "x.json", {"a": [float("nan"), (float("-inf"), 1.5)], "ключ": "да"})
    text = (tmp_path / "evidence" / "x.json").read_text(encoding="utf-8")
    assert json.loads(text) == {"a": ["nan", ["-inf", 1.5]], "ключ": "да"}
    assert "ключ" in text


def test_identity_is_measured_on_the_files(packages: Packages) -> None:
    package = packages()
    found = identity(package, {"cabochon.target": "default", "cabochon.precision": "f32"})
    assert (found["target"], found["precision"]) == ("default", "f32")
    assert found["sha256"] == {name: sums(package)[name] for name in ("model.onnx", "model.onnx.data")}


def test_versions_are_those_installed() -> None:
    assert {"python", "cabochon", "numpy", "onnxruntime"} <= versions().keys()
    assert "torch" not in versions() and "pytest" in versions("pytest", "no-such-library")
    assert "no-such-library" not in versions("no-such-library")
