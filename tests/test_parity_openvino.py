"""OpenVINO's CPU plugin runs bf16 packages of onnx-standard, and says what their f32 twin says."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cabochon.parity.measures import difference
from cabochon.parity.subject import Subject
from cabochon.parity.widened import widen
from packages import Packages

openvino = pytest.importorskip("openvino", reason="openvino is not installed: pip install cabochon[openvino]")

IDS = [2, 5, 487, 34, 502, 346, 492, 439, 480, 6, 34, 5, 314, 483, 34]
ROUNDING = 2.0**-8  # one unit in the last place of bf16, relative; a few of them add up


def feeds(model: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"input_ids": np.array([IDS]), "attention_mask": np.ones((1, len(IDS)), np.int64)}
    for port in model.inputs:
        if port.any_name.startswith("past_key_values."):
            shape = [d.get_length() if d.is_static else 0 for d in port.partial_shape]
            given[port.any_name] = openvino.Tensor(openvino.Type.bf16, [1, *shape[1:]])
    return given


def test_the_package_itself(packages: Packages, tmp_path: Path) -> None:
    package = packages(target="onnx-standard", precision="bf16")
    model = openvino.Core().read_model(package / "model.onnx")
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    made = {port.any_name: value for port, value in compiled(feeds(model)).items()}
    twin = Subject.open(widen(package, tmp_path), threads=1)
    for name, expected in zip(("logits", "hidden_states.9"), twin.forward(IDS), strict=True):
        ours = made[name].view(ml_dtypes.bfloat16)[0].astype(np.float32)
        found = difference(ours, expected)
        assert found.relative <= 4 * ROUNDING, name
        assert min(found.cosines) >= 0.99999, name
