"""Graphs of onnx-standard are what the name says: ai.onnx all the way down, to ONNX's checker, to its shape inference,
and to the evaluator in NumPy that defines what its operators mean."""

import shutil
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import FunctionProto, ModelProto, NodeProto, TypeProto, defs, helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import checkpoints
import drafters
import quantized
from cabochon.checkpoint import Tensor
from cabochon.dialects import TARGETS
from cabochon.gemma4 import (
    expected_shapes,
    read_drafter_config,
    read_full_config,
    read_text_config,
    text_tensors,
    trace_drafter,
    trace_full,
    trace_text,
)
from cabochon.gemma4.full_names import tower_shapes
from cabochon.graph import Stored
from cabochon.package.token_embedding import token_embedding
from cabochon.parity.dequantized import read_dequantized
from full_graphs import Truth, picture
from graphs import Oracle, difference, imagined
from packages import TINY, Packages

TARGET = TARGETS["onnx-standard"]
CARRIED = ("f32", "f16", "bf16", "Q8", "Q4_K_M", "Q4_K_M-mixed", "Q4_K_M-uniform")
EXACT, ROUNDED = 1e-4, 2e-3
DEEP = 8  # functions inside of functions


@cache
def graphs(kind: str, precision: str) -> Mapping[str, ModelProto]:
    """The graphs of a kind of model by component, with their weights as inputs: of no weight a byte is read."""
    stored = quantized.precision(precision, TARGET.name)
    if kind == "drafter":
        config = read_drafter_config(checkpoints.tiny_config("assistant"))
        return {"drafter": proto(trace_drafter(config, drafters.imagined(config), TARGET, stored))}
    if kind == "full":
        whole = read_full_config(checkpoints.tiny_config("target"))
        shapes = expected_shapes(whole.text) | tower_shapes(whole)
        made = trace_full(whole, {name: nowhere(name, s) for name, s in shapes.items()}, TARGET, stored)
        return {name: proto(model) for name, model in made.items()}
    text = read_text_config(checkpoints.tiny_config(kind))
    decoder = trace_text(text, text_tensors(imagined(text), text).used, TARGET, stored)
    lookup = token_embedding(ir.to_proto(held(decoder)), "", text.hidden)
    return {"decoder": proto(decoder), "token_embedding": fed(lookup)}


def nowhere(name: str, shape: tuple[int, ...]) -> Tensor:
    return Tensor(name, "BF16", shape, Path("nowhere.safetensors"), 0, 0)


def held(model: ir.Model) -> ir.Model:
    """The model whose weights are said to lie in a file, where nobody looks."""
    for value in model.graph.initializers.values():
        if isinstance(value.const_value, Stored):
            stored = value.const_value
            value.const_value = ir.ExternalTensor(
                "nowhere", 0, 1, stored.dtype, shape=stored.shape, name=value.name or "", base_dir="/nowhere"
            )
    return model


def proto(model: ir.Model) -> ModelProto:
    return fed(ir.to_proto(held(model)))


def fed(made: ModelProto) -> ModelProto:
    """The model with its weights as inputs."""
    given = {value.name for value in made.graph.input}
    weights = [t for t in made.graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL]
    for tensor in weights:
        made.graph.initializer.remove(tensor)
        if tensor.name not in given:
            made.graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )
    return made


FULL = (*CARRIED[:3], "Q8", "Q4_K_M")  # whose other mixes differ in the decoder, which is that of text
EVERY = [(kind, name) for kind in ("text", "drafter") for name in CARRIED] + [("full", name) for name in FULL]
EVERY += [("moe", name) for name in ("f16", "Q8", "Q4_K_M")]  # experts, in the body of a loop
POLICIES = ("policies", "f32")


def models(kind: str, precision: str, packages: Packages) -> Iterator[tuple[str, ModelProto]]:
    if kind == "policies":
        files = sorted((packages("tiny", "onnx-standard", "f32") / "policies").iterdir())
        assert files
        yield from ((file.stem, onnx.load(file)) for file in files)
    else:
        yield from graphs(kind, precision).items()


def nodes(of: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Every node, those of bodies included."""
    for node in of:
        yield node
        for attribute in node.attribute:
            for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from nodes(graph.node)


def expanded(
    node: NodeProto, opset: int, types: Mapping[str, TypeProto], depth: int = 0
) -> Iterator[NodeProto]:
    """The nodes of the function that ONNX defines an operator by, and of those of its nodes; none for a primitive."""
    schema = defs.get_schema(node.op_type, opset, "")
    if schema.has_function:
        body = schema.function_body
    elif schema.has_context_dependent_function and all(name in types for name in node.input if name):
        given = [types.get(name, TypeProto()).SerializeToString() for name in node.input]
        body = FunctionProto.FromString(
            schema.get_context_dependent_function(node.SerializeToString(), given)
        )
    else:
        return
    assert depth < DEEP
    inner = {i.domain: i.version for i in body.opset_import}
    for each in nodes(body.node):
        yield each
        yield from expanded(each, inner.get("", opset), {}, depth + 1)


@pytest.mark.parametrize("kind, precision", [*EVERY, POLICIES])
def test_every_operator_is_one_of_ai_onnx_and_so_is_what_it_is_made_of(
    kind: str, precision: str, packages: Packages
) -> None:
    made = 0
    for name, model in models(kind, precision, packages):
        assert not model.functions and {entry.domain for entry in model.opset_import} == {""}, name
        opset = model.opset_import[0].version
        found = [*nodes(model.graph.node)]
        types = {v.name: v.type for v in (*model.graph.value_info, *model.graph.input, *model.graph.output)}
        bodies = [each for node in found for each in expanded(node, opset, types)]
        made += len(bodies)
        assert {node.domain for node in (*found, *bodies)} <= {"", "ai.onnx"}, name
        for node in found:
            assert defs.get_schema(node.op_type, opset, "").support_level == defs.OpSchema.SupportType.COMMON
    assert made > 100 or kind == "policies"


@pytest.mark.parametrize("kind, precision", [*EVERY, POLICIES])
def test_the_checker_passes_and_inference_finds_what_is_declared(
    kind: str, precision: str, packages: Packages
) -> None:
    for name, model in models(kind, precision, packages):
        onnx.checker.check_model(model, full_check=True)
        made = {value for node in model.graph.node for value in node.output}
        values = (*model.graph.value_info, *model.graph.output)
        said = {v.name: v.type.tensor_type for v in values if v.name in made}
        found = inferred(model)
        assert said.keys() <= found.keys(), name
        for value, declared in said.items():
            assert declared.elem_type == found[value].elem_type, (name, value)
            ours, theirs = dims(declared), dims(found[value])
            if ours is not None and theirs is not None:  # inference has no rank for the presents of Attention
                assert len(ours) == len(theirs), (name, value)
                assert all(map(agree, ours, theirs)), (name, value, ours, theirs)


def agree(declared: int | str | None, found: int | str | None) -> bool:
    """A name may be declared where inference has a number: of a cache that is empty, as of one that grows."""
    return found in (declared, None) or declared is None or (isinstance(declared, str) and found == 0)


def inferred(model: ModelProto) -> dict[str, Any]:
    """The types that ONNX infers from the inputs alone."""
    bare = ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for output in bare.graph.output:
        output.type.tensor_type.ClearField("shape")
    made = onnx.shape_inference.infer_shapes(bare, check_type=True, strict_mode=True, data_prop=True)
    return {v.name: v.type.tensor_type for v in (*made.graph.value_info, *made.graph.output)}


def dims(tensor: Any) -> list[int | str | None] | None:
    """Numbers and names; None for what inference made up a name for."""
    if not tensor.HasField("shape"):
        return None
    said = [d.dim_value if d.HasField("dim_value") else d.dim_param for d in tensor.shape.dim]
    return [None if d == "" or str(d).startswith("unk__") else d for d in said]


def ordered(session: ort.InferenceSession) -> list[str]:
    return [output.name for output in session.get_outputs()]


def exactly(file: Path) -> ort.InferenceSession:
    """onnxruntime as it runs the graph that stands there: nothing is fused, no activations are rounded."""
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(file, options, providers=["CPUExecutionProvider"])


class Loop(OpRun):
    """Loop of ai.onnx as the specification has it. That of the evaluator (onnx 1.23) takes a condition that is left out
    for false, and puts what is scanned behind each other instead of on top."""

    def need_context(self) -> bool:
        return True

    def _run(self, trips, on, *carried, context=None, body=None, attributes=None, **_):  # type: ignore[no-untyped-def]
        on, state, scanned = True if on is None else on, list(carried), list[Any]()
        outer, names = {**(context or {})}, self.body.input_names
        for trip in range(int(trips)):
            if not on:
                break
            feeds = dict(zip(names, [np.array(trip), np.array(on), *state], strict=True))
            on, *made = self._run_body({**outer, **feeds}, attributes=attributes)
            state, rest = made[: len(state)], made[len(state) :]
            scanned.append(rest)
        return tuple([*state, *(np.stack(column) for column in zip(*scanned, strict=True))])


def empty_caches() -> dict[str, np.ndarray]:
    """Of the tiny text model."""
    sizes = {i: 32 if i == 4 else 16 for i in range(6)}
    return {
        f"past_key_values.{i}.{half}": np.zeros((1, 1, 0, size), np.float32)
        for i, size in sizes.items()
        for half in ("key", "value")
    }


def test_the_evaluator_in_numpy_says_what_the_oracle_says(packages: Packages) -> None:
    """A prefill beyond the window and a step over its caches."""
    file = packages("tiny", "onnx-standard", "f32") / "model.onnx"
    evaluator, truth = ReferenceEvaluator(str(file)), Oracle(TINY / "text")
    ids = np.random.default_rng(3).integers(24, 512, 12)
    caches = empty_caches()
    expected, hidden = truth.run(ids)
    for span in (slice(0, 11), slice(11, 12)):
        mask = np.ones((1, span.stop), np.int64)
        feeds = {
            "input_ids": ids[None, span],
            "attention_mask": mask,
            "logits_to_keep": np.array(0),
            **caches,
        }
        made = dict(zip(evaluator.output_names, evaluator.run(None, feeds), strict=True))
        assert difference(made["logits"][0], expected[span]) <= EXACT
        assert difference(made["hidden_states.9"][0], hidden[span]) <= EXACT
        caches = {name: made[name.replace("past_key_values", "present")] for name in caches}


def test_and_of_weights_in_blocks_what_it_says_of_their_values(packages: Packages) -> None:
    """But for rows of tables, which the graph rounds to f16. (onnxruntime's CPU provider keeps them in f32.)"""
    file, ids = packages("tiny", "onnx-standard", "Q4_K_M") / "model.onnx", np.arange(30, 41)
    truth = Oracle(TINY / "text")
    truth.weights = quantized.Stand(truth.weights, read_dequantized(file))
    evaluator = ReferenceEvaluator(str(file))
    feeds = {
        "input_ids": ids[None],
        "attention_mask": np.ones((1, 11), np.int64),
        "logits_to_keep": np.array(0),
    }
    made = evaluator.run(["logits", "hidden_states.9"], feeds | empty_caches())
    for found, expected in zip(made, truth.run(ids), strict=True):
        assert difference(found[0], expected) <= ROUNDED


def test_and_of_a_drafter_what_its_oracle_says() -> None:
    folder = TINY / "assistant"
    truth, rng = drafters.Truth(folder), np.random.default_rng(5)
    shared, inputs = truth.keys(rng, 14), rng.standard_normal((1, 1, 2 * truth.backbone)).astype(np.float32)
    feeds: dict[str, Any] = {"inputs_embeds": inputs, "attention_mask": np.ones((1, 14), np.int64)}
    for kind, pair in shared.items():
        feeds |= {f"shared_kv.{kind}.{half}": v for half, v in zip(("key", "value"), pair, strict=True)}
    evaluator = ReferenceEvaluator(ir.to_proto(drafters.traced(folder, "onnx-standard")))
    found = evaluator.run(["logits", "projected_state"], feeds)
    for ours, theirs in zip(found, truth.step(inputs[0, 0], shared), strict=True):
        assert difference(ours[0, 0], theirs) <= EXACT


def test_of_a_full_package_the_checker_and_the_evaluator(packages: Packages, tmp_path: Path) -> None:
    """On the disk, with its weights. ONNX refuses files with two names, such as the table of tokens: of a copy."""
    copy = shutil.copytree(packages("tiny-full", "onnx-standard", "f32"), tmp_path / "package")
    truth, rng = Truth(TINY / "target"), np.random.default_rng(6)
    pixels, places = (np.stack(each) for each in zip(*[picture(truth, 6, 9, i) for i in (0, 1)], strict=True))
    rows = lambda count: rng.standard_normal((count, 64)).astype(np.float32)  # noqa: E731
    ids = np.concatenate(
        [np.full(3, truth.tokens["image"]), rng.integers(24, 512, 5), [truth.tokens["audio"]]]
    )
    feeds: dict[str, dict[str, np.ndarray]] = {
        "embedding": {"input_ids": ids[None], "image_features": rows(3), "audio_features": rows(1)},
        "vision_encoder": {"pixel_values": pixels, "pixel_position_ids": places},
        "audio_encoder": {
            "input_features": rng.standard_normal((2, 40, 16)).astype(np.float32),
            "input_features_mask": np.arange(40) < np.array([[40], [29]]),
        },
    }
    for name in ("decoder", *feeds):
        file = copy / name / "model.onnx"
        onnx.checker.check_model(str(file), full_check=True)
        if name in feeds:
            session = exactly(file)
            expected = session.run(None, feeds[name])
            found = ReferenceEvaluator(str(file), new_ops=[Loop]).run(ordered(session), feeds[name])
            for ours, theirs in zip(expected, found, strict=True):
                assert difference(theirs, ours) <= EXACT, name
