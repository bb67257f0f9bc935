"""ONNX Runtime: the portable form, and one fused operator that was measured to pay."""

from cabochon.dialects.standard import Standard
from cabochon.graph import Scope, Value

__all__ = ["Default"]


class Default(Standard):
    """Linear layers as FusedMatMul, which reads a weight as it lies in the file, [out, in].

    A Transpose before a MatMul is folded when a session loads: a second copy of every weight in memory, and half the
    speed of single-token steps on the CPU provider. Attention stays ai.onnx, because zeros may stand anywhere in the mask.
    """

    def linear(self, x: Value, w: Scope) -> Value:
        """x @ weightᵀ"""
        weight = w["weight"]
        shape = [*x.shape[:-1], weight.shape[0]]
        return self.microsoft("FusedMatMul", [x, weight], dict(transB=1), (x, shape))
