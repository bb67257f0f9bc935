"""One linear map in the forms that packages store it in, on the CPU provider: what each takes, and how far it rounds.

    python -m bench.kernels

What recipes and rules say of kernels (accuracy levels, NF4, 8 bits, which forms are fused) is measured here.
"""

import time
from collections.abc import Callable, Iterator
from statistics import median

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.table import Row
from cabochon.packing import Scheme, pack, unpack

OUT, IN = 6144, 1536
FOUR, EIGHT, NF4 = (
    Scheme("round", 4, 32, False, "f32"),
    Scheme("round", 8, 32, True, "f32"),
    Scheme("nf4", 4, 64, True, "f32"),
)
Made = tuple[list[onnx.NodeProto], list[onnx.TensorProto]]


def rows(repeats: int = 20) -> Iterator[Row]:
    """A row for each form: milliseconds with one token on one thread, beside 4 bits at accuracy level 4."""
    weight = np.random.default_rng(0).standard_normal((OUT, IN), np.float32) * np.float32(0.02)
    forms: dict[str, tuple[Made, np.ndarray]] = {
        "MatMulNBits, 4 bits, accuracy level 4": _blocks(weight, FOUR, accuracy_level=4),
        "MatMulNBits, 4 bits, exact": _blocks(weight, FOUR, accuracy_level=0),
        "MatMulNBits, 8 bits, accuracy level 4": _blocks(weight, EIGHT, accuracy_level=4),
        "MatMulNBits, 8 bits, exact": _blocks(weight, EIGHT, accuracy_level=0),
        "MatMulBnb4, NF4": _nf4(weight),
        "DequantizeLinear [in, out] + MatMul": _dequantized(weight, turned=False),
        "DequantizeLinear [out, in] + Transpose + MatMul": _dequantized(weight, turned=True),
    }
    first = 0.0
    for name, (made, exact) in forms.items():
        took, off = _run(made, exact, repeats)
        first = first or took
        yield Row(
            f"a product of {OUT} x {IN} with one token, one thread: {name}",
            f"{took:.2f} ms, off by {off:.0e} of the largest",
            ratio=f"{took / first:.1f} × the first",
        )


def _run(made: Made, exact: np.ndarray, repeats: int) -> tuple[float, float]:
    """Milliseconds, and the largest difference from the product with the weight that the blocks stand for."""
    import onnxruntime as ort

    nodes, held = made
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    graph = helper.make_graph(nodes, "product", ports[:1], ports[1:], held)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    model = helper.make_model(graph, opset_imports=opsets, ir_version=11).SerializeToString()
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).standard_normal((1, IN), np.float32)
    right = x @ exact.T
    off = np.abs(session.run(None, {"x": x})[0] - right).max() / np.abs(right).max()
    return median(_milliseconds(lambda: session.run(None, {"x": x})) for _ in range(repeats)), float(off)


def _milliseconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def _blocks(weight: np.ndarray, scheme: Scheme, accuracy_level: int) -> tuple[Made, np.ndarray]:
    packed = pack(weight, scheme)
    parts = {"codes": packed.codes, "scales": packed.scales, "points": packed.zero_points}
    held = [numpy_helper.from_array(part, name) for name, part in parts.items() if part is not None]
    sizes = dict(K=IN, N=OUT, bits=scheme.bits, block_size=scheme.block, accuracy_level=accuracy_level)
    inputs = ["x", *(tensor.name for tensor in held)]
    node = helper.make_node("MatMulNBits", inputs, ["y"], domain="com.microsoft", **sizes)
    return ([node], held), unpack(packed, scheme, IN)


def _nf4(weight: np.ndarray) -> tuple[Made, np.ndarray]:
    packed = pack(weight, NF4)
    held = [numpy_helper.from_array(packed.codes, "codes"), numpy_helper.from_array(packed.scales, "scales")]
    sizes = dict(K=IN, N=OUT, block_size=NF4.block, quant_type=1)
    node = helper.make_node("MatMulBnb4", ["x", "codes", "scales"], ["y"], domain="com.microsoft", **sizes)
    return ([node], held), unpack(packed, NF4, IN)


def _dequantized(weight: np.ndarray, *, turned: bool) -> tuple[Made, np.ndarray]:
    """In 8 bits, which have no halves to swap; `turned`: stored [out, in], as the checkpoint has it."""
    packed = pack(weight, EIGHT)
    codes, scales = (packed.codes.reshape(OUT, IN) ^ np.uint8(128)).view(np.int8), packed.scales
    if not turned:
        codes, scales = np.ascontiguousarray(codes.T), np.ascontiguousarray(scales.T)
    held = [numpy_helper.from_array(codes, "codes"), numpy_helper.from_array(scales, "scales")]
    nodes = [
        helper.make_node(
            "DequantizeLinear", ["codes", "scales"], ["w"], axis=int(turned), block_size=EIGHT.block
        )
    ]
    if turned:
        nodes.append(helper.make_node("Transpose", ["w"], ["wt"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", "wt" if turned else "w"], ["y"]))
    return (nodes, held), unpack(packed, EIGHT, IN)


if __name__ == "__main__":
    for row in rows():
        print(row.line(), flush=True)
