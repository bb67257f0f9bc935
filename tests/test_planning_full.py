"""Plans of full packages, against the figures of the published models and against what builds wrote."""

import json
from functools import cache
from pathlib import Path

import pytest

import cabochon
import checkpoints
from cabochon.planning import Plan, Verdict
from cabochon.planning.operators import OPERATORS
from packages import Packages

DATA = Path(__file__).parent / "data"
TINY = DATA / "tiny"
# bytes in bf16: decoder layers, what the embedding holds (both tables and the projection), vision, audio
PUBLISHED = {
    "e2b": (3_726_686_790, 805_306_368 + 4_697_620_480 + 27_525_120, 337_089_408, 614_368_768),
    "e4b": (7_891_654_740, 1_342_177_280 + 5_637_144_576 + 55_050_240, 338_662_272, 617_514_496),
    "26b-a4b": (48_989_888_572, 1_476_395_008, 1_145_588_832, 0),
    "31b": (58_576_118_392, 2_818_572_288, 1_151_487_072, 0),
    "12b": (21_801_434_720, 2_013_265_920, 99_844_608, 4_915_200),
}
OTHERS = PUBLISHED.keys() - {"e2b"}


@cache
def planned(name: str) -> Plan:
    """In all precisions, where tests ask for more than one."""
    precision = "f16" if name in OTHERS else None
    return cabochon.plan(config=DATA / "geometries" / f"{name}.json", precision=precision)


def full(plan: Plan, target: str = "default", precision: str = "f16", model: str = "full") -> Verdict:
    (found,) = (v for v in plan.verdicts if (v.target, v.precision, v.model) == (target, precision, model))
    return found


def disk(verdict: Verdict) -> dict[str, int]:
    return {part.name: part.disk for part in verdict.components}


@pytest.mark.parametrize("name", PUBLISHED)
def test_components_of_the_published_models(name: str) -> None:
    names = ("decoder", "embedding", "vision_encoder", "audio_encoder")
    expected = {part: size for part, size in zip(names, PUBLISHED[name], strict=True) if size}
    found = disk(full(planned(name)))
    assert set(found) == {*expected, "documents"}
    for part, nbytes in expected.items():  # large weights begin at multiples of 64 KiB
        assert nbytes - 512 <= found[part] <= nbytes + 20_000_000


def test_e2b_takes_its_checkpoint_and_a_tokenizer() -> None:
    verdict = full(planned("e2b"))
    assert verdict.disk == sum(disk(verdict).values())
    assert 10_208_596_934 < verdict.disk < 10_270_000_000
    assert verdict.memory == sum(part.memory for part in verdict.components)
    parts = {part.name: part.memory for part in verdict.components}
    norm = 2 * 256  # of per-layer inputs, which the embedding computes
    assert parts["decoder"] == 2 * (3_726_686_790 - norm + 805_306_368)  # every matrix has a copy in f32
    assert parts["embedding"] == 805_306_368 + 4_697_620_480 + 2 * (
        27_525_120 + norm
    )  # tables are as they are


def test_the_table_is_in_memory_for_both_and_on_disk_once() -> None:
    parts = {part.name: part for part in full(planned("e2b"), "cuda").components}
    norm = 2 * 256  # of per-layer inputs, which the embedding computes
    assert parts["decoder"].memory == 3_726_686_790 - norm + 805_306_368
    assert parts["decoder"].disk < 3_740_000_000
    assert parts["embedding"].memory == 805_306_368 + 4_697_620_480 + 27_525_120 + norm


def test_e2b_in_four_bits() -> None:
    """With zero points, scales of f16: 4.625 bits a weight, 4.3125 in blocks of 64, 8.5 for some and for encoders."""
    parts = {part.name: part for part in full(planned("e2b"), "webgpu", "Q4_K_M").components}
    decoder, tables, vision, audio = (size // 2 for size in PUBLISHED["e2b"])  # numbers; norms are but a few
    layers, eight = 2_348_810_240, 12 * 2 * 1536 * 256 + 3 * 2 * 1536 * 512 + 35 * 2 * 1536 * 256
    embedding = ((tables - layers) * 4.625 + layers * 4.3125) / 8
    assert parts["embedding"].memory == pytest.approx(embedding, rel=1e-3)
    linears = (decoder * 4.625 + eight * (8.5 - 4.625)) / 8
    assert parts["decoder"].memory == pytest.approx(linears + 402_653_184 * 4.625 / 8, rel=2e-3)
    assert parts["decoder"].disk == pytest.approx(linears, rel=0.02)
    assert 8.5 / 16 < parts["vision_encoder"].disk / (2 * vision) < 0.75  # with what stays floating
    assert 8.5 / 16 < parts["audio_encoder"].disk / (2 * audio) < 0.65


def test_text_comes_first_and_a_text_alone_has_no_full_package() -> None:
    assert [v.model for v in planned("e2b").verdicts] == 48 * ["text"] + 48 * ["full"]
    assert {v.model for v in cabochon.plan(DATA / "tiny" / "text").verdicts} == {"text"}
    assert {v.model for v in planned("e2b-assistant").verdicts} == {"drafter"}


def test_tables_of_a_full_package_fit_the_binding_of_webgpu() -> None:
    verdict = full(planned("e2b"), "webgpu", "f16")
    assert "beyond the 128 MiB" not in verdict.reason
    assert "shader-f16" in verdict.reason


@pytest.mark.parametrize(
    ("folder", "target", "precision"),
    [
        ("target", "default", "f32"),  # make members has them all
        ("target", "webgpu", "f16"),
        ("target", "default", "Q4_K_M"),
        ("moe", "default", "f32"),
        ("unified", "default", "f32"),
        ("unified", "webgpu", "Q4_K_M"),
    ],
)
def test_a_build_takes_what_was_planned(folder: str, target: str, precision: str, packages: Packages) -> None:
    out = packages(source(folder), target, precision)
    verdict = full(cabochon.plan(TINY / folder, precision=precision), target, precision)
    files = {f.stat().st_ino: f for f in out.rglob("*") if f.is_file()}.values()
    written = sum(f.stat().st_size for f in files)
    weights = sum(f.stat().st_size for f in files if f.name.endswith(".data"))
    found = disk(verdict)
    assert weights == verdict.disk - found["documents"]
    assert abs(verdict.disk - written) <= 0.05 * written
    for name in found.keys() & {"vision_encoder", "audio_encoder", "decoder"}:
        assert found[name] == (out / name / "model.onnx.data").stat().st_size


def source(folder: str) -> str:
    """What tests/packages.py calls the full package of a tiny checkpoint."""
    return "tiny-full" if folder == "target" else f"{folder}-full"


@pytest.mark.parametrize(
    ("folder", "precision", "beside", "said"),
    [
        ("target", "f16", {"Loop"}, {"vision tower": "Loop, NonZero", "audio tower": "NonZero"}),
        ("moe", "f32", {"Loop"}, {"vision tower": "Loop, NonZero", "experts": "Loop, NonZero"}),
        ("unified", "Q4_K_M", set(), {"vision embedder": "NonZero", "audio embedder": "NonZero"}),
    ],
)
def test_operators_without_kernels_are_those_that_the_plan_names(
    folder: str, precision: str, beside: set[str], said: dict[str, str], packages: Packages
) -> None:
    """Of those that the graphs have on WebGPU, the ones that compute with numbers."""
    out = packages(source(folder), "webgpu", precision)
    findings = json.loads((out / "evidence" / "validation.json").read_text())["findings"]
    found = {finding["found"].split()[0] for finding in findings if finding["code"] == "RUN003"}
    assert found == beside <= set().union(*OPERATORS.values())
    assert not [finding for finding in findings if finding["code"] == "RUN004"]
    plan = cabochon.plan(TINY / folder, precision=precision)
    verdict = full(plan, "webgpu", precision)
    assert "not known" not in verdict.reason
    lines = [line for line in verdict.warnings if "has no kernels of" in line]
    assert len(lines) == len(said)
    for part, names in said.items():
        assert any(
            f"{part}: " in line and f"of {names} for WebGpuExecutionProvider" in line for line in lines
        )
    assert not any("no kernels of" in line for line in full(plan, "cuda", precision).warnings)


def test_a_text_package_of_experts_says_what_they_need() -> None:
    plan = cabochon.plan(TINY / "moe", precision="f16")
    (line,) = full(plan, "webgpu", model="text").warnings
    assert line.startswith("experts: onnxruntime-web")


def test_towers_that_are_not_built_leave_the_text(tmp_path: Path) -> None:
    raw = checkpoints.tiny_config("target")
    raw["vision_config"]["surprise"] = 1
    plan = cabochon.plan(config=_written(tmp_path, raw))
    assert {v.model for v in plan.verdicts} == {"text"}
    assert any("no full package" in line and "surprise" in line for line in plan.remarks)


def test_what_is_wrong_with_a_full_package_is_said_of_it_alone(tmp_path: Path) -> None:
    raw = checkpoints.tiny_config("target")
    raw["audio_token_id"] = raw["image_token_id"]
    plan = cabochon.plan(config=_written(tmp_path, raw))
    assert plan.refused == ""
    assert full(plan, model="text").status == "runs"
    assert full(plan).status == "refused"
    assert "image_token_id" in full(plan).reason


def _written(folder: Path, raw: object) -> Path:
    (folder / "config.json").write_text(json.dumps(raw))
    return folder / "config.json"
