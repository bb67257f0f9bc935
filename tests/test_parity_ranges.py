"""The f16 range report names the edge and its maximum: on fixtures whose maxima are known beforehand."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

import cabochon
import checkpoints
from cabochon.parity.prompts import Prompt
from cabochon.parity.ranges import F16_MAX, Edge, RangeReport, ranges
from cabochon.parity.subject import Subject

IDS = (2, 5, 487, 34, 502, 346, 492, 439, 480, 6, 34, 5, 314, 483, 34)
PROMPTS = [Prompt("short", IDS[:3]), Prompt("long", IDS)]
UP = "model.layers.2.mlp.up_proj.weight"


def package(folder: Path, exponent: int = 0, precision: str = "f16", target: str = "default") -> Path:
    """The tiny text checkpoint with one weight scaled by a power of two, built."""

    def scaled(tensors: dict[str, checkpoints.Entry]) -> dict[str, checkpoints.Entry]:
        dtype, shape, data = tensors[UP]
        array = np.frombuffer(data, ml_dtypes.bfloat16).astype(np.float32) * np.float32(2.0**exponent)
        return tensors | {UP: (dtype, shape, array.astype(ml_dtypes.bfloat16).tobytes())}

    source = checkpoints.change(checkpoints.copy(folder / "source"), scaled)
    cabochon.build(source, folder / "package", target=target, precision=precision, license="apache-2.0")
    return folder / "package"


def edge(report: RangeReport, weight: str, op: str | None = None) -> Edge:
    (found,) = (e for e in report.edges if e.weight == weight and op in (None, e.op))
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> RangeReport:
    return ranges(package(tmp_path_factory.mktemp("plain")), PROMPTS, threads=1)


def test_the_maximum_is_that_of_the_values_themselves(plain: RangeReport) -> None:
    """The rows an embedding gathers are known without running anything."""
    tensors = checkpoints.read(checkpoints.TINY / "text" / "model.safetensors")
    _, shape, data = tensors["model.embed_tokens.weight"]
    rows = np.abs(np.frombuffer(data, ml_dtypes.bfloat16).astype(np.float32).reshape(shape)[list(IDS)])
    found = edge(plain, "model.embed_tokens.weight", "Gather")
    assert found.maximum == rows.max()
    assert found.prompt == ("short" if rows[:3].max() == rows.max() else "long")
    assert plain.passed
    assert plain.errors == plain.warnings == ()
    assert [e.maximum for e in plain.edges] == sorted((e.maximum for e in plain.edges), reverse=True)


def test_every_layer_and_output_is_seen(plain: RangeReport) -> None:
    names = {e.name for e in plain.edges}
    assert {"logits", "hidden_states.9", "present.0.key", "present.5.value"} <= names
    assert all(any(n.startswith(f"layers.{i}.") for n in names) for i in range(10))
    assert not any(e.op in ("CumSum", "Shape") for e in plain.edges)


@pytest.mark.parametrize(("more", "severity"), [(0, "warning"), (1, "error")])
def test_a_known_maximum_is_reported_with_its_edge(
    plain: RangeReport, tmp_path: Path, more: int, severity: str
) -> None:
    usual = edge(plain, UP).maximum
    exponent = int(np.floor(np.log2(F16_MAX / usual))) + more
    out = package(tmp_path, exponent)
    report = ranges(out, PROMPTS, threads=1)
    found = edge(report, UP)
    assert found.maximum == pytest.approx(usual * 2.0**exponent, rel=1e-5)
    assert found.severity == severity
    assert report.passed is (found.severity != "error" and not report.errors)
    document = json.loads((out / "evidence" / "f16_range.json").read_text())
    assert {"severity": severity, "name": found.name, "op": found.op, "weight": UP,
            "maximum": found.maximum, "prompt": found.prompt} in document["findings"]  # fmt: skip
    assert found.name.startswith("layers.2.")
    assert {f["name"].split(".")[1] for f in document["findings"]} == {"2"}, (
        "the norm behind it undoes the scale"
    )
    assert document["passed"] is report.passed
    assert "keeps f16 intermediates in f32" in document["how"]


def test_a_run_on_a_cpu_does_not_show_the_overflow(plain: RangeReport, tmp_path: Path) -> None:
    exponent = int(np.log2(F16_MAX / edge(plain, UP).maximum)) + 2
    out = package(tmp_path, exponent)
    assert not ranges(out, PROMPTS, threads=1).passed
    logits, _ = Subject.open(out / "model.onnx", threads=1).forward(IDS)
    assert np.isfinite(logits).all()


@pytest.mark.parametrize("target", ["onnx-standard", "cuda", "webgpu"])
def test_other_targets_report_the_same_maximum(plain: RangeReport, tmp_path: Path, target: str) -> None:
    report = ranges(package(tmp_path, target=target), PROMPTS, threads=1, save=False)
    assert edge(report, UP).maximum == pytest.approx(edge(plain, UP).maximum, rel=1e-5)
    assert not (tmp_path / "package" / "evidence" / "f16_range.json").exists()


def test_in_f32_every_value_counts(plain: RangeReport, tmp_path: Path) -> None:
    report = ranges(package(tmp_path, precision="f32"), PROMPTS, threads=1, save=False)
    assert len(report.edges) >= len(plain.edges)
    assert edge(report, UP).maximum == pytest.approx(edge(plain, UP).maximum, rel=1e-3)


@pytest.mark.parametrize(
    ("maximum", "severity"),
    [(1.0, "fine"), (32752.0, "fine"), (32753.0, "warning"), (65504.0, "warning"), (65505.0, "error"),
     (float("inf"), "error"), (float("nan"), "error")],
)  # fmt: skip
def test_severity(maximum: float, severity: str) -> None:
    one = Edge("x", "Mul", None, maximum, "p")
    assert one.severity == severity
    assert RangeReport((one,)).passed is (severity != "error")
    assert not RangeReport(()).passed


def test_a_value_without_a_type_is_an_error(tmp_path: Path) -> None:
    out = package(tmp_path)
    model = onnx.load_model(str(out / "model.onnx"), load_external_data=False)
    del model.graph.value_info[:]
    onnx.save_model(model, str(out / "model.onnx"))
    with pytest.raises(cabochon.errors.ParityError, match="has no type"):
        ranges(out, PROMPTS, save=False)
