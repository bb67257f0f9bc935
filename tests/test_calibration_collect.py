"""Statistics of weights: what the NumPy reference multiplies, window by window."""

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import oracle
from cabochon.calibration import Statistics, collect
from cabochon.calibration.session import read_windows
from cabochon.errors import PackageError
from cabochon.runtime.folder import open_folder
from packages import MINIATURE, TINY, Packages

NAMES = ("gate_up_proj", "down_proj")
WORDS = "In the beginning was the Word, and the Word was with God. <eos> "


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two windows of the miniature's tokens, and some that fill none."""
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_bytes((WORDS * 60).encode())
    return path


@pytest.fixture(scope="module")
def statistics(packages: Packages, text: Path) -> Statistics:
    return collect(packages("miniature"), text, threads=1)


def reference(source: Path, windows: Sequence[Sequence[int]]) -> dict[str, np.ndarray]:
    """Mean squares of whatever the reference multiplies with each weight, by its name."""
    weights = oracle.Weights(source)
    names = {weights(name).tobytes(): name for name in weights.t}
    geometry, found = oracle.Geometry(json.loads((source / "config.json").read_text())), dict[str, Any]()

    def lin(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        found.setdefault(names[w.tobytes()], []).append(x.astype(np.float64) ** 2)
        return x @ w.T

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oracle, "lin", lin)
        for ids in windows:
            x = oracle.embed(geometry, weights, "model.", np.array(ids))
            extras = oracle.ple_inputs(geometry, weights, "model.", ids, x)
            x, _ = oracle.decoder(geometry, weights, "model.", x, extras, np.arange(len(ids)))
            oracle.head(geometry, weights, "model.", x)
    return {name: np.concatenate(parts).mean(0) for name, parts in found.items()}


def test_every_weight_has_what_the_reference_multiplies_it_with(
    packages: Packages, text: Path, statistics: Statistics
) -> None:
    _, windows = read_windows(open_folder(packages("miniature")), text, None)
    expected = reference(MINIATURE / "target", windows.ids)
    assert set(statistics.mean_squares) == {"lm_head.weight", *expected} and len(expected) == 82
    for name, mean in expected.items():
        found = statistics.mean_squares[name]
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, mean, rtol=1e-4, atol=1e-6 * mean.max(), err_msg=name)


def test_a_table_has_statistics_as_a_head_alone(statistics: Statistics) -> None:
    table, head = (statistics.mean_squares[name] for name in ("model.embed_tokens.weight", "lm_head.weight"))
    assert table is head and table.shape == (128,)
    assert not [name for name in statistics.mean_squares if "per_layer.weight" in name]


def test_the_text_is_said(statistics: Statistics, text: Path) -> None:
    said = (statistics.text, statistics.sha256, statistics.windows, statistics.tokens)
    assert said == ("words.txt", hashlib.sha256(text.read_bytes()).hexdigest(), 2, 2 * 511)


def test_the_same_twice_and_progress(packages: Packages, text: Path, statistics: Statistics) -> None:
    told = list[tuple[int, int]]()
    again = collect(packages("miniature"), text, threads=1, progress=lambda *each: told.append(each))
    assert told == [(1, 2), (2, 2)]
    assert all(
        np.array_equal(again.mean_squares[name], mean) for name, mean in statistics.mean_squares.items()
    )


def test_a_limit_takes_the_first_windows(packages: Packages, text: Path, statistics: Statistics) -> None:
    first = collect(packages("miniature"), text, threads=1, limit=1)
    assert (first.windows, first.tokens) == (1, 511)
    name = "model.layers.9.mlp.down_proj.weight"
    assert not np.array_equal(first.mean_squares[name], statistics.mean_squares[name])


def test_what_looks_like_a_control_token_is_letters(packages: Packages, text: Path) -> None:
    _, windows = read_windows(open_folder(packages("miniature")), text, None)
    assert [len(ids) for ids in windows.ids] == [512, 512] and {ids[0] for ids in windows.ids} == {2}
    assert not {1, 2} & {*windows.ids[0][1:], *windows.ids[1][1:]}


def test_other_packages_are_refused(packages: Packages, text: Path, tmp_path: Path) -> None:
    with pytest.raises(PackageError, match="default f16; expected a text package, default f32") as caught:
        collect(packages("tiny", "default", "f16"), text)
    assert "--precision f32" in caught.value.remedy
    (tmp_path / "model.onnx").write_bytes(b"")
    with pytest.raises(PackageError, match=r"no tokenizer\.json; expected one to read a text with"):
        read_windows(open_folder(tmp_path), text, None)


def test_a_model_that_is_broken(packages: Packages, text: Path, tmp_path: Path) -> None:
    """An infinite weight makes what comes behind it no number."""
    broken = shutil.copytree(packages("miniature"), tmp_path / "broken")
    graph = onnx.load(broken / "model.onnx", load_external_data=False)
    place = next(w for w in graph.graph.initializer if w.name == "model.layers.3.input_layernorm.weight")
    offset = next(int(entry.value) for entry in place.external_data if entry.key == "offset")
    with (broken / "model.onnx.data").open("r+b") as file:
        file.seek(offset)
        file.write(np.float32(np.inf).tobytes())
    with pytest.raises(PackageError, match="no finite number: the model is broken") as caught:
        collect(broken, text, limit=1)
    assert caught.value.at == "model.layers.3.self_attn.q_proj.weight"


class Experts(np.ndarray[Any, Any]):
    """Weights of experts, which keep the squares of whatever they are multiplied with."""

    squares: list[np.ndarray]

    def __array_finalize__(self, whole: Any) -> None:
        self.squares = getattr(whole, "squares", [])

    def __matmul__(self, x: np.ndarray) -> np.ndarray:
        self.squares.append(x.astype(np.float64) ** 2)
        return np.asarray(self) @ x


def test_experts_have_what_their_turns_multiply(packages: Packages, text: Path) -> None:
    """All experts of a layer have one mean, over every row that comes to one of them."""
    _, windows = read_windows(open_folder(packages("moe")), text, 1)
    ids, prefix = np.array(windows.ids[0]), "model.language_model."
    geometry = oracle.Geometry(json.loads((TINY / "moe" / "config.json").read_text())["text_config"])
    weights = oracle.Weights(TINY / "moe")
    spied = {name: weights(f"{prefix}layers.3.experts.{name}").view(Experts) for name in NAMES}
    weights.read.update({f"{prefix}layers.3.experts.{name}": array for name, array in spied.items()})
    x = oracle.embed(geometry, weights, prefix, ids)
    oracle.decoder(geometry, weights, prefix, x, None, np.arange(len(ids)))

    found = collect(packages("moe"), text, threads=1, limit=1).mean_squares
    for name, array in spied.items():
        rows = np.stack(array.squares)
        assert len(rows) == 2 * len(ids)
        mean = found[f"model.layers.3.experts.{name}"]
        np.testing.assert_allclose(mean, rows.mean(0), rtol=1e-3, atol=1e-5 * mean.max(), err_msg=name)
