"""What stands for a medium that a request does not bring."""

import numpy as np
import onnx_ir as ir

from cabochon.graph import Tracer
from cabochon.metadata.ports import Port

__all__ = ["no_features"]


def no_features(embedded: Port) -> ir.Model:
    """A graph without inputs: no rows of features, of the type and width of an embedded token.   -> [0, H]"""
    g = Tracer("no_features", opset=23)
    zero = ir.tensor(np.zeros(1, embedded.dtype))
    rows = g.ConstantOfShape(g.constant(np.array([0, embedded.shape[-1]])), value=zero)
    g.output("features", rows, "rows", embedded.shape[-1])
    return g.model({"cabochon.policy": "no_features"})
