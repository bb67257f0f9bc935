"""Packages of OpenVINO's IR in our runtime: what onnxruntime says of the same package, OpenVINO says too."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import cabochon
from cabochon.cli.app import app
from cabochon.errors import CabochonError, PackageError, RequestError
from cabochon.parity.widened import ACCURACY
from cabochon.runtime import Model, State, stack
from full_packages import recorded_media
from packages import Packages

pytest.importorskip("openvino", reason="openvino is not installed: pip install cabochon[openvino]")

from converted import Converted

IDS = [2, 5, 487, 34, 502, 346, 492, 439, 480, 6, 34, 5, 314, 483, 34]
WINDOW, CLOSE = 8, 1e-4
GREEDY: Any = {"greedy": True, "ignore_eos": True}
FORMS = ["stateless", "stateful"]


@pytest.fixture(scope="module")
def converted(packages: Packages) -> Converted:
    return Converted(packages)


@pytest.fixture
def ours(request: pytest.FixtureRequest, converted: Converted) -> Model:
    model = converted.model(stateful=request.param == "stateful")
    model.forget()
    return model


@pytest.fixture
def theirs(packages: Packages) -> Model:
    """onnxruntime on the package that was converted."""
    model = packages.model("tiny", "onnx-standard")
    model.forget()
    return model


def apart(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max() / np.abs(b).max())


@pytest.mark.parametrize("ours", FORMS, indirect=True)
def test_the_same_tokens_far_past_the_window(ours: Model, theirs: Model):
    found, expected = (model.generate(IDS, max_new_tokens=60, **GREEDY) for model in (ours, theirs))
    assert found.ids == expected.ids
    assert len(IDS) + 60 > WINDOW + ours.eviction.most > 0 if ours.eviction else False  # columns were evicted
    again = ours.generate([*IDS, *found.ids[:50], 7], max_new_tokens=9, **GREEDY)
    assert again.timings.reused == len(IDS) + 50
    assert again.ids == theirs.generate(again.prompt_ids, max_new_tokens=9, **GREEDY).ids


def test_the_same_tokens_in_blocks_of_four_bits(packages: Packages, converted: Converted):
    package = packages("tiny", "onnx-standard", "Q4_K_M")
    exact = cabochon.load(package, threads=1, session_options={ACCURACY: "0"})
    ours = converted.model("tiny", "Q4_K_M")
    assert apart(ours.forward(IDS).logits, exact.forward(IDS).logits) < CLOSE
    found, expected = (model.generate(IDS, max_new_tokens=24, **GREEDY).ids for model in (ours, exact))
    assert found == expected


@pytest.mark.parametrize("ours", FORMS, indirect=True)
def test_logits_hidden_states_and_chunks(ours: Model, theirs: Model):
    for found, expected in zip(ours.forward(IDS), theirs.forward(IDS), strict=True):
        assert apart(found, expected) < CLOSE
    state = ours.state(4)
    assert apart(state.prefill(IDS), theirs.forward(IDS).logits[-1]) < CLOSE
    output = state.step([[9, 8, 7]], keep=2, hidden=True)
    expected = theirs.forward([*IDS, 9, 8, 7])
    assert output.logits is not None and output.hidden is not None and expected.hidden is not None
    assert apart(output.logits[0], expected.logits[-2:]) < CLOSE
    assert apart(output.hidden[0], expected.hidden[-2:]) < CLOSE


@pytest.mark.parametrize("ours", FORMS, indirect=True)
def test_rewinding(ours: Model, theirs: Model):
    state, expected = ours.state(), theirs.state()
    for each in (state, expected):
        each.prefill(IDS)
        each.step([[1, 2, 3, 4]])
        each.rewind(17)  # what is forgotten still has columns
        each.step([[9, 9]])
        each.rewind(12)
        each.compact()
        each.rewind(6)
    assert state.tokens == expected.tokens == [IDS[:6]]
    assert apart(state.prefill([11, 12]), expected.prefill([11, 12])) < CLOSE
    assert state.nbytes >= expected.nbytes > 0


@pytest.mark.parametrize("ours", FORMS, indirect=True)
def test_several_rows(ours: Model, theirs: Model):
    prompts = [IDS, IDS[:5], [2, *IDS[4:]]]
    found, expected = (model.generate(prompts, max_new_tokens=12, **GREEDY) for model in (ours, theirs))
    assert [one.ids for one in found] == [one.ids for one in expected]


def test_rows_of_a_stateful_package_are_fed_one_by_one(converted: Converted):
    model = converted.model(stateful=True)
    with pytest.raises(RequestError, match="2 rows; this package takes 1 at a time"):
        model.state().step([[2, 3], [4, 5]])
    states = [model.state(), model.state()]
    for state in states:
        state.prefill([2, 3])
    with pytest.raises(RequestError, match="without --stateful"):
        stack(states).step([[4], [5]])


def test_conversations_share_a_request(converted: Converted, theirs: Model):
    """Each goes on from what it saw, whoever ran in between; what nobody holds any more costs nothing."""
    ours = converted.model(stateful=True)
    a, b = (State(ours.session), State(ours.session)), (State(theirs.session), State(theirs.session))
    for number, (own, other) in enumerate(zip(a, b, strict=True)):
        assert apart(own.prefill(IDS[number:]), other.prefill(IDS[number:])) < CLOSE
    for token in (3, 4, 5):
        for own, other in zip(a, b, strict=True):
            assert apart(own.prefill([token]), other.prefill([token])) < CLOSE
    for cache in ours.session.ports.caches:
        assert apart(a[0].values[cache.past].numpy(), b[0].values[cache.past].numpy()) < CLOSE


def test_a_step_that_fails_leaves_the_caches(converted: Converted, theirs: Model):
    state, session = converted.model(stateful=True).state(), converted.model(stateful=True).session
    state.prefill(IDS)
    wrong = {"attention_mask": np.ones((2, 16), np.int64), "logits_to_keep": np.array(1)}
    with pytest.raises(RequestError, match="OpenVINO failed in a step"):
        session.run(wrong, {**state.values, **session.feeds([[9]], np.array([[9]]))}, ["logits"], {})
    with pytest.raises(RequestError, match="no value for input_ids"):
        session.run(wrong, state.values, ["logits"], {})
    assert apart(state.prefill([9]), theirs.forward([*IDS, 9]).logits[-1]) < CLOSE


@pytest.mark.parametrize("case", ["image", "audio"])
def test_a_full_package_sees_and_hears(
    packages: Packages, converted: Converted, recorded: dict[str, Any], case: str
):
    """With weights in halves of the E2B kind there would be ties; f32 has none."""
    ours, theirs = converted.model("tiny-full"), packages.model("tiny-full", "onnx-standard")
    ids, said = recorded[f"target/{case}"]["prompt"], []
    for model in (ours, theirs):
        model.forget()
        said.append(model.generate(ids, max_new_tokens=16, **recorded_media(model, case), **GREEDY))
    assert said[0].ids == said[1].ids == recorded[f"target/{case}"]["tokens"][:16]
    assert said[0].media_tokens == said[1].media_tokens


def test_the_command_line_says_what_it_computes_in(converted: Converted):
    """With the library's own settings, but for the threads."""
    ids = ",".join(map(str, IDS))
    ran = CliRunner().invoke(
        app,
        [
            "run",
            str(converted()),
            "--ids",
            ids,
            "--greedy",
            "--max-new-tokens",
            "2",
            "--threads",
            "1",
            "--json",
        ],
    )
    said = json.loads(ran.stdout)
    assert said["provider"].startswith("openvino 20") and said["provider"].endswith(" CPU")
    assert said["settings"]["INFERENCE_PRECISION_HINT"] in ("f32", "bf16", "f16")
    assert said["settings"]["INFERENCE_NUM_THREADS"] == "1"
    assert int(said["settings"]["DYNAMIC_QUANTIZATION_GROUP_SIZE"]) > 0
    assert len(said["ids"]) == 2


def test_what_was_asked_for_is_what_it_computes_in(converted: Converted):
    stateless, stateful = (converted.model(stateful=which).session for which in (False, True))
    assert stateless.settings == {
        "INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0", "INFERENCE_NUM_THREADS": "1"
    }  # fmt: skip
    assert stateful.settings == {**stateless.settings, "KV_CACHE_PRECISION": "f32"}
    assert stateful.ports.caches == stateless.ports.caches
    assert (stateless.ports.rows, stateful.ports.rows) == (None, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"provider": "cuda"},
            "provider: provider 'cuda'; this package is OpenVINO's IR, which nothing else runs",
        ),
        ({"session_options": {"a": 1}}, "session_options: session_options are onnxruntime's"),
        (
            {"provider_options": {"A": "1"}},
            r"provider_options: openvino .* CPU refuses it: .*Unsupported property A",
        ),
        (
            {"provider_options": {"INFERENCE_PRECISION_HINT": "f8"}},
            r"provider_options: openvino .* CPU refuses it: Wrong value f8 for property key",
        ),
    ],
)
def test_options_are_refused(converted: Converted, options: dict[str, Any], message: str):
    with pytest.raises(RequestError, match=f"^{message}"):
        cabochon.load(converted(), **options)


def test_without_openvino_it_is_asked_for(converted: Converted, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(CabochonError) as caught:
        cabochon.load(converted())
    assert caught.value.remedy == "pip install 'cabochon[openvino]'"


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda xml: xml[: len(xml) // 2], r"openvino .* CPU cannot read it"),
        (lambda xml: xml.replace(b"<axes ", b"<axis "), "cabochon.axes is missing"),
        (lambda xml: xml.replace(b"kept,512", b"kept,511"), "cabochon.axes says .* of logits"),
    ],
)  # fmt: skip
def test_files_that_are_not_right_are_refused(converted: Converted, tmp_path: Path, edit: Any, message: str):
    shutil.copytree(converted(), tmp_path / "copy")
    file = tmp_path / "copy" / "openvino_model.xml"
    file.write_bytes(edit(file.read_bytes()))
    with pytest.raises(PackageError, match=message):
        cabochon.load(tmp_path / "copy", threads=1)
