"""NF4, judged by the kernel that reads it."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from cabochon.packing import Packed, Scheme, kernel, pack, unpack
from cabochon.packing.nf4 import TABLE

NF4 = Scheme("nf4", 4, 64, True, "f32")
COLUMNS, ROWS = 96, 6  # a block crosses from one row into the next


def multiplied(packed: Packed, fed: np.ndarray) -> np.ndarray:
    """`fed` [n, COLUMNS] by the transpose of what is packed, in onnxruntime's MatMulBnb4."""
    node = helper.make_node(
        "MatMulBnb4", ["a", "b", "absmax"], ["y"], domain="com.microsoft",
        K=COLUMNS, N=ROWS, block_size=64, quant_type=1,
    )  # fmt: skip
    weights = [
        onnx.numpy_helper.from_array(packed.codes, "b"),
        onnx.numpy_helper.from_array(packed.scales, "absmax"),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("a", "y")]
    graph = helper.make_graph([node], "g", ports[:1], ports[1:], weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return ort.InferenceSession(model.SerializeToString()).run(None, {"a": fed})[0]


def test_onnxruntime_reads_what_is_unpacked() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((ROWS, COLUMNS), np.float32)
    packed = pack(values, NF4)
    assert packed.codes.shape == (ROWS * COLUMNS // 2,)
    assert packed.scales.shape == (ROWS * COLUMNS // 64,)
    np.testing.assert_allclose(
        multiplied(packed, np.eye(COLUMNS, dtype=np.float32)).T, unpack(packed, NF4, COLUMNS), atol=1e-7
    )


@pytest.mark.parametrize("compiled", [True, False])
def test_every_number_gets_the_nearest_entry(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(kernel, "loaded", lambda: None)
    values = np.random.default_rng(1).standard_t(4, (8, 100)).astype(np.float32)
    found = unpack(pack(values, NF4), NF4, 100)
    flat = np.zeros(832, np.float32)
    flat[:800] = values.reshape(-1)
    blocks = flat.reshape(-1, 64)
    entries = TABLE * np.abs(blocks).max(1)[:, None, None]
    nearest = np.abs(entries - blocks[..., None]).min(-1).reshape(-1)[:800]
    assert np.abs(np.abs(found - values).reshape(-1) - nearest).max() < 1e-6


@pytest.mark.parametrize("compiled", [True, False])
def test_blocks_that_the_table_holds_come_back(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(kernel, "loaded", lambda: None)
    values = np.concatenate([np.zeros(64), np.tile(TABLE, 4) * 3, np.full(64, -0.5)]).astype(np.float32)
    packed = pack(values[None], Scheme("nf4", 4, 64, True))
    np.testing.assert_array_equal(unpack(packed, NF4, 192), values[None])
    assert packed.codes[:32].tolist() == [0x77] * 32, "7 is the code of 0"
    assert packed.codes[32:34].tolist() == [0x01, 0x23], "the first of two is the high half"
