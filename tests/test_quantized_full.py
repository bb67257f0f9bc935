"""Quantized full models, component by component, against the NumPy oracle on what their blocks stand for."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import quantized
from cabochon.dialects import TARGETS
from cabochon.gemma4.trace import trace_full
from cabochon.parity.dequantized import read_dequantized
from cabochon.parity.subject import Subject
from cabochon.parity.widened import widen
from checkpoints import TINY
from full_graphs import TARGET, TEXT, Components, Truth, padded, picture
from graphs import difference

EXACT = 1e-4
BUILT = [("default", "Q4_K_M"), ("default", "Q4_K_M-mixed"), ("onnx-standard", "Q8")]
Case = tuple["Whole", Truth]


class Whole(Components):
    """The twins of the components of a quantized model."""

    def __init__(self, folder: Path, out: Path, target: str, recipe: str) -> None:
        super().__init__(folder, target)
        precision = quantized.precision(recipe, target, activations="f32")
        models = trace_full(self.config, self.tensors, TARGETS[target], precision)
        self.graphs = {name: quantized.write(model, out / name) for name, model in models.items()}
        self._models, self._sessions = (
            models,
            {
                name: Subject.open(widen(graph.parent, graph.parent / "twin"), threads=1).session
                for name, graph in self.graphs.items()
            },
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Case]:
    @cache
    def make(target: str, recipe: str) -> Case:
        return quantized_full(TARGET, tmp_path_factory.mktemp("full"), target, recipe)

    return make


def quantized_full(folder: Path, out: Path, target: str, recipe: str) -> Case:
    """A checkpoint's components, and its oracle on what their blocks stand for."""
    whole, truth = Whole(folder, out, target, recipe), Truth(folder)
    blocks = read_dequantized(*whole.graphs.values())
    truth.weights = quantized.Stand(truth.weights, blocks, TEXT)
    return whole, truth


@pytest.mark.parametrize(("target", "recipe"), BUILT)
def test_components_compute_what_their_blocks_say(
    made: Callable[[str, str], Case], target: str, recipe: str
) -> None:
    whole, truth = made(target, recipe)
    pictures = padded([picture(truth, 6, 3), picture(truth, 3, 9)], 27)
    sound = np.random.default_rng(3).normal(-2, 2, (1, 21, 16)).astype(np.float32), np.ones((1, 21), bool)
    images, sounds = truth.images(*pictures), truth.clips(*sound)
    assert difference(whole.images(*pictures), images) < EXACT
    assert difference(whole.clips(*sound), sounds) < EXACT
    ids = np.concatenate([[2, 30], [8] * len(images), [40, 50], [11] * len(sounds), [60]])
    x, extras = truth.embed(ids, images, sounds)
    assert extras is not None
    fed = whole.embed(ids, images, sounds)
    assert difference(fed["inputs_embeds"][0], x) < EXACT
    assert difference(fed["per_layer_inputs"][0], extras.reshape(len(x), -1)) < EXACT
    logits = truth.logits(ids, images, sounds)
    assert difference(whole.decode(ids, fed)["logits"][0], logits) < EXACT


@pytest.mark.parametrize(("target", "recipe"), BUILT)
def test_which_weights_lie_in_blocks(made: Callable[[str, str], Case], target: str, recipe: str) -> None:
    """Towers and tables too, but for the recipes of the seeds; and all are the checkpoint's."""
    whole, truth = made(target, recipe)
    apart = truth.weights.apart
    towers = {name for name in apart if "tower" in name or "embed_vision" in name or "embed_audio" in name}
    tables = {name for name in apart if "embed_tokens" in name}
    assert bool(towers) == bool(tables) == (recipe != "Q4_K_M-mixed")
    assert all(apart[name] < 0.01 for name in towers), "8 bits"
    assert max(apart.values()) < (0.01 if recipe == "Q8" else 0.16)
    linears = {
        name for name in whole.tensors if name.startswith("model.layers") and name.endswith("_proj.weight")
    }
    assert linears <= {name.replace(TEXT, "model.") for name in apart}


def test_images_of_a_mixture(tmp_path: Path) -> None:
    """Experts in blocks behind a tower in blocks, whose features see each other on sliding layers."""
    whole, truth = quantized_full(TINY / "moe", tmp_path, "default", "Q4_K_M")
    pictures = padded([picture(truth, 12, 9), picture(truth, 3, 21)], 108)
    images = truth.images(*pictures)
    assert difference(whole.images(*pictures), images) < EXACT
    ids = np.concatenate([[2, 30, 7], [8] * 12, [9, 40, 7], [8] * 7, [9, 50, 60]])
    found = whole.forward(ids, images)["logits"][0]
    assert difference(found, truth.logits(ids, images)) < EXACT
    experts = {name: far for name, far in truth.weights.apart.items() if ".experts." in name}
    assert len(experts) == 2 * len(whole.text.layers) and min(experts.values()) > 0.01, "4 bits"
