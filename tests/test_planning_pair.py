"""Plans of pairs and of drafters by themselves."""

from functools import cache
from pathlib import Path

import pytest

import cabochon
from cabochon.errors import SourceError, UnsupportedError
from cabochon.planning import Plan, Verdict
from cabochon.planning.offers import Offer, offers, refusal
from cabochon.planning.opened import open_config
from family import MEMBERS
from packages import Packages

DATA = Path(__file__).parent / "data"
GEOMETRIES, TINY = DATA / "geometries", DATA / "tiny"
GEOMETRY_NAMES = ("e2b", "e4b", "12b", "26b-a4b", "31b")


@cache
def planned(target: str, assistant: str) -> Plan:
    return cabochon.plan(config=GEOMETRIES / f"{target}.json", assistant=GEOMETRIES / f"{assistant}.json")


def verdict(plan: Plan, target: str, precision: str, model: str) -> Verdict:
    key = (target, precision, model)
    (found,) = (v for v in plan.verdicts if (v.target, v.precision, v.model) == key)
    return found


def written(package: Path) -> int:
    return sum({f.stat().st_ino: f.stat().st_size for f in package.rglob("*") if f.is_file()}.values())


@pytest.mark.parametrize("model", ["text", "full"])
def test_a_pair_is_the_target_and_the_drafter(model: str) -> None:
    alone = verdict(cabochon.plan(config=GEOMETRIES / "e2b.json"), "cuda", "f16", model)
    pair = verdict(planned("e2b", "e2b-assistant"), "cuda", "f16", model)
    names = [part.name for part in alone.components]
    assert [part.name for part in pair.components] == [*names[:-1], "drafter", "token_embedding", "documents"]
    # the drafter, and once more the tokenizer that stands beside it
    assert 157_559_816 + 32_000_000 < pair.disk - alone.disk < 157_559_816 + 33_000_000
    # the drafter, and the target's table in the session that looks tokens up
    assert pair.memory - alone.memory == 157_559_816 + 805_306_368


def test_the_plan_of_the_drafter_comes_along() -> None:
    plan = planned("e2b", "e2b-assistant")
    assert plan.assistant is not None
    assert plan.assistant == cabochon.plan(config=GEOMETRIES / "e2b-assistant.json")
    assert plan.assistant.nbytes == 157_559_816
    assert cabochon.plan(config=GEOMETRIES / "e2b.json").assistant is None


@pytest.mark.parametrize(
    ("source", "folder", "assistant", "target", "precision"),
    [
        ("tiny-pair", "text", "assistant", "default", "f32"),
        ("tiny-dense-pair", "text", "assistant-dense", "webgpu", "f16"),
        *((f"{m.folder}-pair", m.folder, m.assistant, "default", "f32") for m in MEMBERS[1:]),
    ],
)
def test_a_pair_takes_what_was_planned(
    source: str, folder: str, assistant: str, target: str, precision: str, packages: Packages
) -> None:
    package = packages(source, target, precision)
    plan = cabochon.plan(TINY / folder, assistant=TINY / assistant, precision=precision)
    found = verdict(plan, target, precision, "text")
    assert abs(found.disk - written(package)) <= 0.05 * written(package)
    said = next(part.disk for part in found.components if part.name == "documents")
    assert found.disk - said == sum(file.stat().st_size for file in package.rglob("*.data"))


@pytest.mark.parametrize(
    ("source", "assistant", "target", "precision"),
    [
        ("tiny-drafter", "assistant", "default", "f32"),
        ("tiny-dense-drafter", "assistant-dense", "cuda", "f16"),
        ("tiny-drafter", "assistant", "default", "Q4_K_M"),
    ],
)
def test_a_drafter_takes_what_was_planned(
    source: str, assistant: str, target: str, precision: str, packages: Packages
) -> None:
    taken = written(packages(source, target, precision))
    found = verdict(cabochon.plan(TINY / assistant), target, precision, "drafter")
    assert abs(found.disk - taken) <= 0.05 * taken


@pytest.mark.parametrize(
    ("name", "precision"),
    [("e2b", None), ("e4b", "Q8"), ("12b", "Q4_K_M"), ("26b-a4b", "f16"), ("31b", "f32")],
)
def test_pairs_of_the_family(name: str, precision: str | None) -> None:
    """The target, its drafter and one more tokenizer; nothing that the target alone is refused."""
    config, assistant = (GEOMETRIES / f"{name}{of}.json" for of in ("", "-assistant"))
    alone = cabochon.plan(config=config, precision=precision)
    plan = (
        planned(name, f"{name}-assistant")
        if precision is None
        else cabochon.plan(config=config, assistant=assistant, precision=precision)
    )
    assert plan.assistant is not None and plan.refused == ""
    drafters = {(v.target, v.precision): v for v in plan.assistant.verdicts}
    for target, pair in zip(alone.verdicts, plan.verdicts, strict=True):
        assert (target.target, target.precision, target.model) == (pair.target, pair.precision, pair.model)
        assert (target.status == "refused") == (pair.status == "refused")
        drafter = drafters[pair.target, pair.precision]
        more = {part.name: part for part in pair.components}
        own = next(part for part in drafter.components if part.name == "drafter")
        assert more["drafter"] == own
        documents = next(part for part in target.components if part.name == "documents")
        beside = more["documents"].disk - documents.disk + more["token_embedding"].disk
        assert pair.disk - target.disk == own.disk + beside
        assert pair.memory - target.memory == own.memory + more["token_embedding"].memory


def test_an_assistant_fits_its_own_target_and_no_other() -> None:
    def first(name: str) -> Offer:
        return offers(open_config(GEOMETRIES / f"{name}.json"))[0]

    targets = {name: first(name) for name in GEOMETRY_NAMES}
    for name, drafter in {name: first(f"{name}-assistant") for name in GEOMETRY_NAMES}.items():
        assert [other for other in targets if not refusal(targets[other], drafter)] == [name]


def test_a_table_of_a_drafter_is_stored_whole() -> None:
    found = verdict(planned("e2b", "e2b-assistant"), "webgpu", "f32", "text")
    assert found.status == "conditional"
    assert "1 tensor is beyond the 128 MiB" in found.reason
    assert "must grant 256 MiB" in found.reason


def test_what_does_not_fit_is_refused() -> None:
    plan = cabochon.plan(
        config=GEOMETRIES / "e2b.json", assistant=GEOMETRIES / "31b-assistant.json", precision="f16"
    )
    assert "backbone_hidden_size is 5376, the target's hidden_size 1536" in plan.refused
    assert {(v.status, v.reason) for v in plan.verdicts} == {("refused", plan.refused)}


def test_an_assistant_that_is_none() -> None:
    with pytest.raises(UnsupportedError, match="is no drafter"):
        cabochon.plan(TINY / "text", assistant=TINY / "text")


def test_a_target_that_is_a_drafter() -> None:
    with pytest.raises(SourceError, match="expected a target to draft for"):
        cabochon.plan(TINY / "assistant", assistant=TINY / "assistant")
