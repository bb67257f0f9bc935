"""L4 and L5 with a made-up reference: what passes, what is a tie, and that one wrong bit fails."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from cabochon.parity import reports
from cabochon.parity.levels import STRICT, Generated, Trial, generated, halves, run
from cabochon.parity.measures import difference
from cabochon.parity.prompts import Prompt
from cabochon.parity.reference import Answer
from cabochon.parity.subject import Subject
from packages import Packages

IDS = (2, 5, 487, 34, 502, 346, 492, 439, 480, 6, 34, 5, 314, 483, 34)
PROMPT = Prompt("p", IDS, "text")
TRIAL = Trial("here", "f32", STRICT, STRICT)
FACTS = {"versions": {"x": "1"}}


def answer(subject: Subject, tokens: int = 32) -> Answer:
    """What a subject says, as if it were the reference."""
    logits, hidden = subject.forward(IDS)
    greedy = tuple(subject.greedy(IDS, tokens))
    margins = tuple(float(np.diff(np.sort(row)[-2:])[0]) for row in subject.along(IDS, greedy))
    return Answer(logits, hidden, greedy, margins)


@pytest.fixture(scope="module")
def subject(packages: Packages) -> Subject:
    return Subject.open(packages() / "model.onnx", threads=1)


@pytest.fixture(scope="module")
def told(subject: Subject) -> Answer:
    return answer(subject)


def documents(subject: Subject, told: Answer, trial: Trial = TRIAL) -> dict[str, dict[str, Any]]:
    results = [(trial, run(trial, subject, [PROMPT], {"p": told}))]
    return {
        r.__name__: r(results, FACTS)[0] for r in (reports.logits, reports.hidden_states, reports.generation)
    }


def test_a_package_passes_against_itself(subject: Subject, told: Answer) -> None:
    made = documents(subject, told)
    for document in made.values():
        assert document["passed"] is True
        assert document["versions"] == {"x": "1"}
        json.dumps(document, allow_nan=False)
    row = made["logits"]["trials"][0]["prompts"][0]
    assert row["max_relative_difference"] == 0
    assert row["top1_agreement"] == 1
    assert len(row["cosine_per_position"]) == row["tokens"] == len(IDS)
    assert row["text"] == "text"
    assert made["logits"]["trials"][0]["threshold"]["max_relative_difference"] == 1e-4
    assert made["generation"]["trials"][0]["prompts"][0]["token_ids"] == list(told.tokens)


@pytest.mark.parametrize(
    "name", ["model.layers.7.mlp.up_proj.weight", "model.layers.2.self_attn.k_norm.weight"]
)
def test_one_bit_of_one_weight_fails(packages: Packages, told: Answer, tmp_path: Path, name: str) -> None:
    """The top bit of the mantissa of one value among 460 thousand."""
    package = shutil.copytree(packages(), tmp_path / "p")
    flip(package, name)
    made = documents(Subject.open(package / "model.onnx", threads=1), told)
    assert made["logits"]["passed"] is False
    assert made["hidden_states"]["passed"] is False


def flip(package: Path, name: str) -> None:
    """Flips the highest bit of the mantissa of the tensor's largest f32 value."""
    model = onnx.load_model(str(package / "model.onnx"), load_external_data=False)
    (tensor,) = (t for t in model.graph.initializer if t.name == name)
    place = {e.key: e.value for e in tensor.external_data}
    data = np.memmap(package / place["location"], np.uint32, "r+")
    start = int(place["offset"]) // 4
    values = data[start : start + int(np.prod(tensor.dims))]
    values[np.abs(values.view(np.float32)).argmax()] ^= np.uint32(1 << 22)
    data.flush()


def test_a_wrong_hidden_tap_fails_only_its_own_file(subject: Subject, told: Answer) -> None:
    wrong = Answer(told.logits, told.hidden * np.float32(1.001), told.tokens, told.margins)
    made = documents(subject, wrong)
    assert [made[k]["passed"] for k in ("logits", "hidden_states", "generation")] == [True, False, True]


def test_another_token_fails_in_f32_however_small_the_margin(subject: Subject, told: Answer) -> None:
    tokens = (*told.tokens[:20], (told.tokens[20] + 1) % 512, *told.tokens[21:])
    wrong = Answer(told.logits, told.hidden, tokens, (0.0,) * len(tokens))
    document = documents(subject, wrong)["generation"]
    assert document["passed"] is False
    row = document["trials"][0]["prompts"][0]
    assert row["verdict"] == "different"
    assert row["equal_before_first_difference"] == 20
    assert row["disagreements_along_the_reference"][0]["step"] == 20
    assert row["disagreements_along_the_reference"][0]["token"] == told.tokens[20]


def test_generation_says_equal_tie_and_different() -> None:
    def found(noise: float, *margins: float) -> str:
        class Fixed(Subject):
            def greedy(self, ids: Any, n: int) -> list[int]:
                return [1, 1]

            def along(self, ids: Any, tokens: Any) -> Any:
                return iter([np.array([0.0, 1.0, 0.9])] * 2)

        return generated(Fixed(None), (2,), (1, 2), margins, noise).verdict

    assert Generated((1, 2), (1, 2), (), 0.0).verdict == "equal"
    assert found(0.5, 9.0, 0.4) == "tie"
    assert found(0.5, 9.0, 0.6) == "different"
    assert found(0.0, 9.0, 1e-9) == "different"


def test_limits_in_half_precision_are_twice_the_references_own_noise() -> None:
    rng = np.random.default_rng(1)
    exact = Answer(rng.standard_normal((3, 50)), rng.standard_normal((3, 8)), (), ())
    shifted = Answer(exact.logits * 1.01, exact.hidden + [0.01] * 8, (), ())
    trial = halves("here", "f16", {"p": shifted}, {"p": exact})
    assert trial.logits.relative == pytest.approx(0.02)
    assert trial.logits.cosine == pytest.approx(1, abs=2e-6)
    assert trial.noise == {"p": pytest.approx(0.01 * np.abs(exact.logits).max())}
    assert trial.hidden.relative == pytest.approx(0.02 / np.abs(exact.hidden).max())
    assert "0.01 relative" in trial.logits.chosen


def test_what_rounding_does_not_reach_is_held_to_the_limits_of_f32() -> None:
    """Where the head alone rounds, hidden states are those of f32: a limit of 0 would refuse any order of sums."""
    exact = Answer(np.ones((3, 4)), np.ones((3, 2)), (), ())
    limit = halves("here", "f32+int8", {"p": exact}, {"p": exact}).hidden
    assert limit.admits(difference(exact.hidden, exact.hidden * (1 + 1e-6)))
    assert not limit.admits(difference(exact.hidden, exact.hidden * (1 + 1e-3)))


def test_a_reference_that_overflows_admits_nothing() -> None:
    exact = Answer(np.arange(12.0).reshape(3, 4), np.ones((3, 2)), (), ())
    logits = exact.logits.copy()
    logits[1, 2] = np.inf
    with np.errstate(invalid="ignore"):
        limit = halves("here", "f16", {"p": Answer(logits, exact.hidden, (), ())}, {"p": exact}).logits
        assert limit.relative == 0.1
        assert not limit.admits(difference(exact.logits, logits))
        assert not limit.admits(difference(logits, logits))


def test_ties_pass_only_beside_as_many_equal_prompts(subject: Subject, told: Answer) -> None:
    """One tie alone is no proof of generation."""
    trial = Trial("here", "f16", STRICT, STRICT, {"p": 1.0})
    tokens = (*told.tokens[:31], (told.tokens[31] + 1) % 512)
    tie = Answer(told.logits, told.hidden, tokens, (0.0,) * 32)
    document = documents(subject, tie, trial)["generation"]
    assert document["trials"][0]["prompts"][0]["verdict"] == "tie"
    assert document["passed"] is False
    assert "at least half are 'equal'" in document["trials"][0]["rule"]
