"""Quantized decoders of every target and recipe against the NumPy oracle, which runs on what their blocks stand for.

The f32 twin multiplies exactly and is held to 1e-4. The package itself rounds what it multiplies to int8 where its
kernels do; that moves an untrained model far, so it is measured on a trained one.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from tokenizers import Tokenizer

import cabochon
import checkpoints
import quantized
from cabochon.checkpoint import open_checkpoint
from cabochon.dialects import TARGETS
from cabochon.dialects.group_query import WebGpu
from cabochon.errors import TargetError
from cabochon.gemma4 import read_text_config, text_tensors, trace_text
from cabochon.parity.dequantized import Dequantized, read_dequantized
from cabochon.parity.subject import Subject
from cabochon.parity.widened import widen
from cabochon.recipes import Precision
from cabochon.recipes.precision import Rule
from graphs import Oracle, difference
from packages import MINIATURE, SOURCES

EXACT = 1e-4
Make = Callable[..., "Quantized"]

RECIPES = {
    "16, nothing but scales": Precision("own", "f32", (Rule("*", "round", 4, 16, True),)),
    "64, head apart": Precision(
        "own", "f32", (Rule("*", "round", 4, 64, False), Rule("*/lm_head", "round", 8, 16, False))
    ),
}
BUILT = [
    ("default", "Q4_K_M"),
    ("default", "Q4_K_M-uniform"),
    ("default", "Q4_K_M-mixed"),
    ("default", "Q8"),
    ("default", "NF4"),
    ("default", "64, head apart"),
    ("onnx-standard", "Q4_K_M"),
    ("onnx-standard", "Q4_K_M-mixed"),
    ("onnx-standard", "Q8"),
    ("onnx-standard", "16, nothing but scales"),
    ("cuda", "Q4_K_M"),
    ("cuda", "NF4"),
    ("webgpu", "Q4_K_M"),
    ("webgpu", "Q8"),
]


def ids(length: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(24, 512, length)


class Quantized:
    """A decoder on disk, without the files around it, and the oracle on the weights that its blocks stand for."""

    def __init__(self, folder: Path, source: Path, target: str, recipe: str, **changes: Any) -> None:
        checkpoint = open_checkpoint(source)
        self.config = read_text_config(checkpoint.config)
        known = RECIPES.get(recipe)
        wanted = (
            known.on(TARGETS[target].storage)
            if known
            else quantized.precision(recipe, target, activations="f32")
        )
        where = replace(TARGETS[target], **changes)
        tensors = text_tensors(checkpoint.tensors, self.config).used
        self.graph = quantized.write(trace_text(self.config, tensors, where, wanted), folder)
        self.blocks: Dequantized = read_dequantized(self.graph)
        self.truth = Oracle(source)
        self.truth.weights = quantized.Stand(self.truth.weights, self.blocks)

    @cached_property
    def twin(self) -> Subject:
        return Subject.open(widen(self.graph.parent, self.graph.parent / "twin"), threads=1)

    @cached_property
    def itself(self) -> Subject:
        return Subject.open(self.graph, threads=1)

    def run(self, rows: np.ndarray, past: Any = None, keep: int = 0) -> dict[str, np.ndarray]:
        """The twin, with whole caches."""
        held = 0 if past is None else past["past_key_values.0.key"].shape[2]
        caches = self.twin._empty() if past is None else past
        caches = {
            name: np.repeat(x, len(rows), 0) if len(x) != len(rows) else x for name, x in caches.items()
        }
        mask = np.ones((len(rows), held + rows.shape[1]), np.int64)
        names = [port.name for port in self.twin.session.get_outputs()]
        feeds = {"input_ids": rows, "attention_mask": mask, "logits_to_keep": np.array(keep), **caches}
        return dict(zip(names, self.twin.session.run(names, feeds), strict=True))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Make:
    root = tmp_path_factory.mktemp("quantized")

    @cache
    def make(target: str, recipe: str, source: str = "tiny", **changes: Any) -> Quantized:
        folder = root / f"{source}-{target}-{len(list(root.iterdir()))}"
        return Quantized(folder, SOURCES[source], target, recipe, **changes)

    return make


@pytest.mark.parametrize(("target", "recipe"), BUILT)
def test_the_twin_computes_what_its_blocks_say(made: Make, target: str, recipe: str) -> None:
    """Two rows at once, kept positions, then steps on their caches: all equal the oracle's single pass."""
    one, tokens = made(target, recipe), [ids(24, 1), ids(24, 2)]
    expected = [one.truth.run(row) for row in tokens]
    first = one.run(np.stack([row[:20] for row in tokens]))
    for row, (logits, hidden) in enumerate(expected):
        assert difference(first["logits"][row], logits[:20]) < EXACT
        assert difference(first["hidden_states.9"][row], hidden[:20]) < EXACT
    assert difference(one.run(tokens[0][None], keep=1)["logits"][0], expected[0][0][-1:]) < EXACT
    for step in range(20, 24):
        past = {name: first[name.replace("past_key_values", "present")] for name in one.twin._empty()}
        first = one.run(np.stack([row[step : step + 1] for row in tokens]), past)
        assert (
            max(difference(x, e[0][step : step + 1]) for x, e in zip(first["logits"], expected, strict=True))
            < EXACT
        )


@pytest.mark.parametrize(("target", "recipe"), BUILT)
def test_what_the_blocks_say_is_the_checkpoint(made: Make, target: str, recipe: str) -> None:
    """Another order of bytes, or scales of another block, is 1.4 away."""
    one = made(target, recipe)
    bits = {part.bits for weight in one.blocks.weights for part in weight.parts.values()}
    apart = one.truth.weights.apart
    linears = [name for name in one.truth.weights.own.t if "_proj" in name or "per_layer_input_gate" in name]
    assert {name for name in linears if "norm" not in name} <= apart.keys()
    assert ("model.embed_tokens.weight" in apart) == (recipe in ("Q4_K_M", "Q8", *RECIPES))
    assert max(apart.values()) < (0.01 if bits == {8} else 0.16)


@pytest.mark.parametrize(("target", "recipe"), BUILT)
def test_it_generates(made: Make, target: str, recipe: str) -> None:
    """In the runtime, which evicts and binds, the tokens of plain feeds."""
    one = made(target, recipe)
    model = cabochon.load(one.graph.parent, threads=1, provider="cpu")
    tokens = model.generate(ids(14).tolist(), greedy=True, ignore_eos=True, max_new_tokens=12).ids
    plain = one.itself if one.blocks.rounds else one.twin  # which computes the same
    assert list(tokens) == plain.greedy(ids(14).tolist(), 12)


def test_tables_of_rows_are_looked_up_and_multiplied(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    binding = 512 * 16 // 3  # bytes: a third of the table's codes
    monkeypatch.setattr(WebGpu, "binding", binding)
    one = made("webgpu", "Q4_K_M", binding=binding)
    found = next(w for w in one.blocks.weights if w.name == "model.embed_tokens.weight")
    assert len(found.parts) > 2
    assert difference(one.run(ids(20)[None])["logits"][0], one.truth.run(ids(20))[0]) < EXACT


@pytest.mark.parametrize("target", ["onnx-standard", "webgpu"])
def test_normal_floats_have_no_operator_there(made: Make, target: str) -> None:
    with pytest.raises(TargetError, match="cannot carry weights in 'nf4'"):
        made(target, "NF4")


# What the package itself does


def optimized(graph: Path, level: Any) -> Subject:
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    options.graph_optimization_level = level
    return Subject(ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"]))


NOTHING, ALL = ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL


@pytest.mark.parametrize("recipe", ["Q4_K_M", "Q8"])
def test_optimizations_change_nothing_on_default(made: Make, recipe: str) -> None:
    """Scales that were no initializers would be read as garbage without optimizations."""
    graph, tokens = made("default", recipe).graph, ids(29).tolist()
    plain, fused = (optimized(graph, level).forward(tokens)[0] for level in (NOTHING, ALL))
    assert difference(plain, fused) <= 1e-6


def test_without_optimizations_the_portable_graph_is_exact(made: Make) -> None:
    one, tokens = made("onnx-standard", "Q4_K_M"), ids(29)
    assert (
        difference(optimized(one.graph, NOTHING).forward(tokens.tolist())[0], one.truth.run(tokens)[0])
        < EXACT
    )


def test_of_a_trained_model_int8_changes_little(made: Make) -> None:
    one, tokens = made("default", "Q4_K_M", source="miniature"), heldout(60)
    logits, hidden = one.truth.run(tokens)
    twin, itself = one.twin.forward(tokens.tolist()), one.itself.forward(tokens.tolist())
    assert difference(twin[0], logits) < EXACT
    assert difference(twin[1], hidden) < EXACT
    assert 1e-3 < difference(itself[0], logits) < 0.05
    assert (itself[0].argmax(-1) == logits.argmax(-1)).mean() >= 0.95


def heldout(count: int) -> np.ndarray:
    """The first tokens of the text that the miniature was not trained on."""
    text = (MINIATURE / "heldout.txt").read_text("utf-8")[:1000]
    tokenizer = Tokenizer.from_file(str(MINIATURE / "target" / "tokenizer.json"))
    return np.array([2, *tokenizer.encode(text, add_special_tokens=False).ids])[:count]


def test_other_bytes_are_another_model(made: Make, tmp_path: Path) -> None:
    """Codes whose halves are swapped: the twin follows the operators, and so does what is read back, far from the
    checkpoint's weight."""
    one = made("default", "Q4_K_M")
    folder = tmp_path / "swapped"
    folder.mkdir()
    for file in one.graph.parent.glob("model.onnx*"):
        (folder / file.name).write_bytes(file.read_bytes())
    name = "model.layers.3.mlp.down_proj.weight"
    codes = quantized.span(folder / "model.onnx", name)
    data = bytearray((folder / "model.onnx.data").read_bytes())
    data[codes] = bytes(b >> 4 | (b & 15) << 4 for b in data[codes])
    (folder / "model.onnx.data").write_bytes(data)
    found = quantized.Stand(
        Oracle(checkpoints.TINY / "text").weights, read_dequantized(folder / "model.onnx")
    )
    apart = found.apart
    assert apart.pop(name) > 1
    assert max(apart.values()) < 0.16
