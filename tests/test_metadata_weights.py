"""In which precisions a graph holds its weights, and what the contract says of it."""

from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from cabochon.metadata.document import Quantization
from cabochon.metadata.weights import Weights, quantization, quantization_note, read_weights, rows, whole

LAYER = "model.layers.3.mlp.up_proj.weight"
MS = "com.microsoft"


def outside(name: str, kind: int, *shape: int) -> TensorProto:
    """A weight that lies somewhere else; one that two names share begins at the same byte."""
    tensor = TensorProto(name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="model.onnx.data")
    return tensor


def held(nodes: list[onnx.NodeProto], *weights: TensorProto) -> Weights:
    """What a graph of these nodes holds."""
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MS, 1)]
    graph = helper.make_graph(nodes, "stub", [], [], list(weights))
    return read_weights(ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10)))


def node(kind: str, *inputs: str, out: str = "y", domain: str = "", **said: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, [out], domain=domain, **said)


U8, U4, F16 = TensorProto.UINT8, TensorProto.UINT4, TensorProto.FLOAT16
SCALES, POINTS = (
    outside(f"{LAYER}_{name}", kind, 64, 2) for name, kind in (("scales", F16), ("zero_points", U8))
)


@pytest.mark.parametrize(("nodes", "codes", "precision"), [
    ([node("MatMulNBits", "x", LAYER, f"{LAYER}_scales", domain=MS, bits=4, K=64, N=64)], (LAYER, U8, 64, 2, 16),
     "int4"),
    ([node("MatMulNBits", "x", f"{LAYER}_blocks", f"{LAYER}_scales", domain=MS, bits=8, K=64, N=32)],
     (f"{LAYER}_blocks", U8, 64, 2, 32), "int8"),
    ([node("GatherBlockQuantized", LAYER, "ids", f"{LAYER}_scales", domain=MS)], (LAYER, U8, 64, 32), "int4"),
    ([node("MatMulBnb4", "x", LAYER, f"{LAYER}_scales", domain=MS, quant_type=1)], (LAYER, U8, 2048), "nf4"),
    ([node("DequantizeLinear", LAYER, f"{LAYER}_scales", axis=0, block_size=32)], (LAYER, U4, 64, 64), "int4"),
    ([node("DequantizeLinear", LAYER, f"{LAYER}_scales", axis=0, block_size=32)], (LAYER, U8, 64, 64), "int8"),
    ([node("Gather", LAYER, "ids", out="bytes"), node("BitShift", "bytes", "four", direction="RIGHT")],
     (LAYER, U8, 64, 32), "int4"),
    ([node("Gather", LAYER, "ids", out="bytes"), node("CastLike", "bytes", "x")], (LAYER, U8, 64, 64), "int8"),
])  # fmt: skip
def test_precisions_are_those_that_operators_read(nodes: Any, codes: Any, precision: str):
    found = held(nodes, SCALES, outside(*codes), POINTS)
    nbytes = 4096 if precision == "int8" else 2048
    assert found.layers == {3: {precision: 8 * nbytes // (8 if precision == "int8" else 4)}}
    assert found.quantized


def test_two_sights_of_the_same_bytes_are_one_weight():
    nodes = [
        node("GatherBlockQuantized", LAYER, "ids", f"{LAYER}_scales", domain=MS, bits=4),
        node("MatMulNBits", "x", f"{LAYER}_blocks", f"{LAYER}_scales", out="z", domain=MS, bits=4),
    ]
    found = held(nodes, outside(LAYER, U8, 64, 32), outside(f"{LAYER}_blocks", U8, 64, 2, 16), SCALES, POINTS)
    assert found.layers == {3: {"int4": 4096}}


def test_floats_have_their_type_ids_and_what_is_in_the_graph_do_not_count():
    weights = (
        outside("model.norm.weight", F16, 64),
        outside("masked_embedding.token_ordering", TensorProto.INT64, 512),
        helper.make_tensor("number", TensorProto.FLOAT, [], [8.0]),
    )
    found = held([node("Mul", "model.norm.weight", "number")], *weights)
    assert found.layers == {None: {"float16": 64}} and not found.quantized


@pytest.mark.parametrize(("name", "of"), [
    (LAYER, LAYER), (f"{LAYER}_blocks", LAYER), (f"{LAYER}_bytes", LAYER), (f"{LAYER}_scales", ""),
    (f"{LAYER}_zero_points", ""), (f"{LAYER}_zero_points_bytes", ""), ("input_min", "input_min"),
])  # fmt: skip
def test_what_an_initializer_is_a_sight_of(name: str, of: str):
    assert whole(name) == of


@dataclass(frozen=True)
class Holder:
    name: str
    weights: Weights


def said(**graphs: dict[int | None, dict[str, int]]) -> Any:
    found = quantization(Holder(name, Weights(layers)) for name, layers in graphs.items())
    return None if found is None else found.model_dump(exclude_none=True)


def override(precision: str, component: str, *layers: int) -> dict[str, Any]:
    return {"component": component, "precision": precision} | ({"layers": layers} if layers else {})


@pytest.mark.parametrize(("graphs", "expected"), [
    ({"decoder": {0: {"float16": 9}}}, None),
    ({}, None),
    ({"decoder": {None: {"int4": 5, "float16": 1}, 0: {"int4": 9}}}, {"default": "int4"}),
    ({"decoder": {None: {"int4": 5}}, "audio_encoder": {0: {"int8": 4, "float16": 1}}, "nothing": {}},
     {"default": "int4", "overrides": (override("int8", "audio_encoder"),)}),
    # tables that outweigh all layers together
    ({"decoder": {None: {"float16": 50}, 0: {"int4": 9, "float16": 1}, 1: {"int4": 9}}},
     {"default": "float16", "overrides": (override("int4", "decoder", 0, 1),)}),
    ({"decoder": {0: {"int4": 9}, 1: {"int4": 9}, 2: {"int8": 5}}, "drafter": {0: {"float16": 3}}},
     {"default": "int4", "overrides": (override("int8", "decoder", 2), override("float16", "drafter"))}),
])  # fmt: skip
def test_the_default_is_what_most_weights_are_and_overrides_are_where_it_differs(graphs: Any, expected: Any):
    assert said(**graphs) == expected


def test_the_note_says_what_the_format_has_no_keys_for():
    first, *others = quantization_note(Quantization(default="int4"))
    assert first == "int4: what most weights are stored as, counted in the graphs."
    assert "no keys for blocks, zero points, scales and roles" in others[0]


CENTROIDS = "masked_embedding.centroids.weight"


@pytest.mark.parametrize(("nodes", "kind", "shape"), [
    ([node("FusedMatMul", "x", CENTROIDS, domain=MS, transB=1)], F16, (32, 64)),
    ([node("Transpose", CENTROIDS, perm=[1, 0])], F16, (32, 64)),
    ([node("MatMulNBits", "x", CENTROIDS, "s", domain=MS, bits=4, K=64, N=32, block_size=32)], U8, (32, 2, 16)),
    ([node("MatMulBnb4", "x", CENTROIDS, "s", domain=MS, K=64, N=32, block_size=64, quant_type=1)], U8, (1024,)),
    ([node("DequantizeLinear", CENTROIDS, "s", axis=0, block_size=32)], U4, (64, 32)),
])  # fmt: skip
def test_the_rows_of_a_product_are_the_same_however_they_are_stored(
    nodes: Any, kind: int, shape: tuple[int, ...]
):
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MS, 1)]
    graph = helper.make_graph(nodes, "stub", [], [], [outside(CENTROIDS, kind, *shape)])
    model = ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    assert rows(model.graph.initializers[CENTROIDS]) == 32
