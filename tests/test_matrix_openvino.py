"""The variants of a matrix that OpenVINO makes: IR of onnx-standard, EPContext of IR; and how they are used."""

import json
import re
import shutil
from pathlib import Path

import pytest

from cabochon import sums
from cabochon.errors import PackageError
from cabochon.matrix import build_matrix
from cabochon.matrix.present import present
from packages import TINY

openvino = pytest.importorskip("openvino", reason="openvino is not installed: pip install cabochon[openvino]")

CHAIN = ["Q4_K_M/onnx-standard", "openvino-ir", "openvino-epcontext"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of the chain for the last of it."""
    out = tmp_path_factory.mktemp("openvino") / "out"
    ran = build_matrix(TINY / "text", out, only=["openvino-epcontext"])
    assert [(outcome.folder, outcome.status) for outcome in ran.variants] == [(f, "built") for f in CHAIN]
    assert {outcome.folder: outcome.nbytes for outcome in ran.variants} == sizes(out)
    return out


def sizes(out: Path) -> dict[str, int]:
    """By folder the bytes of what stands there, as the index has them."""
    return {package.folder: package.nbytes for package in present(out)}


def test_one_is_made_of_the_other(out: Path) -> None:
    for folder in CHAIN:
        assert not sums.verify(out / folder)
    ir, wrapped = out / "openvino-ir", out / "openvino-epcontext"
    assert (ir / "openvino_model.bin").samefile(wrapped / "model.bin")
    command = json.loads((ir / "provenance.json").read_text())["build"]["command"]
    assert command == ["cabochon", "convert", "Q4_K_M/onnx-standard", "openvino-ir", "--to", "openvino-ir"]
    text = (out / "README.md").read_text()
    assert "| [`openvino-ir`](openvino-ir) | Q4_K_M | openvino-ir |" in text


def test_what_was_made_of_another_is_another(out: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(out, tmp_path / "out"))
    kept = build_matrix(TINY / "text", copy, only=CHAIN)
    assert kept.complete and {outcome.folder: outcome.nbytes for outcome in kept.variants} == sizes(copy)
    record = json.loads((copy / "openvino-ir/provenance.json").read_text())
    record["converted_from"]["files"] = {}
    (copy / "openvino-ir/provenance.json").write_text(json.dumps(record))
    with pytest.raises(
        PackageError, match=r"openvino-ir is another package: it was made of another onnx-standard"
    ):
        build_matrix(TINY / "text", copy, only=CHAIN)


def blocks(out: Path, title: str) -> list[str]:
    section = (out / "README.md").read_text().partition(f"### {title}\n")[2].partition("\n##")[0]
    return re.findall(r"```python\n(.*?)\n```", section, re.DOTALL)


def test_usage(out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(out)
    found = blocks(out, "OpenVINO")
    assert len(found) == 2
    for code in found:
        exec(compile(code, "README.md", "exec"), {})
        assert capsys.readouterr().out.strip()


def test_usage_of_epcontext_compiles(out: Path) -> None:
    """No device of the provider is where the tests run."""
    (code,) = blocks(out, "OpenVINO's execution provider of ONNX Runtime")
    assert '"openvino-epcontext/model.onnx"' in code and compile(code, "README.md", "exec")
