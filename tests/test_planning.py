"""Plans: of the real geometries against their known figures, of small checkpoints against what a build takes."""

import json
from functools import cache
from pathlib import Path

import pytest
from bench.building import build
from bench.checkpoints import header
from huggingface_hub import constants

import cabochon
import checkpoints
from cabochon.dialects import TARGETS
from cabochon.errors import ConfigError, SourceError
from cabochon.gemma4.layout import Slot, layout, text_layout
from cabochon.planning import Plan
from cabochon.planning.offers import offers
from cabochon.planning.opened import open_config
from cabochon.planning.sizes import BUILD_MEMORY, Sized, components
from family import MEMBERS
from hub_server import Hub, serving
from packages import Packages

DATA = Path(__file__).parent / "data"
GEOMETRIES = DATA / "geometries"
TINY = DATA / "tiny" / "text"

# tensors, bytes of the whole checkpoint in bf16, bytes of "decoder layers" (experts included for 26B-A4B)
KNOWN = {
    "e2b": (1951, 10_208_596_934, 3_726_686_790),
    "e4b": (2076, 15_882_203_604, 7_891_654_740),
    "12b": (677, 23_919_460_448, 21_801_434_720),
    "26b-a4b": (1013, 51_611_872_412, 48_989_888_572),
    "31b": (1188, 62_546_177_752, 58_576_118_392),
    "e2b-assistant": (50, 157_559_816, 17_837_064),
    "e4b-assistant": (50, 159_132_680, 17_837_064),
    "12b-assistant": (48, 845_713_928, 285_250_056),
    "26b-a4b-assistant": (48, 839_422_472, 285_250_056),
    "31b-assistant": (48, 939_037_192, 369_136_136),
}
# bytes of keys and values for a token at 16 bits: full attention, sliding attention
CACHES = {
    "e2b": (6_144, 12_288),
    "e4b": (16_384, 40_960),
    "12b": (16_384, 327_680),
    "26b-a4b": (20_480, 204_800),
    "31b": (81_920, 819_200),
    "e2b-assistant": (0, 0),
    "12b-assistant": (0, 0),
}


@cache
def planned(name: str) -> Plan:
    return cabochon.plan(config=GEOMETRIES / f"{name}.json")


@cache
def tiny() -> Plan:
    return cabochon.plan(TINY)


def split(warning: str) -> bool:
    return "is split into" in warning


def part(plan: Plan, *names: str) -> int:
    return sum(part.nbytes for part in plan.parts if part.name in names)


@pytest.mark.parametrize("name", KNOWN)
def test_checkpoint_sizes_are_exact(name: str) -> None:
    plan = planned(name)
    found = plan.tensors, plan.nbytes, part(plan, "decoder layers", "experts")
    assert found == KNOWN[name]
    assert sum(part.nbytes for part in plan.parts) == plan.nbytes
    assert sum(part.tensors for part in plan.parts) == plan.tensors


def test_parts_of_e2b() -> None:
    parts = {part.name: (part.tensors, part.parameters, part.nbytes) for part in planned("e2b").parts}
    assert parts["per-layer table"] == (1, 2_348_810_240, 4_697_620_480)
    assert parts["token embedding"] == (1, 402_653_184, 805_306_368)
    assert parts["per-layer projection"] == (1, 13_762_560, 27_525_120)
    assert parts["vision tower"][1:] == (168_544_704, 337_089_408)
    assert parts["audio tower"][1:] == (307_184_384, 614_368_768)


@pytest.mark.parametrize("name", CACHES)
def test_caches(name: str) -> None:
    cache = planned(name).cache
    assert (cache.full, cache.sliding) == CACHES[name]


def test_the_longest_context_of_e2b() -> None:
    cache = planned("e2b").cache
    assert (cache.window, cache.max_positions) == (512, 131_072)
    assert cache.longest == (768 + 6) * 2**20
    assert cache.longest_unevicted == 2.25 * 2**30


def test_the_largest_tensor_and_what_int32_cannot_count() -> None:
    plan = planned("e2b")
    largest = plan.largest[0]
    assert (largest.name, largest.shape) == ("model.embed_tokens_per_layer.weight", (262_144, 8_960))
    assert (largest.elements, largest.nbytes, largest.int32) == (2_348_810_240, 4_697_620_480, False)
    assert plan.largest[1].int32
    warned = {verdict.target for verdict in plan.verdicts if any(map(split, verdict.warnings))}
    assert warned == {"cuda", "webgpu"}
    for precision in ("f16", "Q4_K_M"):
        (warning,) = next(v.warnings for v in plan.verdicts if (v.target, v.precision) == ("cuda", precision))
    assert "2,348,810,240 elements" in warning
    assert "split into 35 tables of 67,108,864 at most" in warning
    by_rows = next(v.warnings[0] for v in plan.verdicts if (v.target, v.precision) == ("webgpu", "f32"))
    assert "split into 70 tables of 33,554,432 at most" in by_rows


@pytest.mark.parametrize("name", KNOWN)
def test_int32_warnings_exist_where_a_tensor_is_too_large(name: str) -> None:
    plan = planned(name)
    warned = any(split(line) for verdict in plan.verdicts for line in verdict.warnings)
    assert warned == (name in ("e2b", "e4b")) == any(not large.int32 for large in plan.largest)


def test_memory_of_e2b() -> None:
    """On a CPU every matrix of f16 has a copy in f32, the head among them; the per-layer table stays in the file."""
    memory = {(v.target, v.precision): v.memory for v in planned("e2b").verdicts if v.model == "text"}
    stored = 9_257_138_758
    assert memory["cuda", "f16"] == memory["default", "bf16"] == stored
    assert memory["default", "f32"] == 2 * stored
    assert memory["default", "f16"] == 2 * stored - 4_697_620_480
    assert (
        memory["openvino-ir", "f16"] == 4 * stored - 2 * 4_697_620_480
    )  # in f32; matrices are packed besides


def test_memory_of_experts() -> None:
    """They stay in the file, on a CPU too: a turn of the loop copies one, and lets it go."""
    memory = {(v.target, v.precision): v.memory for v in planned("26b-a4b").verdicts if v.model == "text"}
    experts = part(planned("26b-a4b"), "experts")
    stored = experts + part(planned("26b-a4b"), "decoder layers", "token embedding")
    assert experts == 30 * 128 * 3 * 704 * 2816 * 2
    assert memory["cuda", "f16"] == stored
    assert memory["default", "f16"] == 2 * stored - experts
    assert memory["openvino-ir", "f16"] == 4 * stored - 2 * experts


def test_memory_of_blocks() -> None:
    """A CPU packs codes again and widens scales, but of what it looks up by rows."""
    offer, *_ = offers(open_config(GEOMETRIES / "e2b.json"))
    tensor = offer.tensors["model.embed_tokens_per_layer.weight"]
    held = (
        Sized("model.layers.0.mlp.up_proj.weight", 1000, "u8", tensor, 2000),
        Sized("model.layers.0.mlp.up_proj.weight_scales", 100, "f16", tensor, 0),
        Sized("model.layers.0.mlp.up_proj.weight_zero_points", 10, "u8", tensor, 0),
        Sized("model.embed_tokens_per_layer.weight_scales", 5, "f16", tensor, 0),
        Sized("model.layers.0.experts.down_proj_scales", 7, "f16", tensor, 0),
    )
    for target, expected in (("default", 1222), ("cuda", 1122)):
        (component,) = components(offer, {"decoder": held}, TARGETS[target])
        assert component.memory == expected
        assert component.disk == 4 * 4096 + 7


def test_layers_that_are_alike_are_reckoned_once() -> None:
    offer = offers(open_config(GEOMETRIES / "e2b.json"))[-1]
    assert len(offer.tensors) == 1951
    assert len(set(offer.alike.values())) < 200
    assert offer.alike["model.layers.34.mlp.up_proj.weight"] == "model.layers.15.mlp.up_proj.weight"
    assert offer.alike["model.layers.14.mlp.up_proj.weight"] == "model.layers.0.mlp.up_proj.weight"


def test_matrices_beyond_the_binding_stay_whole() -> None:
    """Tables are split by rows, which other matrices are not: 21504 x 5376 of the 31B model in f16."""
    verdict = next(v for v in planned("31b").verdicts if (v.target, v.precision) == ("webgpu", "f16"))
    assert verdict.status == "conditional"
    assert "200 tensors are beyond the 128 MiB that every adapter binds" in verdict.reason
    assert "must grant 221 MiB" in verdict.reason


# weights in blocks, of which some targets carry no NF4
BLOCKS = {
    "default": "runs",
    "onnx-standard": "runs",
    "cuda": "has kernels",
    "webgpu": "conditional",
    "openvino-ir": "runs",
    "openvino-epcontext": "conditional",
}
STATUSES = {
    ("default", "f32"): "runs",
    ("default", "f16"): "runs",
    ("default", "bf16"): "builds",
    ("onnx-standard", "f32"): "runs",
    ("onnx-standard", "f16"): "runs",
    ("onnx-standard", "bf16"): "builds",
    ("cuda", "f32"): "builds",
    ("cuda", "f16"): "has kernels",
    ("cuda", "bf16"): "conditional",
    ("webgpu", "f32"): "has kernels",
    ("webgpu", "f16"): "conditional",
    ("webgpu", "bf16"): "refused",
    **{("openvino-ir", precision): "runs" for precision in ("f32", "f16")},
    ("openvino-ir", "bf16"): "conditional",
    **{("openvino-epcontext", precision): "conditional" for precision in ("f32", "f16", "bf16")},
    **{
        (target, precision): status
        for precision in ("Q8", "Q4_K_M", "Q4_K_M-uniform", "Q4_K_M-mixed")
        for target, status in BLOCKS.items()
    },
    **{(target, "NF4"): BLOCKS[target] if target in ("default", "cuda") else "refused" for target in BLOCKS},
}
# what differs for some models: f32 matrices of 12B and 31B, and tables of drafters, are beyond what WebGPU binds
LARGE = {("webgpu", "f32"): "conditional"}
DRAFTING = LARGE | {("cuda", "f32"): "has kernels"}  # drafters have no GroupQueryAttention


@pytest.mark.parametrize("name", KNOWN)
def test_verdicts_of_the_family(name: str) -> None:
    plan = planned(name)
    differing = DRAFTING if name.endswith("assistant") else LARGE if name in ("12b", "31b") else {}
    kinds = {"drafter"} if name.endswith("assistant") else {"text", "full"}
    assert {v.model for v in plan.verdicts} == kinds and plan.refused == ""
    for kind in kinds:
        found = {(v.target, v.precision): v.status for v in plan.verdicts if v.model == kind}
        assert found == STATUSES | differing, kind


def test_reasons_of_e2b() -> None:
    verdicts = {(v.target, v.precision): v for v in planned("e2b").verdicts if v.model == "text"}
    assert "no released onnxruntime has bf16 kernels" in verdicts["default", "bf16"].reason
    assert "OpenVINO" in verdicts["onnx-standard", "bf16"].reason
    assert verdicts["webgpu", "f16"].reason == "the adapter must offer the feature shader-f16"
    assert "no bf16" in verdicts["webgpu", "bf16"].reason
    assert "cannot carry weights in 'nf4'" in verdicts["onnx-standard", "NF4"].reason
    assert any("over 15 times as long" in line for line in verdicts["default", "NF4"].warnings)
    assert verdicts["default", "Q4_K_M"].warnings == ()
    assert "a device that onnxruntime-ep-openvino lists" in verdicts["openvino-epcontext", "Q8"].reason
    assert "'openvino-ir' cannot carry weights in 'nf4'" in verdicts["openvino-ir", "NF4"].reason


@pytest.mark.parametrize("name", KNOWN)
def test_disk_is_what_the_tensors_of_the_text_take(name: str) -> None:
    plan = planned(name)
    media = part(plan, "vision tower", "audio tower", "vision embedder", "audio embedder")
    floating = [v for v in plan.verdicts if v.model != "full" and v.precision in ("f32", "f16", "bf16")]
    for verdict in floating:
        expected = (plan.nbytes - media) * (2 if verdict.precision == "f32" else 1)
        assert expected * 0.99 < verdict.disk < expected + 60_000_000
    assert plan.build_memory == BUILD_MEMORY


def test_a_build_takes_less_memory_than_planned_and_than_one_tensor(tmp_path: Path) -> None:
    source = checkpoints.copy(tmp_path / "source", vocab_size=2_500_000, hidden_size_per_layer_input=0)
    config = json.loads((source / "config.json").read_text())
    slots = layout(config)
    with (source / "model.safetensors").open("wb") as file:
        file.write(header(config, slots))
        file.truncate(file.tell() + sum(2 * slot.elements for slot in slots))  # sparse: zeros without blocks
    plan = cabochon.plan(source)
    assert plan.largest[0].nbytes == 320_000_000 > BUILD_MEMORY
    run = build(source, tmp_path / "out", "f16")
    data = tmp_path / "out" / "model.onnx.data"
    assert data.stat().st_size > BUILD_MEMORY
    data.unlink()
    assert 20_000_000 < run.anonymous < plan.build_memory


EIGHT = ("v_proj.weight", "k_proj.weight", "per_layer_projection.weight", "per_layer_input_gate.weight")


def bits_on_cuda(slot: Slot, precision: str) -> float:
    """Blocks of 32, scales in f16, and zero points of tables alone. Q4_K_M: 8 bits for some, blocks of 64 for one."""
    if len(slot.shape) != 2:
        return 16
    code = 8 if precision == "Q8" or slot.name.endswith(EIGHT) else 4
    block = 64 if precision == "Q4_K_M" and slot.part == "per-layer table" else 32
    return code + (16 + code * (slot.part in ("token embedding", "per-layer table"))) / block


@pytest.mark.parametrize("precision", ["Q8", "Q4_K_M"])
@pytest.mark.parametrize("name", ["e2b", "31b"])
def test_disk_is_what_codes_and_scales_take(name: str, precision: str) -> None:
    slots = text_layout(json.loads((GEOMETRIES / f"{name}.json").read_text()))
    verdict = next(v for v in planned(name).verdicts if (v.target, v.precision) == ("cuda", precision))
    (weights,) = (part for part in verdict.components if part.name == "decoder")
    assert weights.memory == sum(slot.elements * bits_on_cuda(slot, precision) for slot in slots) / 8
    assert weights.memory <= weights.disk < weights.memory + len(slots) * 2**16


@pytest.mark.parametrize(
    ("target", "precision"),
    [
        *((target, precision) for target in TARGETS for precision in ("f32", "f16", "Q4_K_M")),
        ("default", "NF4"),
    ],
)
def test_a_build_takes_what_was_planned(target: str, precision: str, packages: Packages) -> None:
    verdict = next(v for v in tiny().verdicts if (v.target, v.precision) == (target, precision))
    built = packages("tiny", target, precision)
    taken = sum(file.stat().st_size for file in built.rglob("*") if file.is_file())
    (said,) = (part.disk for part in verdict.components if part.name == "documents")
    assert verdict.disk - said == (built / "model.onnx.data").stat().st_size
    assert abs(verdict.disk - taken) <= 0.05 * taken


FOLDERS = [folder for member in MEMBERS for folder in (member.folder, member.assistant)]


@pytest.mark.parametrize("name", [*FOLDERS, "text", "assistant-dense"])
def test_the_layout_is_that_of_real_files(name: str) -> None:
    """Published targets also hold keys and values of layers that borrow; nothing else may be over."""
    checkpoint = cabochon.open_checkpoint(DATA / "tiny" / name)
    stored = sum(tensor.nbytes for tensor in checkpoint.tensors.values())
    borrowed = sum(
        checkpoint.tensors[f"model.language_model.layers.{i}.self_attn.{part}.weight"].nbytes
        for i in (range(6, 10) if name == "target" else ())
        for part in ("k_proj", "v_proj", "k_norm")
    )
    plan = cabochon.plan(DATA / "tiny" / name, precision="f32")
    assert (plan.nbytes, plan.tensors) == (stored - borrowed, len(checkpoint.tensors) - 12 * bool(borrowed))
    assert not plan.refused


def test_a_source_is_checked_and_its_remarks_are_passed_on() -> None:
    plan = cabochon.plan(DATA / "tiny" / "target")
    assert plan.source.endswith("target")
    assert any("not part of the text model" in remark for remark in plan.remarks)


def test_of_a_hub_id_only_small_files_are_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with serving(Hub({"org/tiny": TINY})) as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}",
        )
        plan = cabochon.plan("org/tiny")
    assert "config.json" in hub.fetched()
    assert "model.safetensors" not in hub.fetched()
    assert plan.parameters == cabochon.plan(TINY).parameters


def test_a_folder_may_be_named_for_its_config(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((GEOMETRIES / "e2b.json").read_text())
    assert cabochon.plan(config=tmp_path, precision="f32").nbytes == KNOWN["e2b"][1]


def test_both_spellings_give_one_plan(tmp_path: Path) -> None:
    raw = json.loads((GEOMETRIES / "e2b.json").read_text())
    text = raw["text_config"]
    del text["global_head_dim"]
    text["per_layer_config"] = {f"{i:02d}": {"head_dim": 512} for i in range(4, 35, 5)}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    plan, published = cabochon.plan(config=tmp_path), planned("e2b")
    assert (plan.parts, plan.cache, plan.verdicts) == (published.parts, published.cache, published.verdicts)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("{", ConfigError, "is not JSON"),
        ("[]", ConfigError, "expected an object"),
        ("{}", ConfigError, "model_type"),
        ('{"model_type": "llama"}', SourceError, "llama"),
    ],
)
def test_a_config_that_is_none(text: str, error: type[Exception], message: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(error) as caught:
        cabochon.plan(config=tmp_path / "config.json")
    assert message in str(caught.value)


def test_a_missing_config(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        cabochon.plan(config=tmp_path / "nothing.json")


def test_one_of_source_and_config() -> None:
    with pytest.raises(SourceError, match="one of them"):
        cabochon.plan()
    with pytest.raises(SourceError, match="one of them"):
        cabochon.plan("a", config="b")
