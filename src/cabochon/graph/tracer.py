"""Records ONNX nodes as a formula is evaluated. `g.Softmax(x, axis=-1)` is a node; so is `x + y`."""

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from cabochon.errors import GraphError
from cabochon.graph.inference import infer

__all__ = ["DTYPES", "Tracer", "Value"]

DTYPES = {
    "f32": ir.DataType.FLOAT,
    "f16": ir.DataType.FLOAT16,
    "bf16": ir.DataType.BFLOAT16,
    "f64": ir.DataType.DOUBLE,
    "i64": ir.DataType.INT64,
    "i32": ir.DataType.INT32,
    "u64": ir.DataType.UINT64,
    "u8": ir.DataType.UINT8,
    "i8": ir.DataType.INT8,
    "u4": ir.DataType.UINT4,
    "i4": ir.DataType.INT4,
    "bool": ir.DataType.BOOL,
}

Dims = Sequence[int | str | None]


class Value(ir.Value):
    """An `ir.Value` that knows its tracer, so that formulas read as formulas: + - * / @."""

    def __init__(self, tracer: "Tracer", **parts: Any) -> None:
        super().__init__(**parts)
        self.tracer = tracer

    @property
    def dims(self) -> tuple[Any, ...]:
        """The dimensions, numbers or symbols. Raises GraphError where nothing is known of them."""
        if self.shape is None:
            raise GraphError("its shape is not known; set it where the value is made", at=self.name or "")
        return tuple(self.shape.dims)

    def __add__(self, other: "Operand") -> "Value":
        return self.tracer.Add(self, other)

    def __radd__(self, other: "Operand") -> "Value":
        return self.tracer.Add(other, self)

    def __sub__(self, other: "Operand") -> "Value":
        return self.tracer.Sub(self, other)

    def __rsub__(self, other: "Operand") -> "Value":
        return self.tracer.Sub(other, self)

    def __mul__(self, other: "Operand") -> "Value":
        return self.tracer.Mul(self, other)

    def __rmul__(self, other: "Operand") -> "Value":
        return self.tracer.Mul(other, self)

    def __truediv__(self, other: "Operand") -> "Value":
        return self.tracer.Div(self, other)

    def __rtruediv__(self, other: "Operand") -> "Value":
        return self.tracer.Div(other, self)

    def __matmul__(self, other: "Operand") -> "Value":
        return self.tracer.MatMul(self, other)


Operand = Value | int | float | list[int] | np.ndarray


class Tracer:
    """A graph being written. Methods with a capital are ONNX operators; the schema checks them at once."""

    def __init__(self, name: str, opset: int) -> None:
        self.graph = ir.Graph([], [], nodes=[], opset_imports={"": opset}, name=name)
        self._constants: dict[Any, Value] = {}
        self._path: list[str] = []
        self._taken: dict[str, int] = {}

    # what goes in and out

    def input(self, name: str, dtype: str | ir.DataType, *shape: int | str) -> Value:
        """A graph input; strings in `shape` are symbolic dimensions."""
        value = Value(self, name=name, type=ir.TensorType(_dtype(dtype)), shape=ir.Shape(shape))
        self.graph.inputs.append(value)
        return value

    def default(self, name: str, value: np.generic) -> Value:
        """A scalar input that may be left out: an initializer that is a graph input too."""
        held = self.initializer(ir.tensor(np.asarray(value), name=name))
        self.graph.inputs.append(held)
        return held

    def called(self, name: str, value: Value) -> Value:
        """The value, under a name that who cuts the graph finds it by."""
        value.name = name
        return value

    def output(self, name: str, value: Value, *shape: int | str) -> None:
        """A graph output under its own name and with named dimensions."""
        value.name, value.shape = name, ir.Shape(shape)
        self.graph.outputs.append(value)

    def initializer(self, tensor: ir.TensorProtocol, name: str | None = None) -> Value:
        """A weight or constant, read only when the graph is written; under its own name unless another is given."""
        value = Value(
            self,
            name=name or tensor.name,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor.shape.numpy()),
            const_value=tensor,
        )
        self.graph.register_initializer(value)
        return value

    def constant(self, array: Operand, like: ir.Value | None = None) -> Value:
        """A small constant, stored once; floats take the type of the value they meet."""
        array = np.asarray(array)
        if like is not None and like.dtype is not None:
            array = array.astype(like.dtype.numpy())
        key = (array.dtype.str, array.dtype.name, array.shape, array.tobytes())
        if key not in self._constants:
            self._constants[key] = self.initializer(ir.Tensor(array, name=f"constant_{len(self._constants)}"))
        return self._constants[key]

    # nodes

    @contextlib.contextmanager
    def scope(self, name: str) -> Generator[None]:
        """Names of nodes made inside start with `name`."""
        self._path.append(name)
        yield
        self._path.pop()

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if not op[:1].isupper():
            raise AttributeError(op)
        return lambda *inputs, outputs=1, **attributes: self.node(op, inputs, attributes, outputs)

    def node(self, op: str, inputs: Sequence[Any], attributes: dict[str, Any], outputs: int = 1) -> Any:
        """A node of ai.onnx; its outputs get the types and shapes that the schema infers.

        Raises GraphError for an unknown operator and for inputs that do not fit.
        """
        node = self._append("", op, inputs, attributes, outputs)
        infer(node, self.graph.opset_imports)
        return self._outputs(node)

    def microsoft(
        self, op: str, inputs: Sequence[Any], attributes: dict[str, Any], *types: tuple[ir.Value, Dims]
    ) -> Any:
        """A node of com.microsoft. It has no schema here: for each output, a value of the same type, and the shape."""
        self.graph.opset_imports.setdefault("com.microsoft", 1)
        node = self._append("com.microsoft", op, inputs, attributes, len(types))
        for output, (like, shape) in zip(node.outputs, types, strict=True):
            output.type, output.shape = like.type, ir.Shape(shape)
        return self._outputs(node)

    def _append(
        self, domain: str, op: str, inputs: Sequence[Any], attributes: dict[str, Any], outputs: int
    ) -> ir.Node:
        like = next((v for v in inputs if isinstance(v, ir.Value)), None)
        name = self._unique(op)
        node = ir.Node(
            domain,
            op,
            [v if v is None or isinstance(v, ir.Value) else self._operand(v, like) for v in inputs],
            attributes=[_attribute(key, value) for key, value in attributes.items()],
            outputs=[Value(self, name=name if outputs == 1 else f"{name}.{k}") for k in range(outputs)],
            name=name,
        )
        self.graph.append(node)
        return node

    def _operand(self, value: Any, like: ir.Value | None) -> Value:
        """A float takes the type of the tensor beside it, an int too if that holds integers; all else is i64."""
        integers = like is not None and like.dtype is not None and like.dtype.is_integer()
        return self.constant(
            value, like if isinstance(value, float) or (isinstance(value, int) and integers) else None
        )

    @staticmethod
    def _outputs(node: ir.Node) -> Any:
        return node.outputs[0] if len(node.outputs) == 1 else list(node.outputs)

    def _unique(self, op: str) -> str:
        name = ".".join([*self._path, op])
        count = self._taken[name] = self._taken.get(name, 0) + 1
        return name if count == 1 else f"{name}_{count}"

    # shapes and rows, in any dialect

    def cast(self, x: Value, dtype: str | ir.DataType) -> Value:
        """x as `dtype`; x itself where it is that already."""
        return x if x.dtype == _dtype(dtype) else self.Cast(x, to=int(_dtype(dtype)))

    def length(self, x: Value, axis: int = 1) -> Value:
        """The size of one axis, a scalar i64."""
        return self.Squeeze(self.Shape(x, start=axis, end=axis + 1), [0])

    def last(self, x: Value, n: Value, axis: int = 1) -> Value:
        """The last n entries of x (n is at least 1)."""
        return self.Slice(x, self.Unsqueeze(self.Neg(n), [0]), [np.iinfo(np.int64).max], [axis])

    def rows(self, x: Any, columns: Value | None) -> Any:
        """Of each row of the batch, the named positions; all of x (or None) where none are named.

        [B, S, ...], [B, K] -> [B, K, ...]
        """
        return (
            x
            if x is None or columns is None
            else self.GatherND(x, self.Unsqueeze(columns, [2]), batch_dims=1)
        )

    def model(self, properties: dict[str, str]) -> ir.Model:
        """The finished graph as a model; IR version 11 is what opset 23 asks for."""
        if unnamed := [v.name for v in self.graph.outputs if v.shape is None]:
            raise GraphError(f"outputs without a shape: {unnamed}", at=self.graph.name or "")
        model = ir.Model(self.graph, ir_version=11, producer_name="cabochon")
        model.metadata_props.update(properties)
        return model


def _attribute(name: str, value: Any) -> ir.Attr:
    """onnx_ir looks for graphs and tensors in a sequence before it looks for numbers: that takes the longest."""
    whole = isinstance(value, list | tuple) and value and all(isinstance(number, int) for number in value)
    return ir.convenience.convert_attribute(name, value, ir.AttributeType.INTS if whole else None)


def _dtype(dtype: str | ir.DataType) -> ir.DataType:
    return DTYPES[dtype] if isinstance(dtype, str) else dtype
