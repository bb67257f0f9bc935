"""`check`, live against transformers: every target and precision passes, and a wrong package fails."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import checkpoints
from cabochon.dialects import TARGETS
from cabochon.errors import ParityError
from cabochon.parity import Evidence, check, checking
from cabochon.parity.prompts import Prompt, prompts
from cabochon.parity.reference import Recording, record
from cabochon.recipes.cast import TYPES
from packages import SOURCES, TINY, Packages
from test_parity_levels import flip

FILES = ("l4_parity.json", "l4_hidden_state.json", "l5_generation.json")


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Recording]:
    """What transformers says, asked live, but once for each checkpoint and precision."""
    known: dict[Any, Recording] = {}

    def once(
        source: Path, config: Any, prompts: Any, *, precision: str, folder: Path, **more: Any
    ) -> Recording:
        key = (source, precision, tuple(prompts))
        if key not in known:
            folder = tmp_path_factory.mktemp("recorded")
            known[key] = record(source, config, prompts, precision=precision, folder=folder, **more)
        return known[key]

    return once


@pytest.fixture(autouse=True)
def asked_once(recordings: Callable[..., Recording], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "record", recordings)


def documents(package: Path) -> dict[str, dict[str, Any]]:
    return {name: json.loads((package / "evidence" / name).read_text("utf-8")) for name in FILES}


def failures(evidence: Evidence) -> list[str]:
    return [f"{v.level}: {v.summary}" for v in evidence.verdicts if not v.passed]


def test_a_source_or_known_is_needed(packages: Packages) -> None:
    with pytest.raises(ParityError, match="no checkpoint to compare with"):
        check(packages())
    with pytest.raises(ParityError, match="31 new tokens prove little; at least 32"):
        check(packages(), TINY / "text", new_tokens=31)


def test_another_checkpoint_is_refused_before_anything_is_loaded(packages: Packages, tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="output logits has size 512; the checkpoint's is 2048"):
        check(packages(), SOURCES["miniature"])
    deeper = checkpoints.copy(tmp_path / "source", num_hidden_layers=12)
    with pytest.raises(ParityError, match=r"output hidden_states\.11 has size none: it is absent"):
        check(packages(), deeper)


@pytest.mark.parity
@pytest.mark.parametrize(
    ("target", "precision"), [(t.name, p) for p in TYPES for t in TARGETS.values() if p in t.precisions]
)
def test_tiny_passes(packages: Packages, tmp_path: Path, target: str, precision: str) -> None:
    package = shutil.copytree(packages(target=target, precision=precision), tmp_path / "p")
    evidence = check(package, TINY / "text", threads=1, scratch=tmp_path)
    assert evidence.passed, failures(evidence)
    assert [v.level for v in evidence.verdicts][:3] == ["L4 logits", "L4 hidden states", "L5 generation"]
    for name, document in documents(package).items():
        held_to(document, target, precision)
        assert f"evidence/{name}" in (package / "SHA256SUMS").read_text()
    assert (package / "evidence" / "f16_range.json").exists() is (precision == "f16")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p"], "nothing is left in scratch"


def held_to(document: dict[str, Any], target: str, precision: str) -> None:
    """What every evidence file must say, and that its limits are those of the project."""
    assert document["passed"] is True
    assert (document["package"]["target"], document["package"]["precision"]) == (target, precision)
    dtype = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}[precision]
    assert document["reference"]["weights_dtype"] == dtype
    assert document["reference"]["arithmetic_dtypes"] == list(dict.fromkeys((dtype, "float32")))
    assert set(document["reference"]["loading_info"].values() and document["reference"]["loading_info"]) == {
        "missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs",
    }  # fmt: skip
    assert not any(document["reference"]["loading_info"].values())
    assert {"torch", "transformers", "onnxruntime", "cabochon"} <= document["versions"].keys()
    hows = [trial["how"].split(" on ")[0] for trial in document["trials"]]
    twin, itself = "f32 twin of the package", "the package itself"
    assert hows == {"f32": [itself], "bf16": [twin], "f16": [itself, twin]}[precision]
    strict = document["trials"][-1]
    assert strict["reference_arithmetic_dtype"] == "float32"
    names = {prompt["name"] for prompt in strict["prompts"]}
    assert {"russian", "arabic", "hindi", "chinese", "emoji", "code", "beyond the window"} <= names
    if document["level"] == "L5":
        assert all(p["verdict"] == "equal" and p["new_tokens"] >= 32 for p in strict["prompts"])
        return
    assert strict["threshold"]["max_relative_difference"] == 1e-4
    assert {"window -1", "window", "window +1"} <= names
    assert max(p["max_relative_difference"] for p in strict["prompts"]) <= 1e-4
    assert max(p["tokens"] for p in strict["prompts"]) > 2 * 8
    beside = document.get("reported_only", [])
    assert [trial["reference_arithmetic_dtype"] for trial in beside] == ["bfloat16"] * (precision == "bf16")
    for trial in beside:
        assert {prompt["name"] for prompt in trial["prompts"]} == names
        assert 1e-3 < max(p["max_relative_difference"] for p in trial["prompts"]) < 0.5


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of the prompts, where another test has them all."""
    names = ("english", "chinese", "code", "window", "beyond the window")

    def asked(*given: Any, **more: Any) -> list[Prompt]:
        return [prompt for prompt in prompts(*given, **more) if prompt.name in names]

    monkeypatch.setattr(checking, "prompts", asked)


@pytest.mark.parity
@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_the_miniature_passes(packages: Packages, tmp_path: Path, few: None, precision: str) -> None:
    package = shutil.copytree(packages("miniature", precision=precision), tmp_path / "p")
    evidence = check(package, SOURCES["miniature"], threads=1)
    assert evidence.passed, failures(evidence)


@pytest.mark.parity
def test_the_whole_class_is_a_reference_too(tmp_path: Path, few: None) -> None:
    import cabochon

    cabochon.build(TINY / "target", tmp_path / "p", precision="f32", license="apache-2.0")
    evidence = check(tmp_path / "p", TINY / "target", threads=1)
    assert evidence.passed, failures(evidence)
    assert (
        documents(tmp_path / "p")["l4_parity.json"]["reference"]["class"] == "Gemma4ForConditionalGeneration"
    )


@pytest.mark.parity
@pytest.mark.parametrize("precision", ["f32", "f16", "bf16"])
def test_one_wrong_bit_fails(packages: Packages, tmp_path: Path, precision: str) -> None:
    package = shutil.copytree(packages(precision=precision), tmp_path / "p")
    flip(package, "model.layers.7.mlp.up_proj.weight")
    evidence = check(package, TINY / "text", threads=1)
    assert not evidence.passed
    assert [v.level for v in evidence.verdicts if not v.passed][:2] == ["L4 logits", "L4 hidden states"]
    assert documents(package)["l4_parity.json"]["passed"] is False


@pytest.mark.parity
@pytest.mark.parametrize("change", ["window", "scale"])
def test_a_wrong_formula_fails(packages: Packages, tmp_path: Path, change: str) -> None:
    """A package of another formula: a window of one key more, a soft-cap of 31 instead of 30."""
    import cabochon

    wrong = {"window": {"sliding_window": 9}, "scale": {"final_logit_softcapping": 31.0}}[change]
    source = checkpoints.copy(tmp_path / "source", **wrong)
    cabochon.build(source, tmp_path / "p", precision="f32", license="apache-2.0")
    evidence = check(tmp_path / "p", TINY / "text", threads=1)
    assert not evidence.passed
    assert documents(tmp_path / "p")["l4_parity.json"]["passed"] is False


@pytest.mark.parity
def test_the_runtime_generates_the_tokens_of_the_evidence(packages: Packages, tmp_path: Path) -> None:
    """L5 drives the graph with plain feeds; the runtime evicts, chunks and binds, and must say the same."""
    package = shutil.copytree(packages("miniature"), tmp_path / "p")
    evidence = check(package, SOURCES["miniature"], threads=1)
    assert evidence.passed, failures(evidence)
    model = packages.model("miniature")
    asked = {p.name: p for p in prompts(package, vocabulary=2048, window=32, first_id=2)}
    rows = documents(package)["l5_generation.json"]["trials"][0]["prompts"]
    for row in rows:
        made = model.generate(asked[row["name"]].ids, greedy=True, max_new_tokens=32, ignore_eos=True).ids
        assert list(made) == row["token_ids"], row["name"]
