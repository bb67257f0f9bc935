"""The operators that masks are made of, in numpy: importing onnx's evaluator, which has all, takes longer than all the
rules on attention.

What is unusual raises an exception here, whatever it is: onnx's evaluator then says what it comes to.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import NodeProto, helper

__all__ = ["run"]


def run(node: NodeProto, inputs: list[Any]) -> list[np.ndarray]:
    """The outputs of a node of ai.onnx, from operator set 13 on. Raises an exception for what is not known here."""
    said = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    found = _OPERATORS[node.op_type](*inputs, **said)
    return found if isinstance(found, list) else [np.asarray(found)]


def _same(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of numbers of one type, which numpy does not ask for."""

    def checked(*values: np.ndarray) -> Any:
        if len({value.dtype for value in values}) != 1:
            raise TypeError("of several types")
        return function(*values)

    return checked


def _cast(x: np.ndarray, *, to: int) -> np.ndarray:
    return x.astype(helper.tensor_dtype_to_np_dtype(to))


def _concat(*values: np.ndarray, axis: int) -> np.ndarray:
    return np.concatenate(values, axis)


def _expand(x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape)))


def _gather_nd(x: np.ndarray, indices: np.ndarray, *, batch_dims: int = 0) -> np.ndarray:
    rows = np.indices(indices.shape[:-1])[:batch_dims]
    return x[(*rows, *np.moveaxis(indices, -1, 0))]


def _range(start: Any, limit: Any, delta: Any) -> np.ndarray:
    return np.arange(start, limit, delta).astype(start.dtype)


def _reduce_sum(x: np.ndarray, axes: np.ndarray, *, keepdims: int = 1) -> np.ndarray:
    return np.sum(x, tuple(axes), x.dtype, keepdims=bool(keepdims))


def _shape(x: np.ndarray, *, start: int = 0, end: int | None = None) -> np.ndarray:
    return np.array(x.shape[start:end], np.int64)


def _slice(x: np.ndarray, starts: Any, ends: Any, axes: Any, steps: Any = None) -> np.ndarray:
    given = zip(starts, ends, np.ones_like(starts) if steps is None else steps, strict=True)
    spans = dict(zip(axes.tolist(), (slice(*span) for span in given), strict=True))
    return x[tuple(spans.get(axis, spans.get(axis - x.ndim, slice(None))) for axis in range(x.ndim))]


def _top_k(x: np.ndarray, k: np.ndarray) -> list[np.ndarray]:
    best = np.argsort(-x, axis=-1, kind="stable")[..., : k.item()]  # of equal ones the first
    return [np.take_along_axis(x, best, -1), best]


def _where(condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return _same(lambda x, y: np.where(condition, x, y))(x, y)


_OPERATORS: Mapping[str, Callable[..., Any]] = {
    "Add": _same(np.add),
    "And": _same(np.logical_and),
    "Cast": _cast,
    "Concat": _concat,
    "CumSum": lambda x, axis: np.cumsum(x, axis.item(), x.dtype),
    "Equal": _same(np.equal),
    "Expand": _expand,
    "GatherND": _gather_nd,
    "Greater": _same(np.greater),
    "GreaterOrEqual": _same(np.greater_equal),
    "Less": _same(np.less),
    "LessOrEqual": _same(np.less_equal),
    "Max": _same(np.maximum),
    "Min": _same(np.minimum),
    "Neg": np.negative,
    "Or": _same(np.logical_or),
    "Range": _same(_range),
    "ReduceSum": _reduce_sum,
    "Shape": _shape,
    "Slice": _slice,
    "Squeeze": lambda x, axes: np.squeeze(x, tuple(axes)),
    "Sub": _same(np.subtract),
    "TopK": _top_k,
    "Unsqueeze": lambda x, axes: np.expand_dims(x, tuple(axes)),
    "Where": _where,
}
