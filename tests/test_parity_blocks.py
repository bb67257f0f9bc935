"""Weights read back from their blocks are what onnxruntime's operators make of the same bytes."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from cabochon.errors import ParityError
from cabochon.parity.blocks import read_blocks
from cabochon.parity.subject import Subject
from cabochon.parity.widened import widen

RNG = np.random.default_rng(7)
N, K, BLOCK = 7, 40, 16  # the last block of a row is not filled
B = -(-K // BLOCK)
NIBBLES = {4: (TensorProto.UINT4, TensorProto.INT4), 8: (TensorProto.UINT8, TensorProto.INT8)}


def save(folder: Path, node: Any, given: dict[str, Any], inputs: dict[str, Any], *more: Any) -> Path:
    """A graph around one node, with its tensors in a file of their own, two of them on pages apart."""
    port = TensorProto.FLOAT16 if more == ("f16",) else TensorProto.FLOAT
    nodes = [node, *(n for n in more if n != "f16")]
    types = {np.dtype(np.int64): TensorProto.INT64, np.dtype(np.float32): port}
    fed = [helper.make_tensor_value_info(k, types[v.dtype], v.shape) for k, v in inputs.items()]
    said = [helper.make_tensor_value_info(nodes[-1].output[0], port, None)]
    tensors = [numpy_helper.from_array(v, k) if isinstance(v, np.ndarray) else v for k, v in given.items()]
    graph = helper.make_graph(nodes, "g", fed, said, tensors)
    domains = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=domains, ir_version=10)
    onnx.save_model(
        model, folder / "model.onnx", save_as_external_data=True, size_threshold=0, location="w.data"
    )
    return folder


def run(folder: Path, inputs: dict[str, Any], options: Any = None) -> np.ndarray:
    session = ort.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


def blocks(bits: int, symmetric: bool, rows: int = N) -> dict[str, np.ndarray]:
    width = BLOCK * bits // 8
    zeros = {} if symmetric else {"w_zero_points": RNG.integers(0, 256, (rows, -(-B * bits // 8)), np.uint8)}
    codes = RNG.integers(0, 256, (rows, B, width), np.uint8)
    return {"w": codes, "w_scales": RNG.random((rows, B), np.float32), **zeros}


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("level", [0, 4])
def test_what_is_multiplied(tmp_path: Path, bits: int, symmetric: bool, level: int) -> None:
    given = blocks(bits, symmetric)
    node = helper.make_node(
        "MatMulNBits", ["x", *given], ["y"], domain="com.microsoft", K=K, N=N, bits=bits, block_size=BLOCK,
        accuracy_level=level,
    )  # fmt: skip
    x = {"x": np.eye(K, dtype=np.float32)}
    (found,) = read_blocks(save(tmp_path, node, given, x))
    assert (found.weight, found.multiplied, found.bits, found.block) == ("w", True, bits, BLOCK)
    assert found.rounds is (level == 4)
    expected = (
        run(tmp_path, x).T
        if level == 0
        else Subject.open(widen(tmp_path, tmp_path / "t")).session.run(None, x)[0].T
    )
    np.testing.assert_array_equal(found.values(), expected)


def rounded(x: np.ndarray, block: int) -> np.ndarray:
    """Levels of 1/127 of the largest of each block."""
    blocks = np.pad(x, [(0, 0), (0, -x.shape[1] % block)]).reshape(len(x), -1, block)
    scale = np.abs(blocks).max(-1, keepdims=True) / np.float32(127)
    return (np.rint(blocks * (1 / scale)) * scale).reshape(len(x), -1)[:, : x.shape[1]]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("rows", [1, 5])
def test_what_a_kernel_rounds(tmp_path: Path, bits: int, rows: int) -> None:
    """At accuracy level 4: to int8, in the blocks of the weight. The reference is given the same (`replaced`)."""
    given = blocks(bits, False)
    node = helper.make_node(
        "MatMulNBits", ["x", *given], ["y"], domain="com.microsoft", K=K, N=N, bits=bits, block_size=BLOCK,
        accuracy_level=4,
    )  # fmt: skip
    x = RNG.standard_normal((rows, K)).astype(np.float32)
    (found,) = read_blocks(save(tmp_path, node, given, {"x": x}))
    y, weight = run(tmp_path, {"x": x}), found.values().T
    size = np.abs(x @ weight).max()
    assert np.abs(y - rounded(x, BLOCK) @ weight).max() < 1e-6 * size
    assert np.abs(y - x @ weight).max() > 1e-4 * size


@pytest.mark.parity
def test_the_reference_rounds_as_a_kernel() -> None:
    import torch

    from cabochon.parity.replaced import _rounding

    x = RNG.standard_normal((5, K)).astype(np.float32)
    x[2] = 0
    (found,) = _rounding(torch, BLOCK)(None, (torch.tensor(x),))
    x[2] = 1
    expected = rounded(x, BLOCK)
    expected[2] = 0
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_what_is_looked_up(tmp_path: Path, bits: int, symmetric: bool) -> None:
    given = blocks(bits, symmetric)
    codes, *rest = given
    node = helper.make_node(
        "GatherBlockQuantized",
        [codes, "x", *rest],
        ["y"],
        domain="com.microsoft",
        bits=bits,
        block_size=BLOCK,
    )
    given["w"] = given["w"].reshape(N, -1)
    x = {"x": np.arange(N)}
    (found,) = read_blocks(save(tmp_path, node, given, x))
    assert (found.multiplied, found.rounds) == (False, False)
    assert found.values().shape == (N, B * BLOCK)
    np.testing.assert_array_equal(found.values(), run(tmp_path, x))


def test_normal_floats(tmp_path: Path) -> None:
    """Their blocks run over the ends of rows, and the first of two codes is in the high bits."""
    count = -(-N * K // BLOCK)
    given = {"w": RNG.integers(0, 256, N * K // 2, np.uint8), "w_scales": RNG.random(count, np.float32)}
    node = helper.make_node(
        "MatMulBnb4", ["x", *given], ["y"], domain="com.microsoft", K=K, N=N, block_size=BLOCK, quant_type=1
    )
    x = {"x": np.eye(K, dtype=np.float32)}
    (found,) = read_blocks(save(tmp_path, node, given, x))
    np.testing.assert_allclose(found.values(), run(tmp_path, x).T, rtol=1e-6)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("signed", [True, False])
def test_what_is_dequantized_before_it_is_multiplied(tmp_path: Path, bits: int, signed: bool) -> None:
    """Blocks stand down the columns. Fused it rounds what it multiplies; its twin does not."""
    rows = B * BLOCK  # onnx wants whole blocks
    low, high = (-(1 << bits - 1), (1 << bits - 1)) if signed else (0, 1 << bits)
    kind = NIBBLES[bits][signed]
    given: dict[str, Any] = {
        "w": RNG.integers(low, high, (rows, N)),
        "w_scales": RNG.random((B, N), np.float32),
    }
    if not signed:
        given["w_zero_points"] = RNG.integers(low, high, (B, N))
    integers = {"w", "w_zero_points"} & given.keys()
    stored = {
        k: helper.make_tensor(k, kind, v.shape, v.ravel()) if k in integers else v for k, v in given.items()
    }
    node = helper.make_node("DequantizeLinear", list(given), ["d"], axis=0, block_size=BLOCK)
    x = {"x": RNG.standard_normal((3, rows)).astype(np.float32)}
    (found,) = read_blocks(save(tmp_path, node, stored, x, helper.make_node("MatMul", ["x", "d"], ["y"])))
    assert (found.multiplied, found.bits, found.rounds) == (True, bits, True)
    zeros = np.repeat(given.get("w_zero_points", np.zeros((B, N), int)), BLOCK, 0)
    numbers = ((given["w"] - zeros) * np.repeat(given["w_scales"], BLOCK, 0)).astype(np.float32)
    np.testing.assert_array_equal(found.values(), numbers.T)
    exact = x["x"] @ found.values().T
    plain, twin = run(tmp_path, x), Subject.open(widen(tmp_path, tmp_path / "t")).session.run(None, x)[0]
    assert np.abs(twin - exact).max() <= 1e-6 * np.abs(exact).max()
    assert 1e-4 * np.abs(exact).max() < np.abs(plain - exact).max() < 2e-2 * np.abs(exact).max()


def test_a_form_that_is_not_known_is_refused(tmp_path: Path) -> None:
    given = blocks(4, True)
    given["w_zero_points"] = RNG.random((N, B), np.float32)
    node = helper.make_node(
        "MatMulNBits",
        ["x", *given],
        ["y"],
        "named",
        domain="com.microsoft",
        K=K,
        N=N,
        bits=4,
        block_size=BLOCK,
    )
    save(tmp_path, node, given, {"x": np.eye(K, dtype=np.float32)})
    with pytest.raises(
        ParityError, match="MatMulNBits named: an order of groups, or zero points that are no codes"
    ):
        list(read_blocks(tmp_path))


def test_a_data_file_that_is_too_short_is_refused(tmp_path: Path) -> None:
    given = blocks(4, True)
    node = helper.make_node(
        "MatMulNBits", ["x", *given], ["y"], domain="com.microsoft", K=K, N=N, bits=4, block_size=BLOCK
    )
    save(tmp_path, node, given, {"x": np.eye(K, dtype=np.float32)})
    (tmp_path / "w.data").write_bytes(b"short")
    (found,) = read_blocks(tmp_path)
    with pytest.raises(ParityError, match=r"does not hold the tensor w of model\.onnx"):
        found.values()
