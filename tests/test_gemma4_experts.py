"""Mixtures of experts: recorded values of transformers, the NumPy oracle, and which experts a step reads."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import yaml

import checkpoints
import quantized
from cabochon.checkpoint import open_checkpoint
from cabochon.dialects import TARGETS
from cabochon.dialects.group_query import WebGpu
from cabochon.gemma4 import read_text_config, text_tensors, trace_text
from cabochon.gemma4.config import Experts
from cabochon.parity.dequantized import read_dequantized
from cabochon.parity.subject import Subject
from cabochon.parity.widened import widen
from full_graphs import ALL, REF, TEXT, Components, Truth
from graphs import difference
from packages import Packages

EXACT = 1e-4
MOE = checkpoints.TINY / "moe"
RECORDED = json.loads((REF / "outputs.json").read_bytes())


@cache
def truth() -> Truth:
    return Truth(MOE)


@pytest.fixture(scope="module", params=ALL)
def whole(request: pytest.FixtureRequest) -> Components:
    return Components(MOE, request.param)


@pytest.mark.parametrize("name", ["text", "text_long"])
def test_recorded_logits(whole: Components, name: str) -> None:
    recorded = np.load(REF / f"prefill_moe_{name}.npz")
    found = whole.forward(RECORDED[f"moe/{name}"]["prompt"])
    assert difference(found["logits"], recorded["logits"]) < EXACT
    assert difference(found["hidden_states.5"], recorded["hidden_6"]) < EXACT


def test_steps_and_rows_equal_one_pass(whole: Components) -> None:
    """Two rows, whose experts are others, and steps of one and of several tokens on their caches."""
    rows = np.random.default_rng(0).integers(24, 500, (2, 24))
    expected = np.stack([truth().logits(row) for row in rows])
    made = whole.forward(rows[:, :20])
    assert difference(made["logits"], expected[:, :20]) < EXACT
    for step in range(20, 24):
        made = whole.forward(rows[:, step : step + 1], past=whole.past(made))
        assert difference(made["logits"], expected[:, step : step + 1]) < EXACT
    assert difference(whole.forward(rows[:1], keep=3)["logits"][0], expected[0, -3:]) < EXACT


def test_a_step_reads_the_weights_of_the_chosen_experts_alone(whole: Components, tmp_path: Path) -> None:
    """onnxruntime's profiler counts how often the rows of an expert are gathered: twice for each that is asked for."""
    import onnx_ir as ir

    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = ir.to_proto(whole.model("decoder")).SerializeToString()
    experts = whole.text.experts
    assert experts is not None
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    whole._sessions["decoder"] = session
    whole.forward([60])
    events = json.loads(Path(session.end_profiling()).read_text())
    del whole._sessions["decoder"]
    counted = Counter(event["args"].get("op_name") for event in events if "kernel_time" in event["name"])
    layers = len(whole.text.layers)
    assert counted["ScatterND"] == layers * experts.chosen, "turns of all loops"
    assert experts.chosen < experts.count


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    @cache
    def make(target: str, recipe: str) -> Path:
        checkpoint = open_checkpoint(MOE)
        config = read_text_config(checkpoint.config)
        tensors = text_tensors(checkpoint.tensors, config).used
        wanted = quantized.precision(recipe, target, activations="f32")
        known = replace(TARGETS[target], binding=WebGpu.binding if target == "webgpu" else None)
        return quantized.write(
            trace_text(config, tensors, known, wanted), tmp_path_factory.mktemp(f"{target}-{recipe}")
        )

    return make


@pytest.mark.parametrize(
    ("target", "recipe"),
    [(target, "Q4_K_M") for target in ALL] + [("onnx-standard", "Q8"), ("webgpu", "Q8")],
)
def test_experts_in_blocks_compute_what_their_blocks_say(
    made: Callable[[str, str], Path], target: str, recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On WebGPU in tables of a few experts' rows, as no binding holds all of a real model's."""
    monkeypatch.setattr(WebGpu, "binding", 8192)
    graph = made(target, recipe)
    expected = Truth(MOE)
    blocks = read_dequantized(graph)
    expected.weights = quantized.Stand(expected.weights, blocks, TEXT)
    twin = Subject.open(widen(graph.parent, graph.parent / "twin"), threads=1)
    ids = np.random.default_rng(1).integers(24, 500, 30)
    assert difference(twin.forward(ids.tolist())[0], expected.logits(ids)) < EXACT
    bits = {w.name.rsplit("layers.0.")[-1]: next(iter(w.parts.values())).bits for w in blocks.weights}
    four = 4 if recipe == "Q4_K_M" else 8
    assert (bits["experts.gate_up_proj"], bits["router.proj.weight"]) == (four, 8)


@pytest.mark.parametrize("target", ALL)
def test_packages_generate_what_was_recorded(packages: Packages, target: str) -> None:
    """Text, and an image, whose tokens see each other on sliding layers."""
    model = packages.model("moe-full", target)
    for name in ("text", "text_long"):
        said = RECORDED[f"moe/{name}"]
        tokens = model.generate(
            said["prompt"], greedy=True, ignore_eos=True, max_new_tokens=len(said["tokens"])
        )
        assert list(tokens.ids) == said["tokens"]
        model.forget()


def test_what_a_package_says_of_its_experts(packages: Packages) -> None:
    package = packages("moe-full", "default")
    said = yaml.safe_load((package / "inference_metadata.yaml").read_text())
    assert said["model"]["mixture_of_experts"] == checkpoints.EXPERTS
    provenance = json.loads((package / "provenance.json").read_bytes())
    text = "8 experts of width 32, 2 for each token, beside a dense MLP"
    assert text in json.dumps(provenance) and text in (package / "README.md").read_text()
    dense = packages("tiny-full", "default")
    assert "mixture_of_experts" not in (dense / "inference_metadata.yaml").read_text()


def test_the_config() -> None:
    assert read_text_config(checkpoints.tiny_config("moe")).experts == Experts(8, 2, 32)
    assert read_text_config(checkpoints.tiny_config("text")).experts is None
