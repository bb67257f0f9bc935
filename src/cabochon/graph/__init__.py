"""The tracer: a formula over `Value`s becomes ONNX nodes as it is evaluated."""

from cabochon.graph.scope import Blocks, Scope, Store
from cabochon.graph.stored import Stored
from cabochon.graph.tracer import DTYPES, Tracer, Value

__all__ = ["DTYPES", "Blocks", "Scope", "Store", "Stored", "Tracer", "Value"]
