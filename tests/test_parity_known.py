"""Published answers: the table is whole, and the mechanism is held to the tiny checkpoint's recorded outputs."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cabochon.errors import ParityError
from cabochon.parity import check
from cabochon.parity.known import TOLERANCES, Known, _findings, _recognised, check_known, read_table
from packages import TINY, Packages

GEOMETRY = {"num_hidden_layers": 10, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 512}


def row() -> dict[str, Any]:
    """The recorded reference of the tiny text checkpoint in the form of the table."""
    told = json.loads((TINY / "ref" / "outputs.json").read_text())["text/text"]
    logits = (
        np.load(TINY / "ref" / "prefill_target_text.npz")["logits"].reshape(-1, 512)[-1].astype(np.float64)
    )
    top = np.argsort(-logits)[:10]
    return {
        "id": "someone/tiny",
        "geometry": GEOMETRY,
        "prompt": "Here is my poem:",
        "prompt_ids": told["prompt"],
        "top_ids": top.tolist(),
        "top_logits": logits[top].round(5).tolist(),
        "logits": {
            name: round(float(getattr(np, name)(logits)), 5) for name in ("max", "min", "mean", "std")
        },
        "greedy_ids": told["tokens"],
    }


@pytest.fixture
def table(tmp_path: Path) -> Callable[..., Path]:
    def write(**changes: Any) -> Path:
        path = tmp_path / "table.json"
        path.write_text(json.dumps({"source": "recorded", "models": [row() | changes]}))
        return path

    return write


@pytest.fixture
def copied(packages: Packages, tmp_path: Path) -> Callable[[str], Path]:
    def copy(precision: str) -> Path:
        return Path(shutil.copytree(packages(precision=precision), tmp_path / precision))

    return copy


def test_the_programs_own_table_is_whole() -> None:
    source, rows = read_table()
    assert "float32" in source
    assert "MIT" in source
    assert [r.id.removeprefix("google/gemma-4-") for r in rows] == [
        "E2B-it",
        "E4B-it",
        "12B",
        "26B-A4B-it",
        "31B-it",
    ]
    for r in rows:
        assert len(r.top_ids) == len(r.top_logits) == 10
        assert len(r.greedy_ids) == 20
        assert list(r.top_logits) == sorted(r.top_logits, reverse=True)
        assert r.logits["max"] == r.top_logits[0]
        assert r.greedy_ids[0] == r.top_ids[0]
        assert r.geometry["vocab_size"] == 262144
        geometry = TINY.parent / "geometries" / f"{r.id.split('-', 2)[2].lower().removesuffix('-it')}.json"
        text = json.loads(geometry.read_text())["text_config"]
        assert {key: text[key] for key in r.geometry} == r.geometry
    e2b = rows[0]
    assert e2b.prompt_ids == (8291, 563, 1041, 27355, 236787)
    assert (e2b.top_ids[0], e2b.top_logits[0], e2b.scale) == (5715, -6.62545, 29.50298)


GEOMETRIES = TINY.parent / "geometries"
MEMBERS = {
    "e2b": "google/gemma-4-E2B-it",
    "e4b": "google/gemma-4-E4B-it",
    "12b": "google/gemma-4-12B",
    "26b-a4b": "google/gemma-4-26B-A4B-it",
    "31b": "google/gemma-4-31B-it",
}


def named(package: Path, config: dict[str, Any], **source: Any) -> Path:
    """As much of a package as it is recognised by."""
    (package / "config.json").write_text(json.dumps(config))
    (package / "provenance.json").write_text(json.dumps(source))
    return package


@pytest.mark.parametrize("member", MEMBERS)
def test_every_member_is_recognised_as_itself(member: str, tmp_path: Path) -> None:
    """By the config of a whole package and by that of text alone; where the id is known, by the id."""
    config, rows = json.loads((GEOMETRIES / f"{member}.json").read_bytes()), read_table()[1]
    for said in (config, config["text_config"]):
        found, how = _recognised(named(tmp_path, said, source={"id": None}), rows)
        assert (found.id, how.split(" ")[0]) == (MEMBERS[member], "geometry")
        without = [row for row in rows if row.id != found.id]
        with pytest.raises(ParityError, match="no published answers for this geometry"):
            _recognised(tmp_path, without)
    for key in ("source", "target"):
        found, how = _recognised(named(tmp_path, {}, **{key: {"id": MEMBERS[member].upper()}}), rows)
        assert (found.id, how) == (MEMBERS[member], "id in provenance.json")


@pytest.mark.parametrize("other", [*(f"{member}-assistant" for member in MEMBERS), "tiny"])
def test_nothing_else_is_recognised(other: str, tmp_path: Path) -> None:
    path = GEOMETRIES / f"{other}.json" if other != "tiny" else TINY / "target" / "config.json"
    with pytest.raises(ParityError, match="no published answers for this geometry"):
        _recognised(named(tmp_path, json.loads(path.read_bytes())), read_table()[1])


class Parrot:
    """Says what was published: the figures of all logits need no more than two values beside those that are named."""

    def __init__(self, known: Known, shift: float = 0.0) -> None:
        count = known.geometry["vocab_size"]
        named = np.array([*known.top_logits, known.logits["min"]])
        rest = count - len(named)
        mean = (known.logits["mean"] * count - named.sum()) / rest
        square = ((known.logits["std"] ** 2 + known.logits["mean"] ** 2) * count - (named**2).sum()) / rest
        spread = np.sqrt(square - mean**2)
        free = np.delete(np.arange(count), known.top_ids)
        self.row = np.empty(count)
        self.row[free[0]] = known.logits["min"]
        self.row[free[1:]] = mean + spread * np.where(np.arange(rest) % 2, 1, -1)
        self.row[list(known.top_ids)] = np.array(known.top_logits) + shift
        self.tokens = list(known.greedy_ids)

    def forward(self, ids: Any) -> tuple[np.ndarray, None]:
        return np.stack([self.row]), None

    def greedy(self, ids: Any, count: int) -> list[int]:
        return self.tokens[:count]


@pytest.mark.parametrize("member", MEMBERS)
def test_published_answers_of_every_member_pass_as_themselves_alone(member: str) -> None:
    rows = read_table()[1]
    (own,) = (row for row in rows if row.id == MEMBERS[member])
    right: Any = Parrot(own)
    assert not list(_findings(right, own, TOLERANCES["f32"]))
    for row in rows:
        if row is not own:
            found = list(_findings(right, row, TOLERANCES["bf16"]))
            assert len(found) > len(row.top_ids)
            assert found[-1].startswith("greedy token ")
    for precision, tolerance in TOLERANCES.items():
        wrong: Any = Parrot(own, 1.01 * tolerance * own.scale)
        said = list(_findings(wrong, own, tolerance))
        assert sum("the logit of token" in each for each in said) == len(own.top_ids), precision
        near: Any = Parrot(own, 0.9 * tolerance * own.scale)
        assert not list(_findings(near, own, tolerance))


@pytest.mark.parametrize("precision", ["f32", "f16", "bf16"])
def test_answers_as_published_pass(
    copied: Callable[[str], Path], table: Callable[..., Path], precision: str
) -> None:
    package = copied(precision)
    evidence = check_known(package, threads=1, table=table())
    document = json.loads((package / "evidence" / "known_answers.json").read_text())
    assert evidence.passed, document["findings"]
    assert document["passed"] is True
    assert document["checkpoint"]["id"] == "someone/tiny"
    assert document["checkpoint"]["matched_by"].startswith("geometry")
    assert document["source"] == "recorded"
    assert ("twin" in document["how"]) is (precision != "f32")
    assert evidence.verdicts[0].file == "evidence/known_answers.json"


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"greedy_ids": [1, *row()["greedy_ids"][1:]]}, "greedy token 0 is"),
        ({"greedy_ids": [*row()["greedy_ids"][:-1], 7]}, "greedy token 15 is"),
        ({"top_logits": [row()["top_logits"][0] + 0.01, *row()["top_logits"][1:]]}, "the logit of token"),
        (
            {"top_ids": row()["top_ids"][1:], "top_logits": row()["top_logits"][1:]},
            "a token outside the published 9",
        ),
        ({"logits": row()["logits"] | {"std": row()["logits"]["std"] * 1.01}}, "the std of all logits"),
    ],
)
def test_any_other_figure_fails(
    copied: Callable[[str], Path], table: Callable[..., Path], changes: dict[str, Any], finding: str
) -> None:
    evidence = check_known(copied("f32"), threads=1, table=table(**changes))
    assert not evidence.passed
    assert finding in evidence.verdicts[0].summary


def test_the_id_decides_before_the_geometry(
    copied: Callable[[str], Path], table: Callable[..., Path]
) -> None:
    package = copied("f32")
    provenance = json.loads((package / "provenance.json").read_text())
    provenance["target"]["id"] = "Someone/Tiny"
    (package / "provenance.json").write_text(json.dumps(provenance))
    evidence = check_known(package, threads=1, table=table(geometry={}))
    assert evidence.passed
    provenance["target"]["id"] = "someone/else"
    (package / "provenance.json").write_text(json.dumps(provenance))
    with pytest.raises(
        ParityError, match="no published answers for 'someone/else'; there are some for someone/tiny"
    ):
        check_known(package, table=table())


def test_an_unknown_geometry_is_an_error(packages: Packages) -> None:
    with pytest.raises(ParityError, match="no published answers for this geometry"):
        check(packages(), known=True)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_a_full_package_answers_too(
    packages: Packages, table: Callable[..., Path], tmp_path: Path, precision: str
) -> None:
    package = shutil.copytree(packages("tiny-full", "default", precision), tmp_path / "p")
    evidence = check_known(package, threads=1, scratch=tmp_path, table=table())
    assert evidence.passed, evidence.verdicts[0].summary
    document = json.loads((package / "evidence" / "known_answers.json").read_bytes())
    assert document["how"].endswith("on onnxruntime CPU, in cabochon's runtime")
    assert "vision_encoder/model.onnx" in document["package"]["sha256"]
