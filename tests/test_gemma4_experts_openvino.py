"""OpenVINO runs the loop over experts too: the tokens that transformers said, and those of onnxruntime."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import cabochon
import quantized
from cabochon.checkpoint import open_checkpoint
from cabochon.dialects import TARGETS
from cabochon.gemma4 import read_text_config, text_tensors, trace_text
from cabochon.openvino.ir import write_ir
from cabochon.parity.dequantized import read_dequantized
from cabochon.parity.subject import Subject
from cabochon.validation.graph import read_graph
from checkpoints import TINY
from full_graphs import TEXT, Truth
from graphs import difference
from mutations.models import last_layers

pytest.importorskip("openvino", reason="openvino is not installed: pip install cabochon[openvino]")

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}


def test_recorded_tokens(tmp_path: Path) -> None:
    said = json.loads((TINY / "ref" / "outputs.json").read_bytes())["moe/text_long"]
    cabochon.build(TINY / "moe", tmp_path / "ir", target="openvino-ir", precision="f32", license="apache-2.0")
    model = cabochon.load(tmp_path / "ir", threads=1, provider_options=EXACT)
    asked = {"greedy": True, "ignore_eos": True, "max_new_tokens": len(said["tokens"])}
    assert list(model.generate(said["prompt"], **asked).ids) == said["tokens"]


@pytest.mark.parametrize("recipe", ["Q8", "Q4_K_M"])
def test_experts_in_blocks_compute_what_their_blocks_say(tmp_path: Path, recipe: str) -> None:
    """Rows of four bits are looked up in the body of a loop, with shifts that OpenVINO rounds where it is let."""
    folder = last_layers(tmp_path / "mixed", "moe", 1)
    checkpoint = open_checkpoint(folder)
    config, target = read_text_config(checkpoint.config), TARGETS["onnx-standard"]
    tensors = text_tensors(checkpoint.tensors, config).used
    stored = replace(quantized.precision(recipe, target.name), activations="f32")
    graph = quantized.write(trace_text(config, tensors, target, stored), tmp_path / "graph")
    write_ir(read_graph(graph.parent, graph.name), graph.with_suffix(".xml"), lambda _: None)
    truth, ids = Truth(folder), np.random.default_rng(1).integers(24, 500, 30)
    truth.weights = quantized.Stand(truth.weights, read_dequantized(graph), TEXT)
    found = Subject.open(graph.with_suffix(".xml"), threads=1).forward(ids.tolist())[0]
    assert difference(found, truth.logits(ids)) < 1e-4
