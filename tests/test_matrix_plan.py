"""Which variants there are, what they share, and how they are split over machines."""

import re
from collections import Counter
from pathlib import Path

import pytest

import checkpoints
from cabochon.dialects import TARGETS
from cabochon.errors import CabochonError, PackageError
from cabochon.matrix import VARIANTS, Matrix, plan_matrix
from cabochon.matrix.shards import read_shard, shard_of, split
from cabochon.matrix.variants import chosen
from cabochon.planning import plan
from cabochon.recipes import PRECISIONS
from family import MEMBERS, Member
from packages import TESTS, TINY

E2B = TESTS / "data" / "geometries" / "e2b.json"
PUBLISHED = {
    "f16/cuda", "f16/default", "f16/onnx-standard", "f16/webgpu", "bf16/cuda", "bf16/default", "bf16/onnx-standard",
    "Q4_K_M/cuda", "Q4_K_M/default", "NF4/cuda", "NF4/default", "openvino-epcontext", "openvino-ir",
}  # fmt: skip


@pytest.fixture(scope="module")
def e2b() -> Matrix:
    return plan_matrix(E2B)


def new_bytes(matrix: Matrix) -> dict[str, tuple[int, int]]:
    """By folder the bytes of weights that no variant before it has, and those of the checkpoint that they take."""
    seen, found = set[str](), dict[str, tuple[int, int]]()
    for unit in matrix.units:
        new = [file for file in unit.files if file.key not in seen]
        seen |= {file.key for file in new}
        found[unit.folder] = sum(file.nbytes for file in new), sum(file.read for file in new)
    return found


def test_every_variant_stands_where_it_says() -> None:
    for folder, variant in VARIANTS.items():
        assert folder == variant.folder
        if variant.needs is None:
            assert folder == f"{variant.precision}/{variant.target}"
            target = TARGETS[variant.target]
            stored = PRECISIONS[variant.precision].on(target.storage)
            assert not target.refusal(stored.activations, (), stored.methods)
        else:
            assert list(VARIANTS).index(variant.needs) < list(VARIANTS).index(folder)


def test_the_usual_ones_are_the_published_ones_and_what_they_need() -> None:
    assert {variant.folder for variant in chosen()} == PUBLISHED | {"Q4_K_M/onnx-standard"}
    assert {variant.folder for variant in chosen(every=True)} == VARIANTS.keys()


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (["f16/cuda/"], ["f16/cuda"]),
        (["NF4/*", "f16/d*"], ["f16/default", "NF4/default", "NF4/cuda"]),
        (["openvino-epcontext"], ["Q4_K_M/onnx-standard", "openvino-ir", "openvino-epcontext"]),
    ],
)
def test_patterns_choose_and_bring_what_is_needed(only: list[str], expected: list[str]) -> None:
    assert [variant.folder for variant in chosen(only)] == expected


def test_a_pattern_that_fits_nothing_is_refused() -> None:
    with pytest.raises(PackageError, match=r"'f61/\*' fits no variant; there are f16/default"):
        chosen(["f16/*", "f61/*"])


def test_what_the_variants_of_e2b_share(e2b: Matrix) -> None:
    """onnx-standard is default, cuda but for the table of layers; what is written twice the disk has once."""
    assert e2b.model == "full"
    new = new_bytes(e2b)
    for precision in ("f16", "bf16"):
        assert new[f"{precision}/onnx-standard"] == (0, 0)
        written, read = new[f"{precision}/cuda"]
        assert 0.45 < written / new[f"{precision}/default"][0] < 0.47 and read / e2b.source_bytes < 0.47
    encoders = {"vision_encoder/model.onnx.data", "audio_encoder/model.onnx.data"}
    for target in ("default", "cuda"):
        keys = {
            p: {f.path: f.key for u in e2b.units if u.folder == f"{p}/{target}" for f in u.files}
            for p in ("Q4_K_M", "NF4")
        }
        assert {path for path, key in keys["NF4"].items() if keys["Q4_K_M"].get(path) == key} == encoders
    assert new["openvino-epcontext"] == (0, 0)
    assert (
        new["openvino-ir"][0] - new["Q4_K_M/onnx-standard"][0] == 257_949_696
    )  # the tied table, in two graphs
    reads = sum(read for _, read in new.values()) / e2b.source_bytes
    alone = sum(file.read for unit in e2b.units for file in unit.files) / e2b.source_bytes
    assert (round(reads, 2), round(alone, 2)) == (8.8, 12.16)


def test_a_pair_has_a_drafter_and_its_target(e2b: Matrix) -> None:
    only = ["f16/default", "f16/onnx-standard"]
    pairs = plan_matrix(E2B, assistant=TESTS / "data" / "geometries" / "e2b-assistant.json", only=only)
    ours = {file.path: file for file in pairs.units[0].files}
    alone = {f"target/{file.path}": file.nbytes for file in e2b.units[0].files}
    assert {path: file.nbytes for path, file in ours.items() if path != "model.onnx.data"} == alone
    assert ours["model.onnx.data"].nbytes > 10**8
    assert [file.key for file in pairs.units[1].files] == [file.key for file in pairs.units[0].files]


@pytest.mark.parametrize("assistant", [None, TINY / "assistant-dense"], ids=["alone", "pair"])
def test_a_variant_is_as_large_as_the_plan_of_the_checkpoint_says(assistant: Path | None) -> None:
    said = {
        (verdict.target, verdict.precision): verdict.disk
        for verdict in plan(TINY / "text", assistant=assistant).verdicts
    }
    units = plan_matrix(TINY / "text", assistant=assistant, only=["Q4_K_M/onnx-standard", "openvino-*"]).units
    assert len(units) == 4
    for unit in units:
        assert unit.nbytes == said[unit.variant.target, unit.variant.precision], unit.folder


@pytest.mark.parametrize("n", [1, 2, 3, 5, 30])
def test_shards_are_all_of_it_and_keep_together_what_is_needed(e2b: Matrix, n: int) -> None:
    parts = split(e2b.units, n)
    assert Counter(unit.folder for part in parts for unit in part) == Counter(u.folder for u in e2b.units)
    for part in parts:
        folders = [unit.folder for unit in part]
        assert all(unit.variant.needs in (None, *folders) for unit in part)
        assert folders == [unit.folder for unit in e2b.units if unit.folder in folders]
    assert [shard_of(e2b.units, i, n) for i in (1, n)] == [parts[0], parts[-1]]


def test_a_planned_shard() -> None:
    only = ["f16/default", "f16/onnx-standard", "Q4_K_M/default"]
    planned = plan_matrix(TINY / "text", only=only, shard=(1, 2))  # the larger part is the first
    assert [unit.folder for unit in planned.units] == ["f16/default", "f16/onnx-standard"]


def test_shards_are_about_as_large(e2b: Matrix) -> None:
    """By what each has to compute; and what shares files mostly lies together."""
    for n, most in ((2, 1.1), (3, 1.15), (4, 1.15)):
        parts = split(e2b.units, n)
        loads = [
            sum({f.key: f.nbytes for unit in part for f in unit.files}.values()) / 10**9 for part in parts
        ]
        once = sum(written for written, _ in new_bytes(e2b).values()) / 10**9
        assert max(loads) < most * once / n, loads
        homes = {unit.folder: i for i, part in enumerate(parts) for unit in part}
        assert homes["f16/default"] == homes["f16/onnx-standard"]


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2", "1/"])
def test_a_shard_that_is_none(text: str) -> None:
    with pytest.raises(PackageError, match="expected i/n"):
        read_shard(text)


def test_what_cannot_be_planned() -> None:
    with pytest.raises(CabochonError, match="is an assistant; expected a model"):
        plan_matrix(TINY / "assistant")
    with pytest.raises(CabochonError, match="there is no full package"):
        plan_matrix(TINY / "text", model="full")
    for planned in (
        plan_matrix(TINY / "text", only=["f16/cuda"]),
        plan_matrix(TINY / "target", model="text", only=["f16/cuda"]),
    ):
        assert planned.model == "text"


@pytest.mark.parametrize("member", MEMBERS, ids=lambda member: member.folder)
def test_every_member_is_planned(member: Member) -> None:
    """All of it unless text is asked for, and pairs; cuda has files of its own for a table of layers alone."""
    source, only = TINY / member.folder, ["f16/default", "f16/cuda"]
    whole = plan_matrix(source)
    assert whole.model == "full" and [unit.folder for unit in whole.units] == [v.folder for v in chosen()]
    assert not [unit.refused for unit in whole.units if unit.refused]
    encoders = {
        file.path.partition("_encoder/")[0] for file in whole.units[0].files if "_encoder/" in file.path
    }
    assert encoders == {"vision", *({"audio"} & {*member.media})}
    new = new_bytes(whole)
    assert new["f16/onnx-standard"] == (0, 0)
    assert (new["f16/cuda"] == (0, 0)) == (member.folder not in ("target", "e4b"))
    text = plan_matrix(source, model="text", only=only)
    assert [{file.path for file in unit.files} for unit in text.units] == [{"model.onnx.data"}] * 2
    pair = plan_matrix(source, assistant=TINY / member.assistant, only=only)
    for one, two in zip(whole.units[:3:2], pair.units, strict=True):  # default and cuda
        assert {file.path for file in two.files} == {f"target/{f.path}" for f in one.files} | {
            "model.onnx.data"
        }
        assert not two.refused


def test_what_a_target_cannot_carry_is_refused_by_itself(tmp_path: Path) -> None:
    config = checkpoints.tiny_config("text")
    checkpoints.write_config(tmp_path, config | {"head_dim": 12})
    planned = {
        unit.folder: unit.refused for unit in plan_matrix(tmp_path / "config.json", only=["f16/*"]).units
    }
    assert (
        planned.pop("f16/cuda") == "target 'cuda' takes head sizes that are multiples of 8; this model has 12"
    )
    assert not any(reason for folder, reason in planned.items() if "webgpu" not in folder)


def test_the_recipe_for_ray_names_what_there_is() -> None:
    """It was run by hand, with a release that the docs name: ray is no dependency of the tests."""
    text = (TESTS.parent / "docs" / "matrix.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert (
        compile(code, "docs/matrix.md", "exec")
        and "from cabochon.matrix import build_matrix, plan_matrix" in code
    )
    assert text.count(": built, ") == len(chosen()) and re.search(r"ray \d+\.\d+\.\d+ from PyPI", text)
