"""Weights in blocks: how graphs are read that hold them, and what is found where something of them is wrong."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from broken import Break, all_of, check, codes, edit_bytes, edit_document, edit_graph, edit_json, edit_weight
from cabochon.kernels import PROVIDERS
from cabochon.validation import validate
from cabochon.validation.blocks import blocked, numbers, stem
from cabochon.validation.graph import Graph, read_graph
from cabochon.validation.holdings import held, most
from cabochon.validation.lookup_nodes import factor, rows
from cabochon.validation.opened import open_package
from cabochon.validation.registry import element_types, runs, typed
from cabochon.validation.rules import load
from packages import SOURCES, Packages
from test_validation_hygiene import put

How = Callable[[Path], object]
MICROSOFT = "com.microsoft"
DEFAULT, STANDARD, CUDA = (("tiny", target, "Q4_K_M") for target in ("default", "onnx-standard", "cuda"))
MATRIX = "model.layers.1.mlp.down_proj.weight"
LAYERS_TABLE = "model.embed_tokens_per_layer.weight"
TABLE = "model.embed_tokens.weight"
rng = np.random.default_rng(7)


def picked(proto: onnx.ModelProto, operator: str, name: str = "") -> onnx.NodeProto:
    """The first node of an operator; the one that reads an initializer."""
    return next(n for n in proto.graph.node if n.op_type == operator and (not name or name in n.input))


def said(node: onnx.NodeProto, **values: int | None) -> None:
    """Change attributes; None removes one."""
    kept = [a for a in node.attribute if a.name not in values]
    del node.attribute[:]
    new = [helper.make_attribute(name, value) for name, value in values.items() if value is not None]
    node.attribute.extend([*kept, *new])


def attribute(operator: str, reads: str, **values: int | None) -> How:
    return edit_graph(lambda proto: said(picked(proto, operator, reads), **values))


def computed(proto: onnx.ModelProto) -> None:
    """Scales that come out of a node."""
    node = picked(proto, "MatMulNBits", MATRIX)
    proto.graph.node.insert(0, helper.make_node("Identity", [node.input[2]], ["computed"], name="computed"))
    node.input[2] = "computed"


def exchanged(proto: onnx.ModelProto) -> None:
    """Scales of another layer's matrix, which has the same shape."""
    picked(proto, "MatMulNBits", MATRIX).input[2] = f"{MATRIX}_scales".replace("layers.1", "layers.2")


def half(proto: onnx.ModelProto) -> None:
    """Scales of another type than the activations."""
    scales = next(t for t in proto.graph.initializer if t.name == f"{MATRIX}_scales")
    scales.data_type = TensorProto.FLOAT16


def transposed(proto: onnx.ModelProto) -> None:
    """What is unpacked is turned before it is multiplied."""
    node = picked(proto, "DequantizeLinear")
    user = next(n for n in proto.graph.node if node.output[0] in n.input)
    at = list(proto.graph.node).index(user)
    proto.graph.node.insert(at, helper.make_node("Transpose", [node.output[0]], ["turned"], perm=[1, 0]))
    user.input[list(user.input).index(node.output[0])] = "turned"


def without_zero_points(proto: onnx.ModelProto) -> None:
    for node in proto.graph.node:
        if node.op_type == "GatherBlockQuantized":
            del node.input[3:]


def odd_zero_points(proto: onnx.ModelProto) -> None:
    """A row of one block, whose zero points fill a byte each."""
    table = next(t for t in proto.graph.initializer if t.name == TABLE)
    node, table.dims[1] = picked(proto, "GatherBlockQuantized", TABLE), 16
    points = np.full((table.dims[0], 1), 8, np.uint8)
    proto.graph.initializer.append(numpy_helper.from_array(points, "odd"))
    node.input[:] = [*node.input[:3], "odd"]


def enormous(proto: onnx.ModelProto) -> None:
    """1.6e9 bytes that stand for 3.2e9 numbers."""
    table = next(t for t in proto.graph.initializer if t.name == TABLE)
    table.dims[:] = [1 << 20, 1536]


def across_layers(proto: onnx.ModelProto) -> None:
    """Rows of the per-layer table hold all layers."""
    table = next(t for t in proto.graph.initializer if t.name == LAYERS_TABLE)
    table.dims[:] = [table.dims[0] // 10, table.dims[1] * 10]


def recipe(*rules: Mapping[str, Any] | None) -> How:
    """Another recipe in provenance.json; none."""
    return edit_json("provenance.json", lambda data: data["build"].update(recipe=list(rules) or None))


def four(weights: str, **changes: Any) -> Mapping[str, Any]:
    return {"weights": weights, "method": "k-quant", "bits": 4, "block": 32, "symmetric": False} | changes


def stored(change: Callable[[dict[str, Any]], object]) -> How:
    return edit_json("provenance.json", lambda data: change(data["build"]["stored"]))


def more_bytes(said: dict[str, Any]) -> None:
    said["weights"][0]["bytes"] += 8


def as_padding(said: dict[str, Any]) -> None:
    """The sums are right, the role is not."""
    said["weights"][0]["bytes"] -= 8
    said["padding"] += 8


def card(old: str, new: str) -> How:
    return edit_bytes("README.md", lambda text: text.replace(old.encode(), new.encode()))


def quantization(**stated: Any) -> How:
    return edit_document(lambda d: d.update(quantization=stated))


def override(**stated: Any) -> How:
    return quantization(default="int4", overrides=[stated])


F32 = ("tiny", "default", "f32")
NARROW = put(np.inf, np.float16)


def broken(
    family: str, *rows: tuple[str, How, str] | tuple[str, How, str, tuple[str, str, str]]
) -> tuple[Break, ...]:
    """Rows of a name, a change, the codes that are found, and the package where it is not that of the CPU."""
    options = {"quick": family != "HYG", "select": (family,)}
    return tuple(
        Break(name, how, set(found.split()), *(more or [DEFAULT]), options=options)
        for name, how, found, *more in rows
    )


NODES = broken(
    "RUN",
    ("another block", attribute("MatMulNBits", MATRIX, block_size=64), "RUN015"),
    ("a block of 8", attribute("MatMulNBits", MATRIX, block_size=8), "RUN015"),
    ("eight bits", attribute("MatMulNBits", MATRIX, bits=8), "RUN015"),
    ("three bits", attribute("MatMulNBits", MATRIX, bits=3), "RUN015"),
    ("more rows", attribute("MatMulNBits", MATRIX, N=65), "RUN015"),
    ("a longer row", attribute("MatMulNBits", MATRIX, K=160), "RUN015"),
    ("a table of other blocks", attribute("GatherBlockQuantized", TABLE, block_size=16), "RUN015"),
    ("unpacked in other blocks", attribute("DequantizeLinear", "", block_size=16), "RUN015", STANDARD),
    ("scales of another weight", edit_graph(exchanged), "RUN015"),
    ("blocks across rows", attribute("GatherBlockQuantized", TABLE, quantize_axis=0), "RUN015"),
    ("scales that are computed", edit_graph(computed), "RUN016"),
    ("scales of another type", edit_graph(half), "RUN001 RUN016"),
    ("unpacked and turned", edit_graph(transposed), "RUN017", STANDARD),
)
GPU = (
    *broken("RUN018", ("zero points left open", edit_graph(without_zero_points), "RUN018", CUDA)),
    *broken("RUN011", ("zero points in odd numbers", edit_graph(odd_zero_points), "RUN011", CUDA)),
    *broken(
        "RUN009",
        ("more numbers than int32 counts, in half as many bytes", edit_graph(enormous), "RUN009", CUDA),
    ),
)
CLAIMS = broken(
    "HON",
    ("floats that were planned as blocks", recipe({"weights": "*", "method": "float"}), "HON031"),
    ("blocks of other bits", recipe(four("*", bits=8)), "HON031"),
    ("other blocks", recipe(four("*", block=64)), "HON031"),
    ("no recipe", recipe(), "HON031"),
    ("a recipe that is none", recipe(four("*", bits=5)), "HON031"),
    ("blocks that were planned and are floats", recipe(four("*")), "HON031", F32),
    ("a report of more bytes", stored(more_bytes), "HON032"),
    ("a role of fewer bytes", stored(as_padding), "HON032"),
    ("fewer bits", stored(lambda said: said.update(bits_per_weight=4.0)), "HON032"),
    ("a report of floats", stored(more_bytes), "HON032", F32),
    ("a card without blocks", card("in blocks of 32", "packed"), "HON033"),
    ("a card in llama.cpp's name", card("not llama.cpp", "llama.cpp"), "HON033"),
    ("floats claimed", quantization(default="float16"), "HON012"),
    ("other blocks claimed", quantization(default="int4_group64"), "HON012"),
    ("a layer of 8 bits", override(component="decoder", layers=[3], precision="int8"), "HON012"),
    ("a component that there is not", override(component="encoder", precision="int8"), "HON012"),
    ("blocks as they are", quantization(default="int4_group32"), ""),
)
VALUES = broken(
    "HYG",
    ("a negative scale", edit_weight(f"{LAYERS_TABLE}_scales", put(-1.0, np.float16)), "HYG005"),
    ("a scale that is no number", edit_weight(f"{MATRIX}_scales", put(np.nan, np.float32)), "HYG001"),
    ("an infinite scale", edit_weight(f"{LAYERS_TABLE}_scales", NARROW), "HYG002"),
    ("blocks of two layers", edit_graph(across_layers), "HYG006"),
)
BREAKS = (*NODES, *GPU, *CLAIMS, *VALUES)


@pytest.mark.parametrize("case", BREAKS, ids=str)
def test_a_broken_package_is_found_out(case: Break, packages: Packages, tmp_path: Path) -> None:
    check(case, packages, tmp_path)


@pytest.mark.parametrize("target", ["default", "onnx-standard", "cuda", "webgpu"])
def test_packages_in_blocks_are_good(packages: Packages, target: str) -> None:
    verdict = validate(packages("tiny", target, "Q4_K_M"), source=SOURCES["tiny"])
    assert codes(verdict) <= {"RUN012"}, verdict.findings
    assert {"SRC001", "HON031", "HON032", "HYG005"} <= set(verdict.rules)


class Made:
    """A graph in memory: one operator over weights in blocks, as a package's would be."""

    def __init__(self, *nodes: onnx.NodeProto, target: str = "default", **weights: np.ndarray) -> None:
        tensors = [numpy_helper.from_array(value, name.replace("__", ".")) for name, value in weights.items()]
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])
        ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 3])
        y = helper.make_empty_tensor_value_info("y")
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MICROSOFT, 1)]
        made = helper.make_graph(nodes, "g", [x, ids], [y], tensors)
        self.proto = helper.make_model(made, opset_imports=opsets, ir_version=10)
        self.proto.metadata_props.add(key="cabochon.target", value=target)

    def read(self, folder: Path, kind: int = TensorProto.FLOAT) -> Graph:
        """As validation reads it; the output has no stated type there, so that it is given one."""
        self.proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", kind, ["b", "n"]))
        (folder / "model.onnx").write_bytes(self.proto.SerializeToString())
        return read_graph(folder, "model.onnx")

    def found(self, folder: Path) -> dict[str, list[str]]:
        """What the rules on running find, by code."""
        self.read(folder)
        found: dict[str, list[str]] = {}
        for finding in validate(folder, quick=True, select=("RUN",)).findings:
            found.setdefault(finding.code, []).append(finding.found)
        return found


def blocks(
    rows: int, columns: int, bits: int = 4, block: int = 32, zero: bool = True
) -> dict[str, np.ndarray]:
    """Codes, scales and zero points of X.weight, as MatMulNBits takes them."""
    count = -(-columns // block)
    stored = {
        "X__weight": rng.integers(0, 256, (rows, count, block * bits // 8), np.uint8),
        "X__weight_scales": rng.random((rows, count), np.float32),
    }
    points = rng.integers(0, 256, (rows, -(-count * bits // 8)), np.uint8)
    return stored | ({"X__weight_zero_points": points} if zero else {})


def product(stored: Mapping[str, np.ndarray], **attributes: int) -> onnx.NodeProto:
    names = ["x", *(name.replace("__", ".") for name in stored)]
    how = {"N": 8, "K": 64, "bits": 4, "block_size": 32, "accuracy_level": 4} | attributes
    return helper.make_node("MatMulNBits", names, ["y"], name="linear", domain=MICROSOFT, **how)


def table(
    rows: int, columns: int, bits: int = 4, block: int = 32, zero: bool = True
) -> dict[str, np.ndarray]:
    found = blocks(rows, columns, bits, block, zero)
    return found | {"X__weight": found["X__weight"].reshape(rows, -1)}


def gathered(zero: bool = True, **attributes: int) -> onnx.NodeProto:
    names = ["X.weight", "ids", "X.weight_scales", *(["X.weight_zero_points"] if zero else [])]
    how = {"bits": 4, "block_size": 32, "gather_axis": 0, "quantize_axis": 1} | attributes
    return helper.make_node("GatherBlockQuantized", names, ["y"], name="embed", domain=MICROSOFT, **how)


def test_a_product_is_read_as_its_attributes_say(tmp_path: Path) -> None:
    stored = blocks(8, 50)
    graph = Made(product(stored, K=50), **stored).read(tmp_path)
    (one,) = blocked(graph)
    assert (one.name, one.rows, one.columns, one.blocks, one.scheme) == (
        "X.weight",
        8,
        50,
        2,
        "4 bits in blocks of 32",
    )
    assert (one.scales, one.zero_points, one.across) == ("X.weight_scales", "X.weight_zero_points", False)
    assert one.at == "MatMulNBits linear"


def test_packages_hold_what_their_recipe_says(packages: Packages) -> None:
    """The same numbers on every target, whatever the operators are; of a tied table once."""
    counted = {}
    for built in (DEFAULT, STANDARD, CUDA):
        graph = read_graph(packages(*built), "model.onnx")
        found = held(graph)
        assert found[MATRIX].read is not None and str(found[MATRIX].form) == "int4 in blocks of 32"
        assert found["model.norm.weight"].form.block == 0
        assert found[TABLE].read is not None and found[TABLE].numbers == 512 * 64
        assert str(most(found.values())) == "int4 in blocks of 32"
        counted[built] = {name: one.numbers for name, one in found.items() if "per_layer" not in name}
        assert rows(graph, TABLE).count == 512 and rows(graph, TABLE).width == 64
        assert factor(graph, TABLE) == pytest.approx(8.0)
    assert counted[DEFAULT] == counted[STANDARD] == counted[CUDA]


@pytest.mark.parametrize(
    "name, weight",
    [
        ("X.weight", "X.weight"),
        ("X.weight_scales", "X.weight"),
        ("X.weight_zero_points_points", "X.weight"),
        ("model.embed_tokens.rows257.weight_bytes", "model.embed_tokens.rows257.weight"),
        ("logits_to_keep", "logits_to_keep"),
    ],
)
def test_a_part_belongs_to_its_weight(name: str, weight: str) -> None:
    assert stem(name) == weight


def test_codes_that_share_a_byte_are_counted_each(tmp_path: Path) -> None:
    graph = Made(gathered(), **table(6, 64)).read(tmp_path)
    assert numbers(graph, graph.initializers["X.weight"]) == 6 * 64
    assert numbers(graph, graph.initializers["X.weight_scales"]) == 6 * 2


def test_numbers_of_four_bits_are_read_as_numbers(tmp_path: Path) -> None:
    import ml_dtypes

    values = {
        "u": np.arange(15).reshape(3, 5).astype(ml_dtypes.uint4),
        "s": (np.arange(15) - 8).astype(ml_dtypes.int4),
    }
    node = helper.make_node("Identity", ["x"], ["y"])
    made = Made(node, **values)
    for tensor, data in zip(made.proto.graph.initializer, ("u", "s"), strict=True):
        raw, tensor.data_location = tensor.raw_data, TensorProto.EXTERNAL
        (tmp_path / data).write_bytes(raw)
        tensor.ClearField("raw_data")
        for key, value in {"location": data, "offset": "0", "length": str(len(raw))}.items():
            tensor.external_data.add(key=key, value=value)
    graph = made.read(tmp_path)
    assert np.array_equal(graph.array("u"), values["u"].astype(np.uint8))
    assert np.array_equal(graph.array("s"), values["s"].astype(np.int8))
    assert graph.raw("u").tolist() == [0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0x0E]


GOOD = blocks(8, 64)
EIGHT = blocks(8, 64, bits=8)
FLAT = {"X__weight": np.zeros(8 * 64 // 2, np.uint8), "X__weight_scales": np.ones(8, np.float32)}


def unpacking() -> onnx.NodeProto:
    names = ["X.weight", "X.weight_scales"]
    return helper.make_node("DequantizeLinear", names, ["w"], name="unpack", axis=1, block_size=32)


CODES = {
    "X__weight": rng.integers(0, 256, (8, 64), np.uint8),
    "X__weight_scales": np.ones((8, 2), np.float32),
}
NF4 = helper.make_node(
    "MatMulBnb4",
    ["x", "X.weight", "X.weight_scales"],
    ["y"],
    domain=MICROSOFT,
    K=64,
    N=8,
    block_size=64,
    quant_type=1,
)
SLOW = {
    "4 bits": (product(GOOD), GOOD, "default", None),
    "4 bits, exact": (product(GOOD, accuracy_level=0), GOOD, "default", None),
    "8 bits": (product(EIGHT, bits=8), EIGHT, "default", None),
    "8 bits, exact": (
        product(EIGHT, bits=8, accuracy_level=0),
        EIGHT,
        "default",
        "8 bits at accuracy level 0",
    ),
    "8 bits, exact, on CUDA": (product(EIGHT, bits=8, accuracy_level=0), EIGHT, "cuda", None),
    "NF4": (NF4, FLAT, "default", "NF4 on the CPU"),
    "NF4 on CUDA": (NF4, FLAT, "cuda", None),
    "a table unpacked": (
        [unpacking(), helper.make_node("Gather", ["w", "ids"], ["y"])],
        CODES,
        "onnx-standard",
        "the whole table is unpacked before Gather takes rows of it",
    ),
    "a weight turned": (
        [
            unpacking(),
            helper.make_node("Transpose", ["w"], ["t"]),
            helper.make_node("MatMul", ["x", "t"], ["y"]),
        ],
        CODES,
        "onnx-standard",
        "it is unpacked, and transposed before MatMul",
    ),
}


@pytest.mark.parametrize("case", SLOW)
def test_what_is_slow_is_said(case: str, tmp_path: Path) -> None:
    nodes, stored, target, expected = SLOW[case]
    made = Made(*(nodes if isinstance(nodes, list) else [nodes]), target=target, **stored)
    found = made.found(tmp_path)
    slow = found.pop("RUN017", [])
    assert [each.partition(": ")[0] for each in slow] == ([expected] if expected else [])
    assert not found.keys() & {"RUN001", "RUN003", "RUN015", "RUN016"}, found


WRONG = {
    "activations that are wider": (product(GOOD, K=50), GOOD, {"RUN015"}),
    "scales of too few blocks": (
        product(GOOD),
        GOOD | {"X__weight_scales": np.ones((8, 1), np.float32)},
        {"RUN015"},
    ),
    "flat scales": (product(GOOD), GOOD | {"X__weight_scales": np.ones(16, np.float32)}, set()),
    "zero points of bytes": (
        product(GOOD),
        GOOD | {"X__weight_zero_points": np.ones((8, 2), np.uint8)},
        {"RUN015"},
    ),
    "zero points of floats": (
        product(GOOD),
        GOOD | {"X__weight_zero_points": np.ones((8, 2), np.float32)},
        set(),
    ),
    "codes of another shape": (product(GOOD), GOOD | {"X__weight": np.zeros((8, 32), np.uint8)}, {"RUN015"}),
    "other activations": (product(GOOD, K=96), blocks(8, 96), {"RUN015"}),
    "a flat weight that is short": (NF4, FLAT | {"X__weight": np.zeros(255, np.uint8)}, {"RUN015"}),
    "a table": (gathered(), table(6, 64), set()),
    "a table of half as many scales": (gathered(block_size=64), table(6, 64), {"RUN015"}),
    "a table of 8 bits": (gathered(bits=8), table(6, 64, bits=8), set()),
    "a table without zero points": (gathered(False), table(6, 64, zero=False), set()),
}


@pytest.mark.parametrize("case", WRONG)
def test_parts_fit_each_other(case: str, tmp_path: Path) -> None:
    node, stored, expected = WRONG[case]
    found = Made(node, **stored).found(tmp_path)
    assert found.keys() & {"RUN001", "RUN015", "RUN016"} == expected, found


ODD = {
    "odd on CUDA": ("cuda", table(6, 32), gathered(), {"RUN011"}),
    "odd on WebGPU": ("webgpu", table(6, 32), gathered(), {"RUN011"}),
    "odd on the CPU": ("default", table(6, 32), gathered(), set()),
    "even": ("cuda", table(6, 64), gathered(), set()),
    "odd, of 8 bits": ("cuda", table(6, 32, bits=8), gathered(bits=8), set()),
    "none on CUDA": ("cuda", table(6, 32, zero=False), gathered(False), {"RUN018"}),
    "none on WebGPU": ("webgpu", table(6, 32, zero=False), gathered(False), set()),
}


@pytest.mark.parametrize("case", ODD)
def test_zero_points_are_what_each_provider_reads(case: str, tmp_path: Path) -> None:
    target, stored, node, expected = ODD[case]
    found = Made(node, target=target, **stored).found(tmp_path)
    assert found.keys() & {"RUN011", "RUN018", "RUN003", "RUN004"} == expected, found


def test_the_type_of_what_is_unpacked_is_that_of_its_scales(tmp_path: Path) -> None:
    graph = Made(unpacking(), helper.make_node("Identity", ["w"], ["y"]), **CODES).read(tmp_path)
    assert element_types(graph)["w"] == "float32"
    assert all(runs(node) for node in typed(graph))


@pytest.mark.parametrize("provider", ["CUDAExecutionProvider", "WebGpuExecutionProvider", "wasm"])
def test_products_and_tables_in_blocks_have_kernels(provider: str) -> None:
    for operator in ("MatMulNBits", "GatherBlockQuantized"):
        assert {"float32", "float16"} <= PROVIDERS[provider].floats[MICROSOFT, operator]


LOADED = {
    "MatMulNBits": (product(GOOD), GOOD),
    "of 8 bits": (product(EIGHT, bits=8), EIGHT),
    "GatherBlockQuantized": (gathered(), table(6, 64)),
    "MatMulBnb4": (NF4, FLAT),
}


@pytest.mark.parametrize("case", LOADED)
@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_onnxruntime_loads_what_is_said_to_run(case: str, kind: str, tmp_path: Path) -> None:
    node, stored = LOADED[case]
    made = Made(node, **{name: a.astype(kind) if a.dtype.kind == "f" else a for name, a in stored.items()})
    number = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}[kind]
    made.proto.graph.input[0].type.tensor_type.elem_type = number
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    onnxruntime.InferenceSession(made.proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    assert all(runs(each) for each in typed(made.read(tmp_path, number)))


def test_a_changed_code_is_not_what_the_checkpoint_gives(packages: Packages, tmp_path: Path) -> None:
    def flip(data: bytearray) -> None:
        data[5] ^= 1

    for i, name in enumerate((MATRIX, f"{MATRIX}_scales", f"{LAYERS_TABLE}_zero_points")):
        options = {"source": SOURCES["tiny"], "select": ("SRC",)}
        case = Break(name, edit_weight(name, flip), {"SRC001"}, DEFAULT, options=options)
        verdict = check(case, packages, tmp_path / str(i))
        assert [finding.at for finding in verdict.findings] == [f"model.onnx: {name}"]


def calibrated(package: Path) -> None:
    edit_json("provenance.json", lambda data: data["build"].update(calibration={"text": "some"}))(package)


def of_another_version(package: Path) -> None:
    edit_json("provenance.json", lambda data: data["build"].update(version="0.0.1"))(package)


@pytest.mark.parametrize("built", [DEFAULT, STANDARD, ("tiny", "default", "NF4")], ids="-".join)
def test_codes_of_calibrated_weights_are_the_nearest_for_their_scales(
    built: tuple[str, str, str], packages: Packages, tmp_path: Path
) -> None:
    """Scales and zero points are taken as they are; a code that is not the nearest, and scales that are far off, are
    found."""
    options = {"source": SOURCES["tiny"], "select": ("SRC",)}

    def flip(data: bytearray) -> None:
        data[5] ^= 1

    def twice(data: bytearray) -> None:
        np.frombuffer(data, np.float32)[:] *= 2

    code, scales = edit_weight(MATRIX, flip), edit_weight(f"{MATRIX}_scales", twice)
    cases = {
        "good": (calibrated, set()),
        "a code": (all_of(calibrated, code), {"SRC001"}),
        "scales": (all_of(calibrated, scales), {"SRC001"}),
        "of another version": (all_of(of_another_version, code), {"SRC001"}),
    }
    for name, (how, expected) in cases.items():
        check(Break(name, how, expected, built, options=options), packages, tmp_path / name)


def test_a_package_in_blocks_does_what_its_document_says(packages: Packages) -> None:
    """Activations are rounded to 8 bits on the way: runs that are cut otherwise differ by that."""
    verdict = validate(packages(*DEFAULT), execute=True, select=("BEH",))
    assert verdict.findings == () and "BEH006" in verdict.rules


def test_all_rules_run_over_a_package_in_blocks(packages: Packages) -> None:
    assert open_package(packages(*DEFAULT)).faults == {}
    assert {code for code in load() if code.startswith(("HON", "RUN"))} <= set(
        validate(packages(*DEFAULT)).rules
    )
