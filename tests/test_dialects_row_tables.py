"""Tables that no binding of the target holds are stored as several, by rows."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

import cabochon
from cabochon.dialects import TARGETS
from cabochon.dialects.group_query import WebGpu
from cabochon.dialects.targets import row_tables
from cabochon.runtime import Generation
from packages import TINY

TEXT = json.loads((TINY / "ref" / "outputs.json").read_text())["target/text"]
BINDING = 66_000  # bytes: 257 rows of the token table in f32, and every other weight
LESS = 10_000  # bytes: 39 rows of that table, 312 of a layer's


@pytest.mark.parametrize("binding, expected", [
    (None, {"t.weight": slice(0, 10)}),
    (80, {"t.weight": slice(0, 10)}),
    (79, {"t.rows0.weight": slice(0, 9), "t.rows9.weight": slice(9, 10)}),
    (24, {"t.rows0.weight": slice(0, 3), "t.rows3.weight": slice(3, 6), "t.rows6.weight": slice(6, 9),
          "t.rows9.weight": slice(9, 10)}),
    (7, {f"t.rows{i}.weight": slice(i, i + 1) for i in range(10)}),
])  # fmt: skip
def test_as_few_tables_as_fit(binding: int | None, expected: dict[str, slice]):
    assert row_tables("t.weight", 10, 8, binding) == expected


def narrow(monkeypatch: pytest.MonkeyPatch, binding: int = BINDING) -> None:
    """WebGPU with bindings that hold next to nothing."""
    monkeypatch.setitem(TARGETS, "webgpu", replace(TARGETS["webgpu"], binding=binding))
    monkeypatch.setattr(WebGpu, "binding", binding)


def weights(graph: Path) -> dict[str, tuple[int, ...]]:
    model = onnx.load(graph, load_external_data=False)
    return {t.name: tuple(t.dims) for t in model.graph.initializer if t.external_data}


def build(out: Path, source: str = "text", **options: Any) -> Path:
    return cabochon.build(
        TINY / source, out, target="webgpu", precision="f32", license="apache-2.0", **options
    ).path


def generated(package: Path) -> Generation:
    model = cabochon.load(package, threads=1, provider="cpu")
    return model.generate(TEXT["prompt"], max_new_tokens=16, temperature=0)


def test_a_text_package_of_several_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    narrow(monkeypatch)
    built = build(tmp_path / "p")
    tokens = {name: shape for name, shape in weights(built / "model.onnx").items() if ".rows" in name}
    assert tokens == {
        f"model.embed_tokens.rows{first}.weight": (rows, 64) for first, rows in ((0, 257), (257, 255))
    }
    assert list(generated(built).ids) == TEXT["tokens"]
    verdict = cabochon.validate(built, execute=True, source=TINY / "text")
    assert (verdict.errors, verdict.warnings) == ((), ())


def test_tables_of_layers_in_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    narrow(monkeypatch, LESS)
    built = build(tmp_path / "p")
    assert weights(built / "model.onnx")["model.embed_tokens_per_layer.3.rows312.weight"] == (200, 8)
    assert list(generated(built).ids) == TEXT["tokens"]


def test_a_full_package_shares_every_table_with_its_embedding(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    narrow(monkeypatch)
    built = build(tmp_path / "p", "target", model="full")
    of = [weights(built / name / "model.onnx").keys() for name in ("decoder", "embedding")]
    shared = {name for name in of[0] & of[1] if name.startswith("model.embed_tokens.rows")}
    assert shared == of[0] & of[1] and len(shared) == 2
    for name in shared:
        assert (built / "decoder" / f"{name}.data").samefile(built / "embedding" / f"{name}.data")
    assert list(generated(built).ids) == TEXT["tokens"]
    verdict = cabochon.validate(built, source=TINY / "target")
    assert not verdict.errors
    assert {found.code for found in verdict.warnings} == {"RUN003"}, "the encoders' Loop runs on the CPU"


def test_a_pair_looks_up_in_every_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    narrow(monkeypatch)
    built = build(tmp_path / "p", assistant=TINY / "assistant")
    assert len(weights(built / "token_embedding.onnx")) == 2
    assert "`token_embedding.table` names the first" in (built / "METADATA_STATUS.md").read_text()
    answer = generated(built)
    assert list(answer.ids) == TEXT["tokens"]
    assert answer.speculation is not None and answer.speculation.accepted > 0
    assert cabochon.validate(built).errors == ()
