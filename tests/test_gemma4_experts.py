"""Mixtures of experts: recorded values of transformers, the NumPy oracle, and which experts a step reads."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import yaml

import checkpoints
import quantized
from cabochon.checkpoint import open_checkpoint
from cabochon.dialects import TARGETS
from cabochon.dialects.group_query import WebGpu
from cabochon.errors import TargetError
from cabochon.gemma4 import read_text_config, text_tensors, trace_text
from cabochon.gemma4.config import Experts
from cabochon.parity.dequantized import read_dequantized
from cabochon.parity.subject import Subject
from cabochon.parity.widened import widen
from cabochon.recipes import PRECISIONS
from full_graphs import ALL, REF, TEXT, Components, Truth
from full_packages import GREEDY, fresh, recorded_media
from graphs import difference
from mutations.models import last_layers
from packages import Packages

EXACT, HALF = 1e-4, 3e-3
MOE = checkpoints.TINY / "moe"
RECORDED = json.loads((REF / "outputs.json").read_bytes())


@cache
def truth() -> Truth:
    return Truth(MOE)


@pytest.fixture(scope="module", params=ALL)
def whole(request: pytest.FixtureRequest) -> Components:
    return Components(MOE, request.param)


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


def carried(target: str, recipe: str) -> bool:
    stored = quantized.precision(recipe, target)
    try:
        TARGETS[target].require(stored.activations, (), stored.methods)
    except TargetError:
        return False
    return True


EVERYWHERE = [(target, recipe) for target in ALL for recipe in PRECISIONS if carried(target, recipe)]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last layer of the mixture, as a model."""
    return last_layers(tmp_path_factory.mktemp("mixed"), "moe", 1)


@pytest.mark.parametrize(("target", "recipe"), EVERYWHERE)
def test_on_every_target_in_every_recipe(
    mixed: Path, tmp_path: Path, target: str, recipe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The formula is the one formula; a step takes one turn for each chosen expert, and copies no table of all.

    Blocks on WebGPU in tables of a few experts' rows, as no binding holds all of a real model's.
    """
    checkpoint = open_checkpoint(mixed)
    config, stored = read_text_config(checkpoint.config), quantized.precision(recipe, target)
    if stored.quantized:
        stored = replace(stored, activations="f32")
        monkeypatch.setattr(WebGpu, "binding", 8192)
    tensors = text_tensors(checkpoint.tensors, config).used
    known = replace(TARGETS[target], binding=WebGpu.binding if target == "webgpu" else None)
    file = quantized.write(trace_text(config, tensors, known, stored), tmp_path / "graph")
    as_it_stands(onnx.load(file, load_external_data=False), target)
    if recipe == "bf16":
        return  # the CPU provider has no kernels
    assert config.experts is not None
    assert turns(file, tmp_path) == config.experts.chosen < config.experts.count
    expected, ids = Truth(mixed), np.random.default_rng(1).integers(24, 500, 30)
    if stored.quantized:
        blocks = read_dequantized(file)
        expected.weights = quantized.Stand(expected.weights, blocks, TEXT)
        bits = {w.name.rsplit("layers.0.")[-1]: next(iter(w.parts.values())).bits for w in blocks.weights}
        four = 8 if recipe == "Q8" else 4
        assert (bits["experts.gate_up_proj"], bits["router.proj.weight"]) == (four, 8)
        file = widen(file.parent, tmp_path / "twin")
    found = Subject.open(file, threads=1).forward(ids.tolist())[0]
    assert difference(found, expected.logits(ids)) < (HALF if recipe == "f16" else EXACT)


def nodes(of: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Every node, those of bodies included."""
    for node in of:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from nodes(attribute.g.node)


def as_it_stands(model: onnx.ModelProto, target: str) -> None:
    """Its gelu is the tanh form, scales of experts are there, and onnx-standard is ai.onnx alone."""
    found = list(nodes(model.graph.node))
    gelus = [node for node in found if node.op_type in ("Gelu", "FastGelu")]
    assert len(gelus) == 2, "that of the dense MLP, and that of the loop"
    for node in gelus:
        form = {a.name: a.s for a in node.attribute}
        assert form == {"approximate": b"tanh"} or (node.op_type, form) == ("FastGelu", {})
    scales = [node for node in found if any("per_expert_scale" in name for name in node.input)]
    assert [node.op_type for node in scales] == ["Gather"]
    if target == "onnx-standard":
        assert {node.domain for node in found} == {entry.domain for entry in model.opset_import} == {""}
        assert not model.functions


def turns(file: Path, folder: Path) -> int:
    """Of the loops of one step, by onnxruntime's profile: as often as something is added to the sum.

    And nothing of what runs in the end takes more of the weights of experts than rows.
    """
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    options.enable_profiling, options.profile_file_prefix = True, str(folder / "profile")
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    session = ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    kinds = {"tensor(int64)": np.int64, "tensor(float)": np.float32, "tensor(float16)": np.float16}
    feeds = {}
    for port in session.get_inputs():
        shape = [size if isinstance(size, int) else int(size == "batch") for size in port.shape]
        feeds[port.name] = np.zeros(shape, kinds[port.type])
    feeds |= {"input_ids": np.array([[60]]), "attention_mask": np.array([[1]])}
    session.run(None, feeds)
    events = json.loads(Path(session.end_profiling()).read_text())

    written, runs = (
        onnx.load(path, load_external_data=False) for path in (file, options.optimized_model_filepath)
    )
    weights = {t.name for t in written.graph.initializer if "experts." in t.name}
    takers = [(name, n.op_type) for n in nodes(runs.graph.node) for name in n.input if name in weights]
    assert {name for name, _ in takers} == weights, "none was put otherwise when the graph was loaded"
    assert {taker for _, taker in takers} <= {"Gather", "GatherBlockQuantized"}
    return sum("kernel_time" in event["name"] and event["args"]["op_name"] == "ScatterND" for event in events)


@pytest.mark.parametrize("target", ALL)
def test_packages_say_what_was_recorded(packages: Packages, target: str) -> None:
    """Text, and an image, whose tokens see each other on sliding layers."""
    for name in ("text", "text_long", "image"):
        model, said = fresh(packages, "moe-full", target), RECORDED[f"moe/{name}"]
        media = recorded_media(model, name)
        recorded = np.load(REF / f"prefill_moe_{name}.npz")
        for medium in media.get("images", ()):
            assert difference(medium.features, recorded["image_features"]) < EXACT
        made = model.forward(said["prompt"], **media)
        assert difference(made.logits, recorded["logits"][0]) < EXACT
        assert made.hidden is not None and difference(made.hidden, recorded["hidden_6"][0]) < EXACT
        model.forget()
        assert list(model.generate(said["prompt"], **media, **GREEDY).ids) == said["tokens"]


def test_what_a_package_says_of_its_experts(packages: Packages) -> None:
    package = packages("moe-full", "default")
    said = yaml.safe_load((package / "inference_metadata.yaml").read_text())
    assert said["model"]["mixture_of_experts"] == checkpoints.EXPERTS
    provenance = json.loads((package / "provenance.json").read_bytes())
    text = "8 experts of width 32, 2 for each token, beside a dense MLP"
    assert text in json.dumps(provenance) and text in (package / "README.md").read_text()
    dense = packages("tiny-full", "default")
    assert "mixture_of_experts" not in (dense / "inference_metadata.yaml").read_text()
    status = (
        "How experts are weighed: `mixture_of_experts` has no key for a scale of each, `per_expert_scale`"
    )
    assert status in (package / "METADATA_STATUS.md").read_text()
    assert "xperts" not in (dense / "METADATA_STATUS.md").read_text()


def test_the_config() -> None:
    assert read_text_config(checkpoints.tiny_config("moe")).experts == Experts(8, 2, 32)
    assert read_text_config(checkpoints.tiny_config("text")).experts is None
