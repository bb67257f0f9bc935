"""Weights by name: parts put together, what fills blocks cut off, and a head that is not what is looked up."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from cabochon.parity.blocks import Blocks
from cabochon.parity.built import Built
from cabochon.parity.dequantized import HEAD, TABLE, Dequantized, Weight, _place, read_dequantized
from cabochon.parity.replaced import Standin, spellings

TABLE_VALUES = np.arange(24, dtype=np.float32).reshape(6, 4)


def blocks(values: np.ndarray, multiplied: bool = False, rounds: bool = False) -> Blocks:
    return Blocks("w", multiplied, 4, 32, rounds, lambda: values)


def whole(name: str, values: np.ndarray, multiplied: bool = False) -> Weight:
    return Weight(name, multiplied, {(0, 0): blocks(values, multiplied)})


@pytest.mark.parametrize(
    ("name", "weight", "at"),
    [
        ("model.layers.12.mlp.up_proj.weight", "model.layers.12.mlp.up_proj.weight", (0, 0)),
        ("model.embed_tokens.rows800.weight", TABLE, (0, 800)),
        ("model.embed_tokens_per_layer.7.weight", "model.embed_tokens_per_layer.weight", (7, 0)),
        ("model.embed_tokens_per_layer.7.rows64.weight", "model.embed_tokens_per_layer.weight", (7, 64)),
        ("model.layers.3.experts.down_proj", "model.layers.3.experts.down_proj", (0, 0)),
        ("model.layers.3.experts.down_proj.rows24", "model.layers.3.experts.down_proj", (0, 24)),
    ],
)
def test_parts_are_known_by_their_names(name: str, weight: str, at: tuple[int, int]) -> None:
    assert _place(name) == (weight, at)


@pytest.mark.parametrize(
    "parts",
    [
        {(0, 0): TABLE_VALUES},
        {(0, 0): np.pad(TABLE_VALUES, [(0, 0), (0, 28)], constant_values=9)},
        {(0, 4): TABLE_VALUES[4:], (0, 0): TABLE_VALUES[:4]},
        {(1, 0): TABLE_VALUES[:, 2:], (0, 0): TABLE_VALUES[:, :2]},
        {(0, 0): np.pad(TABLE_VALUES.reshape(12, 2), [(0, 0), (0, 30)])},
        {(at, row): TABLE_VALUES[row : row + 3, 2 * at : 2 * at + 2] for at in (1, 0) for row in (3, 0)},
    ],
)
def test_however_it_is_stored_it_is_the_same_weight(parts: Mapping[tuple[int, int], np.ndarray]) -> None:
    """Whole, padded, by rows, by layers, a row for each layer of a token."""
    found = Weight(TABLE, False, {at: blocks(values) for at, values in parts.items()})
    np.testing.assert_array_equal(found.values((6, 4)), TABLE_VALUES)


def test_experts_have_three_dimensions_and_are_stored_as_rows() -> None:
    """Two experts of three rows; the parts of a table end where bindings do, and not where experts do."""
    parts = {(0, row): blocks(np.pad(TABLE_VALUES[row : row + 4], [(0, 0), (0, 12)])) for row in (4, 0)}
    found = Weight("model.layers.3.experts.down_proj", False, parts)
    np.testing.assert_array_equal(found.values((2, 3, 4)), TABLE_VALUES.reshape(2, 3, 4))


def test_what_the_reference_calls_a_weight() -> None:
    dense = "model.embed_vision.patch_dense.weight"
    assert dense in spellings("model.vision_embedder.patch_dense.weight")
    projection = "model.embed_vision.multimodal_embedder.embedding_projection"
    assert projection in spellings("model.embed_vision.embedding_projection")
    experts = "model.layers.3.experts.down_proj"
    assert spellings(experts)[:2] == (experts, "model.language_model.layers.3.experts.down_proj")


def test_a_tied_table_comes_once_and_twice_where_the_head_reads_other_numbers() -> None:
    shapes = {TABLE: (6, 4)}
    tied = Dequantized((whole(TABLE, TABLE_VALUES), whole(TABLE, TABLE_VALUES.copy(), True)))
    assert [name for name, _ in tied.place(shapes)] == [TABLE]
    apart = Dequantized((whole(TABLE, TABLE_VALUES), whole(TABLE, -TABLE_VALUES, True)))
    placed = dict(apart.place(shapes))
    np.testing.assert_array_equal(placed[TABLE], TABLE_VALUES)
    np.testing.assert_array_equal(placed[HEAD], -TABLE_VALUES)


def test_a_head_of_its_own_has_the_shape_of_the_table() -> None:
    alone = Dequantized((whole(HEAD, TABLE_VALUES.reshape(3, 8), True),))
    ((name, values),) = alone.place({TABLE: (6, 4)})
    assert (name, values.shape) == (HEAD, (6, 4))


def test_what_there_is_in_words_and_whether_kernels_round() -> None:
    rounding = Weight("a", True, {(0, 0): blocks(TABLE_VALUES, True, rounds=True)})
    found = Dequantized((rounding, whole("b", TABLE_VALUES)))
    assert found.kinds == ["4 bits in blocks of 32: 2 weights"]
    assert (found.rounds, rounding.rounding) == (True, 32)
    assert not Dequantized().rounds


def test_rows_in_blocks_are_f16_in_a_package_of_f32_so_that_its_twin_is_judged() -> None:
    looked_up, multiplied = whole(TABLE, TABLE_VALUES), whole("a", TABLE_VALUES, True)
    rounding = Weight("b", True, {(0, 0): blocks(TABLE_VALUES, True, rounds=True)})
    for floats, weights, own, rough in (
        ("f32", (), "f32", False),
        ("f32", (multiplied,), "f32", False),
        ("f32", (multiplied, looked_up), "f32", True),
        ("f32", (rounding, looked_up), "f32+int8", False),
        ("f16", (multiplied, looked_up), "f16", False),
    ):
        how = Built(floats, Dequantized(weights))
        assert (how.own, how.rough) == (own, rough)
        assert how.arithmetics[-1] == "f32"


def graph(folder: Path, *names: str) -> Path:
    """A graph that looks rows of TABLE in blocks up, and has floats under `names`."""
    node = helper.make_node(
        "GatherBlockQuantized",
        [TABLE, "ids", f"{TABLE}_scales"],
        ["rows"],
        domain="com.microsoft",
        bits=8,
        block_size=16,
        gather_axis=0,
        quantize_axis=1,
    )
    codes, scales = np.full((6, 16), 129, np.uint8), np.ones((6, 1), np.float32)
    stored = {TABLE: codes, f"{TABLE}_scales": scales, **{name: scales for name in names}}
    made = helper.make_graph(
        [node],
        "rows",
        [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["n"])],
        [helper.make_tensor_value_info("rows", onnx.TensorProto.FLOAT, ["n", 16])],
        [onnx.numpy_helper.from_array(values, name) for name, values in stored.items()],
    )
    onnx.save(helper.make_model(made), folder / "model.onnx")
    return folder / "model.onnx"


@pytest.mark.parametrize(
    ("names", "floats"),
    [((), False), ((HEAD,), True), (("lm_head.rows0.weight", "lm_head.rows9.weight"), True)],
)
def test_a_head_that_floats_is_told(tmp_path: Path, names: tuple[str, ...], floats: bool) -> None:
    assert read_dequantized(graph(tmp_path, *names)).head_floats == floats


@pytest.mark.parity
def test_a_head_that_floats_has_the_weights_of_the_checkpoint() -> None:
    """Where the table that it was tied to is looked up in blocks."""
    import torch

    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = torch.nn.ModuleDict({"embed_tokens": torch.nn.Embedding(6, 4)})
            self.lm_head = torch.nn.Linear(4, 6, bias=False)
            self.lm_head.weight = self.get_input_embeddings().weight

        def get_input_embeddings(self) -> Any:
            return self.model["embed_tokens"]

    model = Tied()
    own = model.lm_head.weight.detach().numpy().copy()
    standin = Standin(torch, model, Dequantized((whole(TABLE, TABLE_VALUES),), head_floats=True))
    for _ in range(2):
        with standin.computing("f32"):
            np.testing.assert_array_equal(model.lm_head.weight.detach().numpy(), own)
            table = model.get_input_embeddings().weight.detach().numpy()
            np.testing.assert_array_equal(table, TABLE_VALUES)
