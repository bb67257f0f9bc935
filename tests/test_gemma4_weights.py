"""The order of the data file is known before anything is traced, and names what the graph asks for."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cabochon.dialects import TARGETS
from cabochon.gemma4 import read_text_config, text_weights, trace_text
from cabochon.package.graph_file import stored_weights
from cabochon.recipes import PRECISIONS
from graphs import imagined

GEOMETRIES = Path(__file__).parent / "data" / "geometries"


@pytest.mark.parametrize("geometry", ["e2b", "31b"])
@pytest.mark.parametrize("target", TARGETS)
def test_they_are_those_of_the_graph(target, geometry):
    config = read_text_config(json.loads((GEOMETRIES / f"{geometry}.json").read_text()))
    tensors = imagined(config)
    recipes = list(text_weights(config, tensors, TARGETS[target], PRECISIONS["f16"]))
    stored = stored_weights(trace_text(config, tensors, TARGETS[target], PRECISIONS["f16"]))
    assert {recipe.name: (recipe.shape, recipe.nbytes, recipe.sources) for recipe in recipes} == {
        weight.name: (tuple(weight.shape), weight.nbytes, weight.sources) for weight in stored
    }


def test_the_table_of_all_layers_is_cut_in_their_order_where_the_target_wants_it():
    config = read_text_config(json.loads((GEOMETRIES / "e2b.json").read_text()))
    recipes = list(text_weights(config, imagined(config), TARGETS["cuda"], PRECISIONS["bf16"]))
    parts = {recipe.name: recipe for recipe in recipes if "embed_tokens_per_layer" in recipe.name}
    assert list(parts) == [f"model.embed_tokens_per_layer.{i}.weight" for i in range(35)]
    assert [part.columns for part in parts.values()] == [slice(256 * i, 256 * (i + 1)) for i in range(35)]
    assert {part.span for part in parts.values()} == {None}


def test_what_writes_weights_is_there_before_what_traces_graphs():
    code = "import cabochon, sys; cabochon.build; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert {"onnx_ir", "onnx", "sympy"}.isdisjoint(loaded.split())
