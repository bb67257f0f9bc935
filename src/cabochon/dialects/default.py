"""ONNX Runtime: the portable form, with the two fused operators that pay there."""

from cabochon.dialects.standard import Standard
from cabochon.graph import Scope, Value

__all__ = ["Default"]


class Default(Standard):
    """Attention stays ai.onnx, because zeros may stand anywhere in the mask."""

    def linear(self, x: Value, w: Scope) -> Value:
        """x @ weightᵀ as FusedMatMul, which reads the weight as it lies in the file, [out, in].

        A Transpose before a MatMul is folded when a session loads: a second copy of every weight in memory.
        """
        weight = w["weight"]
        shape = [*x.dims[:-1], weight.dims[0]]
        return self.microsoft("FusedMatMul", [x, weight], dict(transB=1), (x, shape))

    def gelu(self, x: Value) -> Value:
        """The tanh form. ai.onnx Gelu has no f16 kernel on the CPU provider: it falls into eleven operators there."""
        return self.microsoft("FastGelu", [x], {}, (x, x.dims))
