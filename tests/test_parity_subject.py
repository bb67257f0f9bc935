"""The package's side of a comparison: forward, cached steps and greedy tokens agree with recorded references."""

from typing import Any

import numpy as np
import pytest

from cabochon.parity.subject import Subject
from packages import TINY, Packages


@pytest.mark.parametrize("target", ["default", "onnx-standard", "cuda", "webgpu"])
@pytest.mark.parametrize("case", ["text", "text_long"])
def test_equals_the_recorded_reference(
    packages: Packages, recorded: dict[str, Any], target: str, case: str
) -> None:
    subject = Subject.open(packages(target=target) / "model.onnx", threads=1)
    told = recorded[f"text/{case}"]
    expected = np.load(TINY / "ref" / f"prefill_target_{case}.npz")["logits"]
    logits, hidden = subject.forward(told["prompt"])
    assert np.abs(logits - expected.reshape(logits.shape)).max() <= 1e-4 * np.abs(expected).max()
    assert hidden.shape == (len(told["prompt"]), 64)
    assert subject.greedy(told["prompt"], 16) == told["tokens"]


def test_steps_along_given_tokens_equal_one_pass(packages: Packages) -> None:
    subject = Subject.open(packages() / "model.onnx", threads=1)
    ids, tokens = [2, 5, 487, 34], [9, 300, 17, 17, 444, 20, 6, 8, 100, 3, 2, 1]
    rows = np.stack(list(subject.along(ids, tokens)))
    whole = subject.forward([*ids, *tokens[:-1]])[0][len(ids) - 1 :]
    assert rows.shape == whole.shape == (12, 512)
    assert np.abs(rows - whole).max() <= 1e-4 * np.abs(whole).max()


def test_ports_and_metadata(packages: Packages) -> None:
    subject = Subject.open(packages(precision="f16") / "model.onnx", threads=1)
    assert subject.vocabulary == 512
    assert subject.ports["past_key_values.4.key"] == ("tensor(float16)", ("batch", 1, "past_sequence", 32))
    assert subject.metadata["cabochon.precision"] == "f16"
    assert subject.forward([2, 5])[0].dtype == np.float16
