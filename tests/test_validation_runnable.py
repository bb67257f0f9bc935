"""Rules on running: kernels of the provider of the target, and its limits."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from broken import Break, all_of, check, edit_bytes, edit_graph
from cabochon.validation.graph import Graph, read_graph
from cabochon.validation.registry import Typed, element_types, runs, typed
from packages import Packages
from test_validation_attention import attention, attribute

OURS = {"quick": True, "select": ("RUN",)}
DEFAULT, CUDA, WEBGPU = ("tiny", "default", "f16"), ("tiny", "cuda", "f16"), ("tiny", "webgpu", "f32")
Proto = onnx.ModelProto
How = Callable[[Path], object]


def operator(old: str, new: str, domain: str = "") -> How:
    """One operator for another, in every node that has it."""

    def change(proto: Proto) -> None:
        for node in proto.graph.node:
            if node.op_type == old:
                node.op_type, node.domain = new, domain

    return edit_graph(change)


def fewer_outputs(proto: Proto) -> None:
    found = attention(proto, 6)
    del found.output[1:]


def requires(version: str) -> How:
    return edit_bytes("runtime-requirements.txt", lambda old: old + f"onnxruntime=={version}\n".encode())


def enormous(proto: Proto) -> None:
    """The per-layer table of a whole model as one: 2.35e9 elements. Nothing of it is read."""
    table = next(t for t in proto.graph.initializer if t.name == "model.embed_tokens_per_layer.0.weight")
    table.dims[:] = [262144, 8960]


def large(proto: Proto) -> None:
    """A table of 256 MiB."""
    table = next(t for t in proto.graph.initializer if t.name == "model.embed_tokens.weight")
    table.dims[:] = [262144, 256]


def head_of_12(proto: Proto) -> None:
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        if value.name in ("past_key_values.0.key", "present.0.key"):
            value.type.tensor_type.shape.dim[3].dim_value = 12


def borrowed_with_window(proto: Proto) -> None:
    """The last layer, a borrower, is a full one: give it the window of the sliding ones."""
    found = attention(proto, 9)
    for entry in found.attribute:
        if entry.name == "local_window_size":
            entry.i = 8


def rotary_cache(proto: Proto) -> None:
    """The kernel rotates, with cosines and sines that are wider than half a head."""
    found = attention(proto, 0)
    for name in ("cos", "sin"):
        proto.graph.initializer.append(numpy_helper.from_array(np.zeros((4096, 16), np.float16), name))
    found.input.extend(["cos", "sin"])
    found.attribute.append(helper.make_attribute("do_rotary", 1))


def one_unknown(proto: Proto) -> None:
    """An operator that could not be asked for when the table was made."""
    node = next(n for n in proto.graph.node if n.op_type == "Tanh")
    node.op_type = "Optional"


BREAKS = (
    Break(
        "an operator that there is not",
        operator("FastGelu", "Gelu3", "com.microsoft"),
        {"RUN001"},
        DEFAULT,
        options=OURS,
    ),
    Break(
        "an operator of CUDA alone",
        operator("FusedMatMul", "MatMulBlockQuantizedFp4Weight", "com.microsoft"),
        {"RUN001", "RUN005"},
        DEFAULT,
        options=OURS,
    ),
    Break("bf16 on the CPU", lambda package: None, {"RUN002"}, ("tiny", "default", "bf16"), options=OURS),
    Break("f32 on CUDA", lambda package: None, {"RUN002"}, ("tiny", "cuda", "f32"), options=OURS),
    Break(
        "products that WebGPU has no kernel for",
        operator("MatMul", "FusedMatMul", "com.microsoft"),
        {"RUN003"},
        WEBGPU,
        options=OURS,
    ),
    Break("an operator of which nothing is known", edit_graph(one_unknown), {"RUN004"}, WEBGPU, options=OURS),
    Break(
        "an attribute that the kernel does not know",
        attribute(0, rotary_embedding_dim=8),
        {"RUN005"},
        CUDA,
        options=OURS,
    ),
    Break("a head of twelve", edit_graph(head_of_12), {"RUN006"}, CUDA, options=OURS),
    Break("one output of three", edit_graph(fewer_outputs), {"RUN007"}, CUDA, options=OURS),
    Break("a runtime that refuses empty keys", requires("1.26.0"), {"RUN008", "RUN013"}, CUDA, options=OURS),
    Break("more elements than int32 counts", edit_graph(enormous), {"RUN009"}, CUDA, options=OURS),
    Break("a table that an adapter need not bind", edit_graph(large), {"RUN010"}, WEBGPU, options=OURS),
    Break(
        "a borrowed cache with a window", edit_graph(borrowed_with_window), {"RUN011"}, WEBGPU, options=OURS
    ),
    Break("a soft-cap that is not applied", attribute(0, softcap=30.0), {"RUN011"}, WEBGPU, options=OURS),
    Break("f16 in a browser", lambda package: None, {"RUN012"}, ("tiny", "webgpu", "f16"), options=OURS),
    Break(
        "another runtime",
        all_of(edit_bytes("runtime-requirements.txt", lambda old: b""), requires("1.31.0")),
        {"RUN013"},
        options=OURS,
    ),
    Break("cosines of another head", edit_graph(rotary_cache), {"RUN014"}, CUDA, options=OURS),
)


@pytest.mark.parametrize("broken", BREAKS, ids=str)
def test_a_broken_package_is_found_out(broken: Break, packages: Packages, tmp_path: Path) -> None:
    check(broken, packages, tmp_path)


def typed_node(op_type: str, kind: str, count: int = 1, domain: str = "", **said: object) -> Typed:
    names = [f"x{i}" for i in range(count)]
    node = helper.make_node(op_type, names, ["y"], domain=domain, **said)
    return Typed(node, 1 if domain else 23, (kind,) * count, (kind,))


KINDS = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}
NODES = [
    ("Mul", 2, "", {}),
    ("Add", 2, "", {}),
    ("Tanh", 1, "", {}),
    ("Cos", 1, "", {}),
    ("Softmax", 1, "", {}),
    ("Gelu", 1, "", {"approximate": "tanh"}),
    ("RMSNormalization", 2, "", {"axis": -1}),
    ("Transpose", 1, "", {}),
    ("Concat", 2, "", {"axis": 0}),
    ("Max", 2, "", {}),
    ("Erf", 1, "", {}),
    ("Mish", 1, "", {}),
    ("HardSwish", 1, "", {}),
    ("FastGelu", 1, "com.microsoft", {}),
    ("Gelu", 1, "com.microsoft", {}),
    ("QuickGelu", 1, "com.microsoft", {}),
    ("FusedMatMul", 2, "com.microsoft", {"transB": 1}),
    ("MatMulBnb4", 3, "com.microsoft", {"K": 8, "N": 2, "block_size": 16, "quant_type": 1}),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("op_type, count, domain, said", NODES, ids=lambda value: str(value)[:20])
def test_onnxruntime_agrees(
    op_type: str, count: int, domain: str, said: dict[str, object], kind: str
) -> None:
    """What is said to run loads into a session, what is said not to run does not."""
    node = typed_node(op_type, kind, count, domain, **said)
    ends = [helper.make_tensor_value_info(f"x{i}", KINDS[kind], [2, 8]) for i in range(count)]
    graph = helper.make_graph([node.node], "g", ends, [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        loads = True
    except Exception:
        loads = False
    assert runs(node) == loads


def test_types_are_worked_out_where_the_graph_does_not_state_them(packages: Packages) -> None:
    stated = read_graph(packages("tiny", "cuda", "f16"), "model.onnx")
    proto = Proto.FromString(stated.proto.SerializeToString())
    del proto.graph.value_info[:]
    bare = Graph(stated.root, stated.path, proto, stated.ports)
    assert element_types(bare) == element_types(stated)
    assert element_types(bare) is element_types(bare), (
        "worked out once, whatever number of weights ask for it"
    )
    assert len(typed(bare)) == len(proto.graph.node)
