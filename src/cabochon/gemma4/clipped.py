"""Linear maps of the towers, whose input and output stay within bounds that the checkpoint holds."""

from cabochon.dialects.standard import Standard
from cabochon.graph import Scope, Value

__all__ = ["linear"]


def linear(g: Standard, w: Scope, clipped: bool, x: Value) -> Value:
    """x @ weightᵀ; where linears are clipped, x and the result stay within the bounds of this one."""
    if not clipped:
        return g.linear(x, w / "linear")
    y = g.linear(g.between(x, w["input_min"], w["input_max"]), w / "linear")
    return g.between(y, w["output_min"], w["output_max"])
