"""`check` and `compare` of quantized packages, live against transformers: what passes, and what does not."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import quantized
from cabochon.errors import ParityError
from cabochon.parity import check, checking, compare, full
from cabochon.parity.full_prompts import everything
from cabochon.parity.known import check_known
from cabochon.parity.prompts import prompts
from packages import TINY, Packages

ASKED = ("english", "chinese", "image", "audio", "video")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few of the prompts."""

    def texts(*given: Any, **more: Any) -> list[Any]:
        return [prompt for prompt in prompts(*given, **more) if prompt.name in ASKED]

    def media(*given: Any) -> list[Any]:
        return [one for one in everything(*given) if one.name in ASKED]

    monkeypatch.setattr(checking, "prompts", texts)
    monkeypatch.setattr(full, "everything", media)


def document(package: Path, name: str) -> dict[str, Any]:
    return json.loads((package / "evidence" / name).read_text("utf-8"))


def test_published_answers_are_for_weights_that_were_never_in_blocks(
    packages: Packages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cabochon.parity.known._recognised", lambda *_: (None, ""))
    with pytest.raises(
        ParityError, match="is Q4_K_M: published answers are those of weights that were never in blocks"
    ):
        check_known(packages(precision="Q4_K_M"))


def test_beside_a_package_without_blocks(packages: Packages) -> None:
    found = compare(packages(precision="Q4_K_M"), packages(), threads=1)
    assert found.metadata["cabochon.precision"] == ("Q4_K_M", "f32")
    small, large = found.sizes["model.onnx.data"]
    assert small is not None
    assert large is not None
    assert small < 0.75 * large, "small tensors stand on pages of their own"
    divergences = [pair.divergence for pair in found.pairs if pair.divergence is not None]
    assert len(divergences) == len(found.pairs)
    assert 0 < min(divergences) < max(divergences) < 10
    assert all(0 < pair.relative < 2 for pair in found.pairs)
    json.dumps(found.as_json())


@pytest.mark.parity
def test_a_text_package_passes(packages: Packages, few: None, tmp_path: Path) -> None:
    package = shutil.copytree(packages(precision="Q4_K_M"), tmp_path / "p")
    evidence = check(package, TINY / "text", threads=1, scratch=tmp_path)
    assert [v.level for v in evidence.verdicts if not v.passed] == []
    assert [v.level for v in evidence.verdicts][-2:] == ["weights", "quality"]
    itself, twin = document(package, "l4_parity.json")["trials"]
    assert "int8" in itself["reference_arithmetic_dtype"]
    assert "asked to round nothing" in twin["how"] and "codes, scales and zero points" in twin["how"]
    assert twin["threshold"]["max_relative_difference"] == 1e-4
    assert max(p["max_relative_difference"] for p in twin["prompts"]) <= 1e-4
    generated = document(package, "l5_generation.json")["trials"]
    assert {p["verdict"] for p in generated[1]["prompts"]} == {"equal"}
    assert "half" not in generated[0]["rule"]
    reference = document(package, "l4_parity.json")["reference"]
    assert reference["replaced"][0].startswith("4 bits in blocks of 32: ")
    assert max(document(package, "dequantized.json")["relative_rms_difference"].values()) < 0.16
    kept = document(package, "quality.json")
    assert "passed" not in kept
    assert [trial["how"].split(" on ")[0] for trial in kept["reported_only"]] == [
        "the package itself",
        "f32 twin of the package",
    ]


@pytest.mark.parity
def test_a_weight_of_another_layer_is_told(packages: Packages, few: None, tmp_path: Path) -> None:
    """The reference follows the package's bytes, so that only the comparison with the checkpoint's can tell."""
    package = shutil.copytree(packages(precision="Q4_K_M"), tmp_path / "p")
    graph, data = package / "model.onnx", bytearray((package / "model.onnx.data").read_bytes())
    first, second = (f"model.layers.{i}.mlp.gate_proj.weight" for i in (1, 2))
    for suffix in ("", "_scales"):
        data[quantized.span(graph, first + suffix)] = data[quantized.span(graph, second + suffix)]
    (package / "model.onnx.data").write_bytes(data)
    verdicts = {v.level: v for v in check(package, TINY / "text", threads=1).verdicts}
    assert verdicts["L4 logits"].passed
    assert not verdicts["weights"].passed
    assert first in verdicts["weights"].summary


@pytest.mark.parity
def test_a_full_package_passes(packages: Packages, few: None, tmp_path: Path) -> None:
    package = shutil.copytree(packages("tiny-full", precision="Q4_K_M"), tmp_path / "p")
    evidence = check(package, TINY / "target", threads=1)
    assert [v.level for v in evidence.verdicts if not v.passed] == []
    for name in ("vision_encoder", "audio_encoder", "embedding", "decoder"):
        exact = document(package, f"l4_{name}.json")["trials"][1]
        assert max(row["max_relative_difference"] for row in exact["prompts"]) <= 1e-4
    assert len(document(package, "dequantized.json")["relative_rms_difference"]) > 100
