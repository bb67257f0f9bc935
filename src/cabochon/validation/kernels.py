"""Which nodes an execution provider of ONNX Runtime has kernels for: tables, for those that are not in every wheel.

Each table lists floating types per operator; "" is the domain ai.onnx. Arithmetic over integers and booleans is not
listed: where a provider has no kernel for it, ONNX Runtime runs it on the CPU provider. An operator that is not listed
is one of which nothing is known here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["TABLES", "Table"]

Operator = tuple[str, str]  # domain, name
MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class Table:
    """The floating types, by numpy's names, for which a provider has a kernel of each operator; none: it has none.

    `version`: of onnxruntime; `sources`: where that is stated.
    """

    provider: str
    version: str
    sources: tuple[str, ...]
    types: Mapping[Operator, frozenset[str]]


def _rows(types: str, *operators: str, domain: str = "") -> dict[Operator, frozenset[str]]:
    """One row for each operator; `types` and `operators` are words."""
    return {(domain, name): frozenset(types.split()) for line in operators for name in line.split()}


_MOVING = (
    "Cast CastLike Concat Expand Gather Identity Reshape Shape Slice Split Squeeze Transpose Unsqueeze Where"
)
_HALF, _BOTH = "float32 float16", "float32 float16 bfloat16"

CUDA = Table(
    "CUDAExecutionProvider",
    "1.31",
    (
        "docs/OperatorKernels.md of onnxruntime, commit 001d12d2",
        "docs/contrib_ops/cuda/gqa.md of onnxruntime",
        "the kernels' type names in the library of onnxruntime-gpu 1.31.1",
        "onnxruntime/contrib_ops/cuda/quantization/gather_block_quantized.cc: uint8, uint4 and int4, 4 and 8 bits",
    ),
    _rows(
        _BOTH,
        _MOVING,
        "Add Sub Mul Div Neg Sqrt Exp Erf Sigmoid Tanh Softmax Min Max Sum Relu Gelu MatMul Gemm ReduceSum GatherND",
        "ScatterND ScatterElements TensorScatter Attention RMSNormalization RotaryEmbedding",
        "SimplifiedLayerNormalization Conv Loop",
    )
    | _rows(
        "float32 float16",
        "Sin Cos Pow Abs Floor Ceil Greater GreaterOrEqual Equal Less LessOrEqual CumSum TopK",
    )
    | _rows("float32 float16", "ReduceMean ReduceMax ReduceMin Clip LayerNormalization ArgMax Range")
    | _rows(
        _BOTH,
        "FastGelu Gelu FusedMatMul Attention MultiHeadAttention MatMulNBits MatMulBnb4",
        domain=MICROSOFT,
    )
    | _rows(
        _BOTH,
        "SkipSimplifiedLayerNormalization SkipLayerNormalization GatherBlockQuantized",
        domain=MICROSOFT,
    )
    | _rows("float16 bfloat16", "GroupQueryAttention PagedAttention", domain=MICROSOFT)
    | _rows(_HALF, "DequantizeLinear"),
)

WEBGPU = Table(
    "WebGpuExecutionProvider",
    "1.32",
    (
        "onnxruntime/core/providers/webgpu/webgpu_execution_provider.cc of onnxruntime",
        "onnxruntime/contrib_ops/webgpu/webgpu_contrib_kernels.cc of onnxruntime, commit 01671d9c",
        "onnxruntime/contrib_ops/webgpu/quantization: MatMulNBits and GatherBlockQuantized of 2, 4 and 8 bits",
        "graphs run with onnxruntime-web 1.30.0: ai.onnx Attention falls back to the CPU provider",
    ),
    _rows(
        _HALF,
        _MOVING,
        "Add Sub Mul Div Neg Abs Floor Ceil Sqrt Exp Log Erf Sigmoid Tanh Sin Cos Pow Softmax Relu Gelu Clip",
        "Greater GreaterOrEqual Equal Less LessOrEqual CumSum TopK GatherElements GatherND ScatterND ScatterElements",
        "MatMul Gemm ReduceSum ReduceMean ReduceMax ReduceMin ArgMax Einsum Tile Flatten Pad Range",
        "LayerNormalization RMSNormalization RotaryEmbedding SimplifiedLayerNormalization",
    )
    | _rows("", "Attention TensorScatter")
    | _rows("", "FusedMatMul PagedAttention", domain=MICROSOFT)
    | _rows(
        _HALF,
        "GroupQueryAttention MultiHeadAttention Attention FastGelu Gelu QuickGelu BiasGelu RotaryEmbedding MatMulNBits",
        "SkipLayerNormalization SkipSimplifiedLayerNormalization GatherBlockQuantized",
        domain=MICROSOFT,
    ),
)

TABLES: dict[str, Table] = {table.provider: table for table in (CUDA, WEBGPU)}
