"""OpenVINO runs the loop over experts too: the tokens that transformers said, and those of onnxruntime."""

import json
from pathlib import Path

import pytest

import cabochon
from checkpoints import TINY

pytest.importorskip("openvino", reason="openvino is not installed: pip install cabochon[openvino]")

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}


def test_recorded_tokens(tmp_path: Path) -> None:
    said = json.loads((TINY / "ref" / "outputs.json").read_bytes())["moe/text_long"]
    cabochon.build(TINY / "moe", tmp_path / "ir", target="openvino-ir", precision="f32", license="apache-2.0")
    model = cabochon.load(tmp_path / "ir", threads=1, provider_options=EXACT)
    asked = {"greedy": True, "ignore_eos": True, "max_new_tokens": len(said["tokens"])}
    assert list(model.generate(said["prompt"], **asked).ids) == said["tokens"]
