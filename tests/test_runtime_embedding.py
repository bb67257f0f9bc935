"""The embedding beside its decoder: what does not fit is refused when the package is loaded."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import cabochon
from cabochon.errors import PackageError, RequestError
from cabochon.runtime.embedder import Lookup
from full_packages import IMAGE, small
from packages import Packages


@pytest.fixture
def folder(packages: Packages, tmp_path: Path) -> Path:
    return shutil.copytree(packages("tiny-full"), tmp_path / "p")


def changed(folder: Path, component: str, how: Any) -> Path:
    """The package with one graph changed; its weights stay where they are."""
    path = folder / component / "model.onnx"
    model = onnx.load(path, load_external_data=False)
    how(model)
    path.write_bytes(model.SerializeToString())
    return folder


def renamed(old: str, new: str) -> Any:
    def rename(model: onnx.ModelProto) -> None:
        for value in (*model.graph.input, *model.graph.output):
            value.name = new if value.name == old else value.name
        for node in model.graph.node:
            node.input[:] = [new if name == old else name for name in node.input]
            node.output[:] = [new if name == old else name for name in node.output]

    return rename


def without(key: str) -> Any:
    def remove(model: onnx.ModelProto) -> None:
        kept = [p for p in model.metadata_props if p.key != f"cabochon.{key}"]
        assert len(kept) == len(model.metadata_props) - 1
        del model.metadata_props[:]
        model.metadata_props.extend(kept)

    return remove


@pytest.mark.parametrize(
    ("component", "how", "message"),
    [
        (
            "embedding",
            renamed("inputs_embeds", "x"),
            "embedding/model.onnx: outputs: there is no 'inputs_embeds'",
        ),
        (
            "embedding",
            renamed("audio_features", "sound"),
            "embedding/model.onnx: inputs: unknown port 'sound'",
        ),
        ("embedding", renamed("per_layer_inputs", "more"), "outputs: unknown port 'more'"),
        ("embedding", without("model"), "embedding/model.onnx: metadata: cabochon.model is missing"),
        ("embedding", without("audio_token_id"), "it has placeholders for ['image', 'video'] and takes"),
        (
            "decoder",
            renamed("per_layer_inputs", "more"),
            "decoder/model.onnx: unknown input 'more'; expected a fed",
        ),
        (
            "decoder",
            renamed("inputs_embeds", "x"),
            "decoder/model.onnx: the graph has no input 'inputs_embeds'",
        ),
        ("decoder", without("mask"), "decoder/model.onnx: metadata: cabochon.mask is missing"),
        ("decoder", without("model"), "decoder/model.onnx: the graph has no input 'input_ids'"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, component: str, how: Any, message: str):
    with pytest.raises(PackageError) as caught:
        cabochon.load(changed(folder, component, how), threads=1, provider="cpu")
    assert message in str(caught.value)


def test_an_embedding_of_another_model_is_refused(packages: Packages, folder: Path):
    shutil.rmtree(folder / "embedding")
    shutil.copytree(packages("big-full") / "embedding", folder / "embedding")
    with pytest.raises(
        PackageError, match=r"embedding/model\.onnx: it makes inputs_embeds; the decoder takes "
    ):
        cabochon.load(folder, threads=1, provider="cpu")


def test_feeds_are_what_the_decoder_takes(packages: Packages):
    model = packages.model("tiny-full")
    rows = [[2, *small(model, 1).soft("image", IMAGE), 30], [2, 30, IMAGE, 40, 50, 60]]
    fed = model.session.feeds(rows, np.array(rows, np.int64))
    assert {name: value.shape() for name, value in fed.items()} == {
        "inputs_embeds": [2, 6, 64],
        "per_layer_inputs": [2, 6, 80],
    }
    embeds = fed["inputs_embeds"].numpy()
    np.testing.assert_array_equal(embeds[0, 1:5], small(model, 1).features)
    bare = model.session.feeds([[0]], np.array([[0]]))["inputs_embeds"].numpy()
    np.testing.assert_array_equal(embeds[1, 2], bare[0, 0])
    big = packages.model("big-full")
    fed = big.session.feeds([[2, IMAGE]], np.array([[2, IMAGE]]))
    assert sorted(fed) == ["input_ids", "inputs_embeds"]
    assert fed["input_ids"].numpy().tolist() == [[2, 0]]


def test_text_is_looked_up():
    fed = Lookup().feeds([[2, 5]], np.array([[2, 5]]))
    assert {name: value.numpy().tolist() for name, value in fed.items()} == {"input_ids": [[2, 5]]}
    assert Lookup().placeholders == {}
    Lookup().encode([])
    with pytest.raises(RequestError, match="pixel_values: this is a text package"):
        Lookup().images(np.zeros(1), np.zeros(1))
