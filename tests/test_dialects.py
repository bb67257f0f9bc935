"""What the graphs of the real geometries are made of. Tracing reads no weight, so the weights lie nowhere."""

import json
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from cabochon.dialects import TARGETS
from cabochon.errors import TargetError
from cabochon.gemma4 import expected_shapes, read_text_config, trace_text
from cabochon.gemma4.geometry import frequencies
from cabochon.graph import Stored
from cabochon.recipes import PRECISIONS
from cabochon.recipes.cast import TYPES
from graphs import imagined

GEOMETRIES = Path(__file__).parent / "data" / "geometries"


def traced(target: str, precision: str = "f16", geometry: str = "e2b") -> tuple[object, ir.Model]:
    """Traced once: tests only look at it."""
    return _traced(target, precision, geometry)


@cache
def _traced(target: str, precision: str, geometry: str) -> tuple[object, ir.Model]:
    config = read_text_config(json.loads((GEOMETRIES / f"{geometry}.json").read_text()))
    return config, trace_text(config, imagined(config), TARGETS[target], PRECISIONS[precision])


@pytest.fixture(scope="module", params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return request.param


def operators(model: ir.Model) -> Counter:
    return Counter((node.domain, node.op_type) for node in model.graph)


def stored(model: ir.Model) -> dict[str, Stored]:
    values = model.graph.initializers.values()
    return {v.name: v.const_value for v in values if isinstance(v.const_value, Stored)}


def test_ports_of_e2b(target: str) -> None:
    _, model = traced(target)
    ports = {v.name: (v.dtype.name, str(v.shape)) for v in (*model.graph.inputs, *model.graph.outputs)}
    assert ports["input_ids"] == ("INT64", "[batch,sequence]")
    assert ports["attention_mask"] == ("INT64", "[batch,total_sequence]")
    assert ports["logits_to_keep"] == ("INT64", "[]")
    assert ports["logits"] == ("FLOAT16", "[batch,kept,262144]")
    assert ports["hidden_states.34"] == ("FLOAT16", "[batch,kept,1536]")
    for i in range(15):
        size, prefix = (512, "") if i in (4, 9, 14) else (256, "sliding_")
        for part in ("key", "value"):
            assert ports[f"past_key_values.{i}.{part}"] == (
                "FLOAT16",
                f"[batch,1,{prefix}past_sequence,{size}]",
            )
            assert ports[f"present.{i}.{part}"] == ("FLOAT16", f"[batch,1,{prefix}present_sequence,{size}]")
    assert len(ports) == 3 + 2 + 60


def test_weights_keep_their_names_and_are_stored_once(target: str) -> None:
    config, model = traced(target)
    found, expected = stored(model), expected_shapes(config)
    table = "model.embed_tokens_per_layer.weight"
    if TARGETS[target].dialect.mask == "left-justified":
        shapes = {f"model.embed_tokens_per_layer.{i}.weight": (262144, 256) for i in range(35)}
        expected = {name: shape for name, shape in expected.items() if name != table} | shapes
    if target == "webgpu":  # no binding holds the table of tokens; the per-layer tables just fit one
        del expected["model.embed_tokens.weight"]
        expected |= {f"model.embed_tokens.rows{i * 43690}.weight": (43690, 1536) for i in range(6)}
        expected |= {"model.embed_tokens.rows262140.weight": (4, 1536)}
    assert {name: tuple(t.shape.numpy()) for name, t in found.items()} == expected
    assert sum(t.nbytes for t in found.values()) == 9_257_138_758, "the text decoder, and nothing twice"
    constants = [v for v in model.graph.initializers.values() if v.name not in found]
    assert sum(v.const_value.nbytes for v in constants) < 10_000, "no tables of angles"


def test_the_portable_target_is_pure() -> None:
    _, model = traced("onnx-standard")
    assert {domain for domain, _ in operators(model)} == {""}
    assert dict(model.graph.opset_imports) == {"": 23}


def test_cuda_is_group_query_attention_on_every_layer() -> None:
    config, model = traced("cuda")
    nodes = [node for node in model.graph if node.op_type == "GroupQueryAttention"]
    assert len(nodes) == 35
    for node, layer in zip(nodes, config.layers, strict=True):
        attributes = {a.name: a.value for a in node.attributes.values()}
        assert attributes["scale"] == 1.0, "0 would mean 1 / sqrt(head size)"
        assert attributes["local_window_size"] == (512 if layer.window else -1)
        assert all(v is not None for v in node.inputs)
        empty = node.inputs[1].producer().op_type == "Expand"
        assert empty == layer.shares_kv


@pytest.mark.parametrize("target", ["cuda", "webgpu"])
def test_all_three_outputs_of_the_kernel_are_bound(target: str) -> None:
    """Borrowed keys too: some versions crash otherwise. An output without a name is not bound."""
    _, model = traced(target)
    nodes = [node for node in model.graph if node.op_type == "GroupQueryAttention"]
    assert nodes and all(len({v.name for v in node.outputs if v.name}) == 3 for node in nodes)


def test_webgpu_borrows_with_a_window_in_plain_operators() -> None:
    _, model = traced("webgpu")
    count = operators(model)
    assert count["com.microsoft", "GroupQueryAttention"] == 15 + 4, "owners, and borrowers without a window"
    assert count["", "Softmax"] == 16
    assert ("com.microsoft", "FusedMatMul") not in count and ("", "Attention") not in count


@pytest.mark.parametrize("name", ["cuda", "webgpu"])
def test_no_gather_counts_beyond_an_int32(name: str) -> None:
    _, model = traced(name)
    for node in model.graph:
        for value in node.inputs:
            if value is not None and value.shape is not None and value.is_initializer():
                assert np.prod(value.shape.numpy(), dtype=np.int64) < 2**31, (node.name, value.name)


def test_rejects_bf16_in_a_browser() -> None:
    with pytest.raises(TargetError, match=r"'webgpu' cannot carry 'bf16'.*\n.*f16, f32"):
        traced("webgpu", "bf16")


@pytest.mark.parametrize("precision, scale", [("f32", 39.191837), ("f16", 39.1875), ("bf16", 39.25)])
def test_the_embedding_scale_is_rounded_as_the_reference_rounds_it(precision: str, scale: float) -> None:
    _, model = traced("default", precision)
    assert float(model.metadata_props["cabochon.embed_scale"]) == pytest.approx(scale, rel=1e-7)
    first = next(node for node in model.graph if node.op_type == "Mul")
    assert float(first.inputs[1].const_value.numpy()) == float(model.metadata_props["cabochon.embed_scale"])


def test_what_a_runtime_must_know(target: str) -> None:
    _, model = traced(target)
    known = model.metadata_props
    assert (known["cabochon.target"], known["cabochon.precision"]) == (target, "f16")
    assert known["cabochon.mask"] == ("left-justified" if target in ("cuda", "webgpu") else "anywhere")
    assert (known["cabochon.sliding_window"], known["cabochon.max_positions"]) == ("512", "131072")


def test_proportional_rope_turns_the_first_quarter_of_the_pairs() -> None:
    """Head size 32, factor 1/4: 4 pairs turn, 12 stand still, and the exponent runs over the whole head."""
    config = read_text_config(json.loads((GEOMETRIES.parent / "tiny/text/config.json").read_text()))
    turn = frequencies(config.rope["full_attention"], 32)
    assert turn.dtype == np.float32 and turn.shape == (16,)
    np.testing.assert_allclose(turn[:4], [1e6 ** (-2 * j / 32) for j in range(4)], rtol=1e-6)
    assert not turn[4:].any()
    np.testing.assert_allclose(
        frequencies(config.rope["sliding_attention"], 16), [1e4 ** (-2 * j / 16) for j in range(8)], rtol=1e-6
    )


def test_other_members_trace(target: str) -> None:
    for geometry in ("e4b", "31b"):
        config, model = traced(target, geometry=geometry)
        assert len([v for v in model.graph.outputs if v.name.startswith("present.")]) == 2 * len(
            config.owners
        )


@pytest.mark.parametrize("name", ["cuda", "webgpu"])
def test_a_kernel_wants_head_sizes_in_eights(name: str) -> None:
    raw = json.loads((GEOMETRIES / "e2b.json").read_text())
    raw["text_config"]["head_dim"] = 252
    config = read_text_config(raw)
    with pytest.raises(TargetError, match="multiples of 8; this model has 252"):
        trace_text(config, imagined(config), TARGETS[name], PRECISIONS["f16"])
    trace_text(config, imagined(config), TARGETS["default"], PRECISIONS["f16"])


# What must be f32 in every precision: angles, softmax, the statistics of norms


def made_by(model: ir.Model, op: str) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type == op]


def test_angles_are_f32_up_to_their_cosine(target: str) -> None:
    _, model = traced(target, "f16")
    for op in ("Cos", "Sin"):
        nodes = made_by(model, op)
        assert len(nodes) == 2 * 2, "two kinds of layers, all positions and the kept ones"
        for node in nodes:
            angle = node.inputs[0]
            assert angle.dtype == ir.DataType.FLOAT
            assert [v.dtype for v in angle.producer().inputs] == [ir.DataType.FLOAT] * 2
            position = angle.producer().inputs[0].producer().inputs[0].producer()
            assert position.op_type == "Cast" and position.inputs[0].dtype == ir.DataType.INT64


def test_the_softmax_is_f32(target: str) -> None:
    _, model = traced(target, "f16")
    attention = made_by(model, "Attention")
    for node in attention:
        assert node.attributes["softmax_precision"].value == int(ir.DataType.FLOAT)
        assert node.attributes["scale"].value == 1.0
    softmax = made_by(model, "Softmax")
    assert all(node.inputs[0].dtype == ir.DataType.FLOAT for node in softmax)
    kernels = made_by(model, "GroupQueryAttention")  # sums in f32 by itself
    assert len(attention) + len(softmax) + len(kernels) == 35


def test_norms_are_one_operator_with_statistics_in_f32(target: str) -> None:
    _, model = traced(target, "f16")
    norms = made_by(model, "RMSNormalization")
    per_layer, owned = (
        4 + 1 + 1,
        2,
    )  # four norms, one behind the per-layer input, queries; owners: keys and values
    assert len(norms) == 35 * per_layer + 15 * owned + 2
    assert all("stash_type" not in node.attributes for node in norms), "the default is f32"
    assert not {"ReduceMean", "Sqrt", "Pow"} & {node.op_type for node in model.graph}


# No second copy of a weight when a session loads


@pytest.mark.parametrize("name", ["default", "cuda"])
def test_no_weight_is_transposed_when_a_session_loads(name: str) -> None:
    _, model = traced(name)
    for node in made_by(model, "Transpose"):
        assert not node.inputs[0].is_initializer(), node.name
    table = next(v for v in model.graph.initializers.values() if v.name == "model.embed_tokens.weight")
    assert sorted(node.op_type for node in table.consumers()) == ["FusedMatMul", "Gather"]


def test_a_target_that_lacks_kernels_says_so() -> None:
    for target in TARGETS.values():
        assert target.kernels <= target.precisions
        for precision in TYPES:
            assert precision in target.kernels or target.caveats[precision]


def test_a_row_says_what_its_dialect_does_with_the_mask():
    """The rows are read where importing the dialects would take too long."""
    assert {t.name: t.mask for t in TARGETS.values()} == {t.name: t.dialect.mask for t in TARGETS.values()}
