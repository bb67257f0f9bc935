"""`check` of full packages, live against transformers: every target passes, and a wrong component is named."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cabochon
import checkpoints
from cabochon.errors import ParityError
from cabochon.parity import Evidence, check, full
from cabochon.parity.full_prompts import Asked, everything
from cabochon.parity.full_reference import record_full
from cabochon.parity.passed import FullRecording
from full_graphs import ALL
from packages import DRAFTERS, TINY, Packages
from test_cli import call
from test_parity_levels import flip

pytestmark = pytest.mark.parity

COMPONENTS = ["vision_encoder", "audio_encoder", "embedding", "decoder"]
WORDS = ("emoji", "drawn ids", "beyond the window")
MEDIA = ["image", "two images", "audio", "two sounds", "image and audio", "rows", "video", "video and image"]
HALVES = ("two images", "audio", "rows")
SHORT = ("emoji", "audio", "image and audio", "rows")
FEW = ("beyond the window", "two sounds", "rows", "video and image")
"""For targets other than default, whose graphs differ in attention."""


def some(names: Sequence[str] = WORDS, media: Sequence[str] = MEDIA) -> Callable[..., Any]:
    def asked(*given: Any) -> list[Asked]:
        return [one for one in everything(*given) if one.name in (*names, *media)]

    return asked


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., FullRecording]:
    """What transformers says, asked live, but once for each checkpoint and precision: of more questions some are taken
    out of what was said to all."""
    known: dict[Any, FullRecording] = {}

    def once(
        source: Path, config: Any, asked: list[Asked], *, precision: str, folder: Path, **more: Any
    ) -> FullRecording:
        names = {one.name for one in asked}
        for (told, floats, there), found in known.items():
            if (told, floats) == (source, precision) and names <= there:
                passed = {
                    how: tuple(one for one in all if one.asked.name in names)
                    for how, all in found.passed.items()
                }
                return replace(found, passed=passed)
        folder = tmp_path_factory.mktemp("recorded")
        found = record_full(source, config, asked, precision=precision, folder=folder, **more)
        known[source, precision, frozenset(names)] = found
        return found

    return once


@pytest.fixture(scope="module", autouse=True)
def asked_once(recordings: Callable[..., FullRecording]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(full, "record_full", recordings)
        patch.setattr(full, "everything", some())
        yield


@pytest.fixture
def shortly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few questions, for packages that are wrong."""
    monkeypatch.setattr(full, "everything", some(SHORT, ()))


@pytest.fixture
def copied(packages: Packages, tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """A copy of a package, to be written into."""
    yield lambda *how: shutil.copytree(packages(*how), tmp_path / "p")


def documents(package: Path) -> dict[str, dict[str, Any]]:
    return {p.name: json.loads(p.read_text("utf-8")) for p in (package / "evidence").glob("*.json")}


def failures(evidence: Evidence) -> list[str]:
    return [f"{v.level}: {v.summary}" for v in evidence.verdicts if not v.passed]


def levels(components: list[str]) -> list[str]:
    each = [f"L4 {name}" for name in components]
    return ["processors", *each, "L4 logits", "L4 hidden states", "L5 generation"]


@pytest.fixture(scope="module")
def default(packages: Packages, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Evidence]:
    """Target default in f32, checked."""
    package = shutil.copytree(packages("tiny-full"), tmp_path_factory.mktemp("default") / "p")
    return package, check(package, TINY / "target", threads=1)


@pytest.mark.parametrize("target", ALL)
def test_tiny_passes_in_f32(
    copied: Callable[..., Path],
    default: tuple[Path, Evidence],
    monkeypatch: pytest.MonkeyPatch,
    target: str,
) -> None:
    package, evidence = default
    if target != "default":
        monkeypatch.setattr(full, "everything", some(FEW, ()))
        package = copied("tiny-full", target)
        evidence = check(package, TINY / "target", threads=1)
    assert evidence.passed, failures(evidence)
    assert [v.level for v in evidence.verdicts] == levels(COMPONENTS)
    found = documents(package)
    for name in COMPONENTS:
        document = found[f"l4_{name}.json"]
        (trial,) = document["trials"]
        assert document["component"] == name
        assert all(one["max_relative_difference"] == 1e-4 for one in trial["thresholds"].values())
        assert all(row["max_relative_difference"] <= 1e-4 and row["passed"] for row in trial["prompts"])
    (trial,) = found["l5_generation.json"]["trials"]
    assert {row["verdict"] for row in trial["prompts"]} == {"equal"}
    assert {row["new_tokens"] for row in trial["prompts"]} == {32}
    asked = {*MEDIA, *WORDS} if target == "default" else {*FEW}
    assert {row["name"] for row in trial["prompts"]} == asked - {"rows"} | {
        f"rows, {n} of 3" for n in (1, 2, 3)
    }
    assert_bound(package, found, target, "f32")


def assert_bound(package: Path, found: dict[str, Any], target: str, precision: str) -> None:
    """Evidence says of which files it is, and SHA256SUMS knows it."""
    sums = (package / "SHA256SUMS").read_text()
    files = {p.relative_to(package).as_posix() for p in package.glob("*_encoder/model*")}
    for name, document in found.items():
        if name != "validation.json":
            said = document["package"]
            assert (said["target"], said["precision"]) == (target, precision)
            assert files <= said["sha256"].keys()
            assert f"evidence/{name}" in sums
            assert all(f"{digest}  {file}" in sums for file, digest in said["sha256"].items())


def test_evidence_says_what_was_shown_and_in_which_calls(default: tuple[Path, Evidence]) -> None:
    found = documents(default[0])
    images = [row["name"] for row in found["l4_vision_encoder.json"]["trials"][0]["prompts"]]
    assert images[:3] == ["image: image 1", "two images: image 1", "two images: image 2"]
    assert images[-3:] == ["video and image: image 1", "video and image: frame 2", "video and image: frame 3"]
    rows = {row["name"]: row for row in found["l4_parity.json"]["trials"][0]["prompts"]}
    assert rows["two images"]["exhibits"] == ["image 20x90", "image 50x30"]
    assert rows["image and audio"]["exhibits"] == ["image 23x21", "sound of 0.31 s"]
    assert rows["video"]["exhibits"] == ["video of 3 frames 40x24"]
    media = found["processors.json"]["trials"][0]
    assert [row["name"] for row in media["prompts"]] == MEDIA
    assert "torchvision" in media["reference"]["frames"]
    for row in media["prompts"]:
        assert row["largest_difference"]["input_ids"] == 0
        assert row["largest_difference"].get("pixel_values", 0) < 1e-6
        assert row["largest_difference"].get("pixel_position_ids", 0) == 0
        assert row["largest_difference"].get("input_features", 0) <= 1e-4
    assert 0 < media["prompts"][0]["resized_by_pillow"]["share"] < 0.01


@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_tiny_passes_in_halves(
    copied: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    monkeypatch.setattr(full, "everything", some(HALVES, ()))
    package = copied("tiny-full", "default", precision)
    evidence = check(package, TINY / "target", threads=1, scratch=tmp_path)
    assert evidence.passed, failures(evidence)
    ranged = ["f16 range"] * (precision == "f16")
    assert [v.level for v in evidence.verdicts] == [*levels(COMPONENTS), *ranged]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p"], "nothing is left in scratch"
    found = documents(package)
    assert_bound(package, found, "default", precision)
    *own, twin = found["l4_vision_encoder.json"]["trials"]
    assert twin["thresholds"]["image_features"]["max_relative_difference"] == 1e-4
    unit = {"f16": 2**-11, "bf16": 2**-8}[precision]
    twin = found["l4_audio_encoder.json"]["trials"][-1]
    assert twin["thresholds"]["audio_features"]["max_relative_difference"] == unit
    if precision == "bf16":
        assert found["l4_vision_encoder.json"]["reported_only"][0]["reference_arithmetic_dtype"] == "bfloat16"
        return
    assert 1e-4 < own[0]["thresholds"]["image_features"]["max_relative_difference"] < 0.02
    edges = [edge["name"] for edge in found["f16_range.json"]["largest"]]
    assert {name.split(": ")[0] for name in edges} <= {*COMPONENTS}
    assert found["f16_range.json"]["values"] > 500


@pytest.mark.parametrize("target", ALL)
def test_the_31b_kind_passes(
    copied: Callable[..., Path], packages: Packages, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """Images whose tokens see each other, keys for values, standardized; no sound, no per-layer inputs."""
    if target != "default":
        monkeypatch.setattr(full, "everything", some(FEW, ()))
    package = copied("big-full", target)
    evidence = check(package, packages.whole("big-full"), threads=1)
    assert evidence.passed, failures(evidence)
    assert [v.level for v in evidence.verdicts] == levels(["vision_encoder", "embedding", "decoder"])
    embedding = documents(package)["l4_embedding.json"]["trials"][0]
    assert {row["port"] for row in embedding["prompts"]} == {"inputs_embeds"}


WRONG = {
    "vision_encoder": "model.vision_tower.encoder.layers.1.mlp.up_proj.linear.weight",
    "audio_encoder": "model.audio_tower.layers.0.lconv1d.linear_start.linear.weight",
    "embedding": "model.per_layer_model_projection.weight",
    "decoder": "model.layers.7.mlp.up_proj.weight",
}


@pytest.mark.usefixtures("shortly")
@pytest.mark.parametrize("name", WRONG)
def test_one_wrong_bit_names_its_component(copied: Callable[..., Path], name: str) -> None:
    package = copied("tiny-full")
    flip(package / name, WRONG[name])
    evidence = check(package, TINY / "target", threads=1)
    failed = [v.level for v in evidence.verdicts if not v.passed]
    assert [level for level in failed if level.removeprefix("L4 ") in COMPONENTS] == [f"L4 {name}"]
    assert "L4 logits" in failed
    assert documents(package)[f"l4_{name}.json"]["passed"] is False


@pytest.mark.usefixtures("shortly")
def test_a_tower_that_is_not_standardized_fails(packages: Packages, tmp_path: Path) -> None:
    source = shutil.copytree(packages.whole("big-full"), tmp_path / "source")
    config = json.loads((source / "config.json").read_bytes())
    config["vision_config"]["standardize"] = False
    checkpoints.write_config(source, config)
    checkpoints.change(source, lambda tensors: {n: t for n, t in tensors.items() if ".std_" not in n})
    cabochon.build(source, tmp_path / "p", model="full", precision="f32", license="apache-2.0")
    evidence = check(tmp_path / "p", packages.whole("big-full"), threads=1)
    failed = [v.level for v in evidence.verdicts if not v.passed]
    assert failed[:2] == ["L4 vision_encoder", "L4 logits"]


@pytest.mark.usefixtures("shortly")
def test_another_number_of_soft_tokens_fails(copied: Callable[..., Path]) -> None:
    """Whatever has another shape differs without bounds, and nothing breaks."""
    package = copied("tiny-full")
    path = package / "processor_config.json"
    config = json.loads(path.read_bytes())
    config["image_processor"]["max_soft_tokens"] = 140
    path.write_text(json.dumps(config))
    evidence = check(package, TINY / "target", threads=1)
    failed = [v.level for v in evidence.verdicts if not v.passed]
    assert failed == ["processors", "L4 logits", "L4 hidden states", "L5 generation"]
    assert "not image and audio, rows" in evidence.verdicts[0].summary


def test_another_checkpoint_is_refused(packages: Packages, tmp_path: Path) -> None:
    with pytest.raises(ParityError, match=r"output hidden_states\.5 has size none: it is absent"):
        check(packages("tiny-full"), packages.whole("big-full"))
    deaf = checkpoints.copy(tmp_path / "source", "target", audio_config=None)
    with pytest.raises(
        ParityError, match="the package has an audio_encoder; the checkpoint has no audio_config"
    ):
        check(packages("tiny-full"), deaf)


@pytest.mark.usefixtures("shortly")
def test_the_command_says_it(copied: Callable[..., Path]) -> None:
    package = copied("tiny-full")
    how = ("parity", package, TINY / "target", "--threads", "1")
    done = call(*how)
    assert done.returncode == 0, done.stderr
    assert "pass  L4 vision_encoder: max relative difference image_features" in done.stdout
    assert "pass  processors: 3 of 3 prompts prepared alike; pixels" in done.stdout
    assert f"      {package}/evidence/l4_decoder.json" in done.stdout
    assert "the package itself on onnxruntime CPU: vision_encoder" in done.stderr
    flip(package / "audio_encoder", WRONG["audio_encoder"])
    done = call(*how, "--json")
    assert done.returncode == 1
    said = {v["level"]: v["passed"] for v in json.loads(done.stdout)["verdicts"]}
    assert (said["L4 audio_encoder"], said["L4 vision_encoder"]) == (False, True)


def test_a_pair_drafts_on_images_and_sound(
    packages: Packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cabochon.parity import drafters

    monkeypatch.setattr(drafters, "PROMPTS", ("english",))
    monkeypatch.setattr(drafters, "SHOWN", ("image and audio",))
    pair = tmp_path / "p"
    cabochon.build(packages("tiny-full"), pair, assistant=DRAFTERS["tiny-drafter"], precision="f32")
    evidence = check(pair, TINY / "target", assistant=DRAFTERS["tiny-drafter"], threads=1)
    assert evidence.passed, failures(evidence)
    (trial,) = documents(pair)["l5_assisted_detail.json"]["trials"]
    rows = {row["name"]: row for row in trial["prompts"]}
    assert list(rows) == ["english", "image and audio"]
    assert rows["image and audio"]["exhibits"] == ["image 23x21", "sound of 0.31 s"]
    assert all(row["equal_to_own_plain_greedy"] and row["equal_to_reference_greedy"] for row in rows.values())
    said = documents(pair)["l4_parity.json"]["package"]["sha256"]
    assert {"model.onnx", "target/decoder/model.onnx", "target/vision_encoder/model.onnx.data"} <= said.keys()
