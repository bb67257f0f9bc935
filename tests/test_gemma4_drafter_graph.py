"""What the graphs of drafters are made of. Tracing reads no weight, so those of the real geometries lie nowhere."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import checkpoints
from cabochon.dialects import TARGETS
from cabochon.errors import TargetError
from cabochon.gemma4 import DrafterConfig, drafter_shapes, drafter_weights, read_drafter_config, trace_drafter
from cabochon.graph import Stored
from cabochon.kernels import PROVIDERS
from cabochon.recipes import PRECISIONS
from cabochon.recipes.cast import TYPES
from drafters import ORDERING, imagined, traced

GEOMETRIES = Path(__file__).parent / "data" / "geometries"
BYTES = {"e2b": 157_559_816, "e4b": 159_132_680, "26b-a4b": 839_422_472, "31b": 939_037_192}
TINY = checkpoints.TINY / "assistant"


def config(geometry: str) -> DrafterConfig:
    return read_drafter_config(json.loads((GEOMETRIES / f"{geometry}-assistant.json").read_text()))


def real(geometry: str, target: str, precision: str = "f16") -> ir.Model:
    read = config(geometry)
    return trace_drafter(read, imagined(read), TARGETS[target], PRECISIONS[precision])


def stored(model: ir.Model) -> dict[str, Stored]:
    values = model.graph.initializers.values()
    return {v.name: v.const_value for v in values if isinstance(v.const_value, Stored)}


def operators(model: ir.Model) -> Counter[tuple[str, str]]:
    return Counter((node.domain, node.op_type) for node in model.graph)


@pytest.mark.parametrize("target", TARGETS)
def test_ports_of_e2b(target: str) -> None:
    """Nothing is owned: no past, no present."""
    model = real("e2b", target)
    assert [(v.name, v.dtype.name, str(v.shape)) for v in model.graph.inputs] == [
        ("inputs_embeds", "FLOAT16", "[batch,sequence,3072]"),
        ("attention_mask", "INT64", "[batch,kv_sequence]"),
        ("shared_kv.full_attention.key", "FLOAT16", "[batch,1,kv_sequence,512]"),
        ("shared_kv.full_attention.value", "FLOAT16", "[batch,1,kv_sequence,512]"),
        ("shared_kv.sliding_attention.key", "FLOAT16", "[batch,1,sliding_kv_sequence,256]"),
        ("shared_kv.sliding_attention.value", "FLOAT16", "[batch,1,sliding_kv_sequence,256]"),
    ]
    assert [(v.name, v.dtype.name, str(v.shape)) for v in model.graph.outputs] == [
        ("logits", "FLOAT16", "[batch,sequence,262144]"),
        ("projected_state", "FLOAT16", "[batch,sequence,1536]"),
    ]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("geometry", BYTES)
def test_weights_keep_their_names_and_are_stored_once(geometry: str, target: str) -> None:
    """As many bytes as the published files have: no tables of angles, no second table for the head."""
    read, model = config(geometry), real(geometry, target)
    found = stored(model)
    assert {name: tuple(t.shape.numpy()) for name, t in found.items()} == drafter_shapes(read)
    assert sum(t.nbytes for t in found.values()) == BYTES[geometry]
    constants = [v.const_value for v in model.graph.initializers.values() if v.name not in found]
    assert sum(tensor.nbytes for tensor in constants) < 5_000
    recipes = list(drafter_weights(imagined(read), PRECISIONS["f16"]))
    assert {(r.name, r.shape, r.nbytes) for r in recipes} == {
        (name, tuple(t.shape.numpy()), t.nbytes) for name, t in found.items()
    }


@pytest.mark.parametrize("precision", TYPES)
def test_ids_are_stored_as_they_are(precision: str) -> None:
    ordering = stored(traced(TINY, "default", precision))[ORDERING]
    tensor = ordering.sources[0]
    assert ordering.dtype == ir.DataType.INT64
    assert ordering.span == (tensor.file, tensor.offset)
    assert np.array_equal(ordering.numpy(), tensor.array())


def test_the_portable_target_is_pure() -> None:
    model = real("e2b", "onnx-standard")
    assert {domain for domain, _ in operators(model)} == {""}
    assert dict(model.graph.opset_imports) == {"": 23}
    assert operators(model)["", "Attention"] == 4


@pytest.mark.parametrize("target", ["cuda", "webgpu"])
@pytest.mark.parametrize("precision", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("geometry", ["e2b", "31b"])
def test_where_kernels_are_wrong_attention_is_written_out(target: str, precision: str, geometry: str) -> None:
    """Every node that computes with floats has a kernel of its provider, as the tables say."""
    if precision not in TARGETS[target].precisions:
        with pytest.raises(TargetError, match="WebGPU has no bf16 type"):
            real(geometry, target, precision)
        return
    model = real(geometry, target, precision)
    assert not any("Attention" in op for _, op in operators(model))
    assert operators(model)["", "Softmax"] == 4
    known = dict(PROVIDERS[TARGETS[target].provider].floats)
    known["", "CastLike"] = known["", "Cast"]  # a function that is made of it
    for node in model.graph:
        types = {v.dtype.numpy().name for v in (*node.inputs, *node.outputs) if v is not None}
        floats = {name for name in types if "float" in name}
        assert floats <= known.get((node.domain, node.op_type), frozenset()), (node.op_type, floats)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("checkpoint", ["assistant", "assistant-dense"])
@pytest.mark.parametrize("precision", TYPES)
def test_graphs_are_valid_in_every_precision(target: str, checkpoint: str, precision: str) -> None:
    """bf16 too, which onnxruntime cannot run on a CPU."""
    if precision in TARGETS[target].precisions:
        proto = ir.to_proto(traced(checkpoints.TINY / checkpoint, target, precision))
        onnx.checker.check_model(proto, full_check=True)
        assert proto.ir_version == 11


def test_what_a_runtime_must_know() -> None:
    found: dict[str, Any] = dict(real("e2b", "webgpu").metadata_props)
    assert found == {
        "cabochon.model": "drafter",
        "cabochon.target": "webgpu",
        "cabochon.precision": "f16",
        "cabochon.mask": "anywhere",
        "cabochon.max_positions": "131072",
        "cabochon.sliding_window": "512",
        "cabochon.backbone_hidden_size": "1536",
    }


def test_the_unified_drafter_is_traced() -> None:
    model = real("12b", "cuda", "bf16")
    assert str(model.graph.outputs[1].shape) == "[batch,sequence,3840]"
    assert ("", "TopK") not in operators(model)
