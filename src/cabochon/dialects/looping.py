"""A tracer that writes loops: nodes that run once for each of 0, 1, 2 ..."""

import copy
from collections.abc import Callable
from typing import Self

import onnx_ir as ir

from cabochon.graph import Tracer, Value

__all__ = ["Looping"]


class Looping(Tracer):
    """Adds `repeat` to a tracer."""

    _around: "Looping | None" = None  # the tracer of the graph that this one is the body of

    def repeat(self, count: Value, result: Callable[[Self, Value], Value]) -> Value:
        """What `result` gives for each number below `count`, stacked.   -> [count, ...]

        `result` is called once, with the tracer of the body and the number, a scalar i64. The body sees all values made
        so far; what it makes has the same shape every time.
        """
        body, number, on = self._body()
        found = result(body, number)
        body.graph.outputs.extend([body.Identity(on), found])
        stacked: Value = self._outputs(self._append("", "Loop", [count, None], {"body": body.graph}, 1))
        stacked.type, stacked.shape = found.type, ir.Shape([None, *found.dims])
        return stacked

    def fold(self, over: Value, start: Value, step: Callable[[Self, Value, Value], Value]) -> Value:
        """`start`, changed by `step` for each number of `over`, i64 [count], in their order.

        `step` is called once, with the tracer of the body, the number, a scalar, and what has become of `start`, whose
        type and shape it keeps.
        """
        body, number, on = self._body()
        assert start.dtype is not None
        held = body.input(f"{body.graph.name}.held", start.dtype, *start.dims)
        found = step(body, body.Gather(over, number), held)
        body.graph.outputs.extend([body.Identity(on), found])
        made: Value = self._outputs(
            self._append("", "Loop", [self.length(over, 0), None, start], {"body": body.graph}, 1)
        )
        made.type, made.shape = start.type, start.shape
        return made

    def _body(self) -> tuple[Self, Value, Value]:
        """The tracer of a loop's body, of the same dialect, with the same names and constants; the number of the turn,
        and whether there is one."""
        body = copy.copy(self)
        body._around = self
        name = self._unique("Loop")
        body.graph = ir.Graph([], [], nodes=[], opset_imports=self.graph.opset_imports, name=name)
        return body, body.input(f"{name}.number", "i64"), body.input(f"{name}.on", "bool")

    def initializer(self, tensor: ir.TensorProtocol, name: str | None = None) -> Value:
        """Weights and constants lie in the outermost graph."""
        outermost = super() if self._around is None else self._around
        return outermost.initializer(tensor, name)
