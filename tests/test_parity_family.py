"""`check` of every member of the family, live against transformers: of text, of the whole, and with its drafter.

Few questions for each. The smallest member has test_parity_{checking,full,drafters} for itself.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import cabochon
from cabochon.parity import Evidence, check, checking, drafters, full
from cabochon.parity.exhibits import Exhibits, film, picture, sound
from cabochon.parity.full_prompts import Asked, everything
from cabochon.parity.prompts import Prompt
from family import MEMBERS, Member
from packages import DRAFTERS, TINY, WHOLE, Packages, alone

pytestmark = pytest.mark.parity

OTHERS = {member.folder: member for member in MEMBERS[1:]}
RECORDED = json.loads((TINY / "ref" / "outputs.json").read_bytes())
SEEN = Exhibits([picture(90, 20, seed=1)], films=[film(2, 40, 24)])
HEARD = Exhibits(SEEN.images, [sound(5_000, seed=1)], SEEN.films)
COMPONENTS = ["vision_encoder", "audio_encoder", "embedding", "decoder"]


def familiar(folder: str) -> list[Prompt]:
    """What the tiny drafters were trained on: a prompt around the window, and a long one, which generates."""
    both = {name: tuple(RECORDED[f"{folder}/{name}"]["prompt"]) for name in ("text", "text_long")}
    return [Prompt(name, ids, generates=name == "text_long") for name, ids in both.items()]


def questions(member: Member) -> Any:
    """Rows with images of several shapes and without, and one prompt with every medium."""
    media = " and ".join(f"<|{medium}|>" for medium in member.media)
    shown = HEARD if "audio" in member.media else SEEN
    every = Asked("all media", (Prompt("all media", (), f"What are {media}?", exhibits=shown),))

    def asked(*given: Any) -> list[Asked]:
        return [one for one in everything(*given) if one.name == "rows"] + [every]

    return asked


def whole(packages: Packages, folder: str) -> Path:
    """The package of a model with its encoders."""
    if f"{folder}-full" in WHOLE:
        return packages(f"{folder}-full")
    out = packages.root / f"{folder}-whole"
    with alone(out):
        if not out.exists():
            cabochon.build(TINY / folder, out, model="full", precision="f32", license="apache-2.0")
    return out


def document(package: Path, name: str) -> dict[str, Any]:
    return json.loads((package / "evidence" / name).read_bytes())


def failures(evidence: Evidence) -> list[str]:
    return [f"{v.level}: {v.summary}" for v in evidence.verdicts if not v.passed]


def worst(package: Path, name: str) -> float:
    """The largest difference that the last trial found."""
    return max(row["max_relative_difference"] for row in document(package, name)["trials"][-1]["prompts"])


@pytest.mark.parametrize("folder", OTHERS)
def test_the_whole_passes(
    packages: Packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    member = OTHERS[folder]
    monkeypatch.setattr(full, "everything", questions(member))
    package = shutil.copytree(whole(packages, folder), tmp_path / "p")
    evidence = check(package, TINY / folder, threads=1)
    assert evidence.passed, failures(evidence)
    there = [name for name in COMPONENTS if "audio" in member.media or name != "audio_encoder"]
    levels = [f"L4 {name}" for name in there]
    assert [v.level for v in evidence.verdicts] == [
        "processors", *levels, "L4 logits", "L4 hidden states", "L5 generation",
    ]  # fmt: skip
    assert max(worst(package, f"l4_{name}.json") for name in (*there, "parity")) <= 5e-5
    ports = {row["port"] for row in document(package, "l4_embedding.json")["trials"][0]["prompts"]}
    assert ports == {"inputs_embeds", *["per_layer_inputs"] * (folder == "e4b")}
    generated = document(package, "l5_generation.json")
    assert {row["verdict"] for row in generated["trials"][0]["prompts"]} == {"equal"}
    kind = (
        "Gemma4UnifiedForConditionalGeneration" if folder == "unified" else "Gemma4ForConditionalGeneration"
    )
    assert generated["reference"]["class"] == kind
    assert ("masks" in generated["reference"]) is (folder == "unified")


@pytest.mark.parametrize("folder", OTHERS)
def test_text_and_its_drafter_pass(
    packages: Packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """A pair holds a package of text, which is one by itself."""
    monkeypatch.setattr(checking, "prompts", lambda *_, **__: familiar(folder))
    monkeypatch.setattr(drafters, "_prompts", lambda *_: familiar(folder)[1:])
    pair, assistant = shutil.copytree(packages(f"{folder}-pair"), tmp_path / "p"), OTHERS[folder].assistant
    evidence = check(pair / "target", TINY / folder, threads=1)
    assert evidence.passed, failures(evidence)
    assert worst(pair / "target", "l4_parity.json") <= 5e-5
    evidence = check(pair, TINY / folder, assistant=DRAFTERS[assistant], threads=1)
    assert evidence.passed, failures(evidence)
    assert [v.level for v in evidence.verdicts] == [
        "L4 drafter step", "L5 drafter bridge", "L5 assisted generation",
    ]  # fmt: skip
    (trial,) = document(pair, "l5_assisted_detail.json")["trials"]
    (row,) = trial["prompts"]
    assert row["equal_to_own_plain_greedy"] and row["equal_to_reference_greedy"]
    assert row["rounds_equal_to_reference_with_valid_keys"] or row["read_again"]
    (bridge,) = document(pair, "l5_drafter_rootcause.json")["trials"]
    assert ("active_set" in bridge["threshold"]) is (folder == "e4b")
    assert bridge["prompts"][0]["teacher_forced"]["logits"]["max_relative_difference"] < 1e-5
    said = document(pair, "l4_parity.json")["reference"]["assistant"]["class"]
    assert said == f"Gemma4{'Unified' * (folder == 'unified')}AssistantForCausalLM"


def test_a_pair_of_the_unified_model_drafts_on_media(
    packages: Packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafters, "_prompts", lambda *_: [])
    monkeypatch.setattr(drafters, "SHOWN", ("image and audio",))
    assistant = DRAFTERS["assistant-unified"]
    cabochon.build(packages("unified-full"), tmp_path / "p", assistant=assistant, precision="f32")
    evidence = check(tmp_path / "p", TINY / "unified", assistant=assistant, threads=1)
    assert evidence.passed, failures(evidence)
    (trial,) = document(tmp_path / "p", "l5_assisted_detail.json")["trials"]
    assert [row["name"] for row in trial["prompts"]] == ["image and audio"]
    assert trial["prompts"][0]["equal_to_reference_greedy"]


@pytest.mark.parametrize(
    ("source", "precision"), [("moe", "f16"), ("moe", "Q4_K_M"), ("unified-full", "Q4_K_M")]
)
def test_what_is_rounded_passes(
    packages: Packages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, precision: str
) -> None:
    """The f32 twin, which is exact, within 1e-4, with the same experts; in blocks the reference has the package's own
    numbers, those of experts in three dimensions among them."""
    folder = source.removesuffix("-full")
    monkeypatch.setattr(checking, "prompts", lambda *_, **__: familiar(folder))
    monkeypatch.setattr(full, "everything", lambda *given: questions(OTHERS[folder])(*given)[1:])
    package = shutil.copytree(packages(source, "default", precision), tmp_path / "p")
    evidence = check(package, TINY / folder, threads=1)
    assert evidence.passed, failures(evidence)
    itself, twin = document(package, "l4_parity.json")["trials"]
    assert max(row["max_relative_difference"] for row in twin["prompts"]) <= 1e-4
    assert ("undecided" in itself, "undecided" in twin) == (source == "moe", False)
    if precision == "f16":
        return
    apart = document(package, "dequantized.json")["relative_rms_difference"]
    known = (
        "model.layers.0.experts.gate_up_proj"
        if source == "moe"
        else "model.vision_embedder.patch_dense.weight"
    )
    assert 0.001 < apart[known] < 0.2
