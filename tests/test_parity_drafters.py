"""`check` of drafters and pairs, live against transformers: right ones pass, broken ones fail where they are broken."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from typer.testing import CliRunner

import cabochon
import checkpoints
from cabochon.cli.app import app
from cabochon.errors import ParityError
from cabochon.parity import Evidence, check, drafters
from cabochon.parity.assisted import record_assisted
from cabochon.parity.prompts import Prompt
from cabochon.parity.rounds import Recorded
from cabochon.runtime import drafter as runtime_drafter
from drafters import ORDERING
from packages import MINIATURE, TINY, Packages
from pairs import Pairs

CHECKPOINTS = {
    "tiny": (TINY / "text", TINY / "assistant"),
    "tiny-dense": (TINY / "text", TINY / "assistant-dense"),
    "miniature": (MINIATURE / "target", MINIATURE / "assistant"),
}
FILES = ("l4_parity.json", "l5_drafter_rootcause.json", "l5_assisted_detail.json")
REFERENCE = json.loads((TINY / "ref" / "outputs.json").read_bytes())
# The tiny drafters were trained on what the tiny target says to these; after other prompts hardly a draft is accepted.
FAMILIAR = [Prompt(name, tuple(REFERENCE[f"text/{name}"]["prompt"])) for name in ("text", "text_long")]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Recorded]:
    """What transformers says, asked live, but once for each pair of checkpoints and precision."""
    known: dict[Any, Recorded] = {}

    def once(
        target: Any, assistant: Any, prompts: Any, prepared: Any, *, precision: str, folder: Path, **more: Any
    ) -> Recorded:
        key = (target.root, assistant.root, precision, tuple(prompts))
        if key not in known:
            folder = tmp_path_factory.mktemp("recorded")
            known[key] = record_assisted(
                target, assistant, prompts, prepared, precision=precision, folder=folder, **more
            )
        return known[key]

    return once


@pytest.fixture(autouse=True)
def asked_once(recordings: Callable[..., Recorded], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafters, "record_assisted", recordings)
    monkeypatch.setattr(drafters, "PROMPTS", ("english", "beyond the window"))


@pytest.fixture
def familiar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafters, "_prompts", lambda *_: FAMILIAR)


def document(package: Path, name: str) -> dict[str, Any]:
    return json.loads((package / "evidence" / name).read_text("utf-8"))


def failures(evidence: Evidence) -> list[str]:
    return [verdict.level for verdict in evidence.verdicts if not verdict.passed]


def copied(package: Path, place: Path) -> Path:
    """A pair of one's own, without links."""
    return shutil.copytree(package, place)


def checked(package: Path, source: str = "tiny", **more: Any) -> Evidence:
    target, assistant = CHECKPOINTS[source]
    return check(package, target, assistant=assistant, threads=1, **more)


# Without transformers: what is refused


def test_a_drafter_needs_two_checkpoints(pairs: Pairs) -> None:
    remedy = "cabochon parity PACKAGE TARGET_SOURCE --assistant ASSISTANT_SOURCE"
    for how in ({"source": TINY / "text"}, {"known": True}, {"assistant": TINY / "assistant"}):
        with pytest.raises(ParityError, match="compared with two checkpoints") as refused:
            check(pairs(), **how)
        assert remedy in str(refused.value)


def test_checkpoints_that_do_not_fit_are_refused_before_anything_is_loaded(
    packages: Packages, pairs: Pairs, tmp_path: Path
) -> None:
    with pytest.raises(ParityError, match="is no drafter"):
        check(packages(), TINY / "text", assistant=TINY / "assistant")
    with pytest.raises(ParityError, match="is no assistant: it has no backbone_hidden_size"):
        check(pairs(), TINY / "text", assistant=TINY / "text")
    with pytest.raises(ParityError, match="backbone_hidden_size is 64, the target's hidden_size 128"):
        check(pairs(), MINIATURE / "target", assistant=TINY / "assistant")
    with pytest.raises(ParityError, match="output logits has size 512; the assistant's is 2048"):
        check(pairs(), MINIATURE / "target", assistant=MINIATURE / "assistant")
    with pytest.raises(ParityError, match="31 new tokens prove little"):
        checked(pairs(), new_tokens=31)


def test_the_command_asks_for_the_assistant(pairs: Pairs) -> None:
    told = CliRunner().invoke(app, ["parity", str(pairs()), str(TINY / "text")])
    assert told.exit_code != 0
    assert "--assistant" in told.output + str(told.exception)


# What is right passes


@pytest.mark.parity
@pytest.mark.parametrize(
    ("source", "target", "precision"),
    [
        ("tiny", "default", "f32"),
        ("tiny", "webgpu", "f16"),
        ("tiny-dense", "cuda", "f32"),
    ],
)
def test_tiny_pairs_pass(
    pairs: Pairs,
    tmp_path: Path,
    familiar: None,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    target: str,
    precision: str,
) -> None:
    if precision == "f16":  # asked in two arithmetics
        monkeypatch.setattr(drafters, "_prompts", lambda *_: FAMILIAR[1:])
    package = copied(pairs(source, target, precision), tmp_path / "p")
    evidence = checked(package, source, scratch=tmp_path)
    assert not failures(evidence), evidence.as_json()
    assert [v.level for v in evidence.verdicts] == [
        "L4 drafter step", "L5 drafter bridge", "L5 assisted generation",
    ]  # fmt: skip
    held_to(package, target, precision, ordered=source == "tiny")
    covered = document(package, "l4_parity.json")["trials"][-1]["steps_by_situation"]
    assert min(covered.values()) > 0
    assert ("after full acceptance" in covered) is (source == "tiny-dense")
    assert {"after prefill", "after partial acceptance", "keys beyond the window"} <= covered.keys()
    assert [p.name for p in tmp_path.iterdir()] == ["p"], "nothing is left in scratch"


def held_to(package: Path, target: str, precision: str, ordered: bool) -> None:
    """What every evidence file must say, and that its limits are those of the project."""
    dtype = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}[precision]
    for name in FILES:
        said = document(package, name)
        assert said["passed"] is True
        assert (said["package"]["target"], said["package"]["precision"]) == (target, precision)
        assert {"model.onnx", "target/model.onnx", "token_embedding.onnx"} <= said["package"]["sha256"].keys()
        assert said["reference"]["weights_dtype"] == dtype
        assert said["reference"]["num_assistant_tokens"] == 6
        assert not any(
            said["reference"][role]["loading_info"]["missing_keys"] for role in ("target", "assistant")
        )
        assert {"torch", "transformers", "onnxruntime", "cabochon"} <= said["versions"].keys()
        assert f"evidence/{name}" in (package / "SHA256SUMS").read_text()
        strict = said["trials"][-1]
        assert strict["reference_arithmetic_dtype"] == "float32"
        assert len(said["trials"]) == (2 if precision == "f16" else 1)
        if name == "l5_assisted_detail.json":
            for prompt in strict["prompts"]:
                assert prompt["verdict"] == "equal"
                assert len(prompt["token_ids"]) == 32
                assert prompt["rounds_equal_to_reference_with_valid_keys"] or prompt["read_again"]
            continue
        assert strict["threshold"]["logits"]["max_relative_difference"] == 1e-4
        assert ("active_set" in strict["threshold"]) is ordered
    bridge = document(package, "l5_drafter_rootcause.json")["trials"][-1]
    for prompt in bridge["prompts"]:
        assert prompt["free_running"]["drafts_equal"] == prompt["free_running"]["drafts"]
        assert prompt["teacher_forced"]["logits"]["max_relative_difference"] < 1e-5


@pytest.mark.parity
def test_the_miniature_passes(pairs: Pairs, tmp_path: Path) -> None:
    """Its drafter is a good one: rounds end in every way."""
    package = copied(pairs("miniature"), tmp_path / "p")
    evidence = checked(package, "miniature")
    assert not failures(evidence), evidence.as_json()
    held_to(package, "default", "f32", ordered=True)
    covered = document(package, "l4_parity.json")["trials"][0]["steps_by_situation"]
    assert {f"after {what}" for what in
            ("prefill", "full acceptance", "partial acceptance", "no acceptance")} < covered.keys()  # fmt: skip
    totals = document(package, "l5_assisted_detail.json")["trials"][0]["totals"]
    assert totals["package"] == totals["transformers_with_valid_keys"]
    assert totals["package"]["mean_accepted"] > 1.5
    assert totals["package"]["accepted_per_round"] != totals["transformers"]["accepted_per_round"]


@pytest.mark.parity
def test_a_pair_in_bf16_runs_as_its_twin(
    pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafters, "_prompts", lambda *_: FAMILIAR[:1])
    package = copied(pairs("tiny", "default", "bf16"), tmp_path / "p")
    evidence = checked(package)
    assert not failures(evidence), evidence.as_json()
    held_to(package, "default", "bf16", ordered=True)
    beside = document(package, "l5_drafter_rootcause.json")["reported_only"]
    assert [trial["reference_arithmetic_dtype"] for trial in beside] == ["bfloat16"]
    assert (
        1e-3 < beside[0]["prompts"][0]["teacher_forced"]["projected_state"]["max_relative_difference"] < 0.5
    )
    assert "reported_only" not in document(package, "l5_assisted_detail.json")


@pytest.mark.parity
def test_a_drafter_alone_passes(tmp_path: Path, familiar: None) -> None:
    package = built(tmp_path, lambda folder: None)
    evidence = checked(package)
    assert not failures(evidence), evidence.as_json()
    assert [v.level for v in evidence.verdicts] == ["L4 drafter step", "L5 drafter bridge"]
    assert not (package / "evidence" / "l5_assisted_detail.json").exists()
    assert (
        document(package, "l5_drafter_rootcause.json")["trials"][0]["prompts"][0]["free_running"]["drafts"]
        > 20
    )


# What is wrong fails


def built(place: Path, change: Callable[[Path], object]) -> Path:
    """The drafter of a changed assistant."""
    source = checkpoints.copy(place / "source", "assistant")
    change(source)
    cabochon.build(source, place / "p", model="drafter", precision="f32", license="apache-2.0")
    return place / "p"


def configured(**changes: Any) -> Callable[[Path], object]:
    def change(folder: Path) -> None:
        config = checkpoints.tiny_config("assistant")
        for key, value in changes.items():
            part = config if key in config else config["text_config"]
            part[key] = value
        checkpoints.write_config(folder, config)

    return change


def tensor(name: str, how: Callable[[np.ndarray], np.ndarray], dtype: Any = ml_dtypes.bfloat16) -> Any:
    def changed(tensors: dict[str, checkpoints.Entry]) -> dict[str, checkpoints.Entry]:
        kind, shape, data = tensors[name]
        values = np.frombuffer(data, dtype).reshape(shape)
        return tensors | {name: (kind, shape, np.ascontiguousarray(how(values)).tobytes())}

    return lambda folder: checkpoints.change(folder, changed)


WRONG: dict[str, Callable[[Path], object]] = {
    "a window of one key less": configured(sliding_window=7),
    "a window of one key more": configured(sliding_window=9),
    "three centroids of four": configured(centroid_intermediate_top_k=3),
    "the halves of its input swapped": tensor("pre_projection.weight", lambda w: np.roll(w, w.shape[1] // 2, 1)),
    "the ordering read backwards": tensor(ORDERING, lambda order: np.argsort(order), np.int64),
    "another state handed on": tensor("post_projection.weight", lambda w: -w),
}  # fmt: skip


@pytest.mark.parity
@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_drafter_fails(tmp_path: Path, familiar: None, what: str) -> None:
    evidence = checked(built(tmp_path, WRONG[what]))
    assert failures(evidence) == ["L4 drafter step", "L5 drafter bridge"]


@pytest.mark.parity
@pytest.mark.parametrize("off", [1, -1])
def test_a_query_at_another_position_fails(tmp_path: Path, familiar: None, off: int) -> None:
    package = built(tmp_path, lambda folder: None)
    displace(package / "model.onnx", off)
    assert failures(checked(package)) == ["L4 drafter step", "L5 drafter bridge"]


def displace(path: Path, off: int) -> None:
    """Move the position of the query, which is the number of ones in the mask."""
    model = onnx.load(path, load_external_data=False)
    (place,) = [i for i, node in enumerate(model.graph.node) if node.op_type == "ReduceSum"]
    counted = model.graph.node[place].output[0]
    model.graph.node[place].output[0] = "counted"
    model.graph.node.insert(place + 1, helper.make_node("Add", ["counted", "off"], [counted]))
    model.graph.initializer.append(numpy_helper.from_array(np.array(off, np.int64), "off"))
    onnx.save(model, path)


@pytest.mark.parity
def test_a_right_drafter_at_a_wrong_table_fails(pairs: Pairs, tmp_path: Path, familiar: None) -> None:
    """Steps fed by the reference are right; on the pair's own rows they are not. Answers stay what they were."""
    package = copied(pairs(), tmp_path / "p")
    path = package / "token_embedding.onnx"
    model = onnx.load(path, load_external_data=False)
    (scale,) = [node for node in model.graph.node if node.op_type == "Mul"]
    scale.op_type = "Div"
    onnx.save(model, path)
    assert failures(checked(package)) == ["L5 drafter bridge", "L5 assisted generation"]
    only_the_pair_is_wrong(package)


@pytest.mark.parity
def test_a_right_drafter_at_wrong_keys_fails(
    pairs: Pairs, tmp_path: Path, familiar: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runtime that shows it the caches of the first layers of each kind."""
    right = runtime_drafter.anchors
    monkeypatch.setattr(runtime_drafter, "anchors", lambda given, caches: right(given, caches[::-1]))
    package = copied(pairs(), tmp_path / "p")
    assert failures(checked(package)) == ["L5 drafter bridge", "L5 assisted generation"]
    only_the_pair_is_wrong(package)


def only_the_pair_is_wrong(package: Path) -> None:
    assert document(package, "l5_drafter_rootcause.json")["trials"][0]["prompts"][0]["teacher_forced"][
        "logits"
    ]["max_relative_difference"] < 1e-5  # fmt: skip
    for prompt in document(package, "l5_assisted_detail.json")["trials"][0]["prompts"]:
        assert prompt["equal_to_own_plain_greedy"] is True
