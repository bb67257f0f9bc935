"""OpenVINO's CPU plugin runs the audio encoder of onnx-standard, and says what the NumPy oracle says."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

import checkpoints
from audio_encoders import Truth, configured, random_encoder, sound, together, traced
from cabochon.checkpoint import open_checkpoint
from graphs import difference

openvino = pytest.importorskip("openvino", reason="openvino is not installed: pip install cabochon[openvino]")

EXACT = 1e-4
LENGTHS = (99, 1, 40, 17, 3)
Run = Callable[[np.ndarray, np.ndarray], np.ndarray]


def compiled(folder: Path, file: Path) -> Run:
    config, width = configured(folder)
    model = traced(config, width, dict(open_checkpoint(folder).tensors), "onnx-standard", "f32")
    file.write_bytes(ir.to_proto(model).SerializeToString())
    core = openvino.Core()
    made = core.compile_model(core.read_model(file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda features, mask: made({"input_features": features, "input_features_mask": mask})[0]


@pytest.mark.parametrize("right", [0, 3])
def test_clips_of_different_lengths(tmp_path: Path, right: int) -> None:
    folder = random_encoder(tmp_path, loud=2.0, attention_context_right=right)
    run, truth = compiled(folder, tmp_path / "model.onnx"), Truth(folder)
    clips = [sound(n, seed=n) for n in LENGTHS]
    expected = [truth.run(clip, np.ones(len(clip), bool)) for clip in clips]
    assert difference(run(*together(clips, 5, np.nan)), np.concatenate(expected)) < EXACT
    for clip, rows in zip(clips, expected, strict=True):
        assert difference(run(clip[None], np.ones((1, len(clip)), bool)), rows) < EXACT


def test_no_clip_and_nothing_but_padding(tmp_path: Path) -> None:
    run = compiled(checkpoints.TINY / "target", tmp_path / "model.onnx")
    assert run(sound(0, 50), np.ones((0, 50), bool)).shape == (0, 64)
    assert run(np.full((2, 50, 16), np.nan, np.float32), np.zeros((2, 50), bool)).shape == (0, 64)
