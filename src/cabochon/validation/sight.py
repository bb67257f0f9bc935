"""Which keys a mask lets a token see, found by computing the mask: the part of the graph that makes it is run."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from cabochon.validation import masks
from cabochon.validation.caches import named
from cabochon.validation.graph import Graph

__all__ = ["Feed", "Sight", "computed", "sights"]

_MOST = 500  # nodes of the part that makes masks; more is no mask
_FEW = 5  # new tokens of the short prefill; no number of heads, which may be the rows of a lone token's mask
_LARGEST = 1 << 24  # elements of a value; a mask of the longest context of one token has 2^17
# What masks and lengths are made of: nothing that loops, or that makes much out of little unseen.
_OPERATORS = """
Abs Add And Cast CastLike Clip Concat Constant ConstantOfShape CumSum Div Equal Expand Flatten Gather GatherElements
GatherND Greater GreaterOrEqual Identity Less LessOrEqual Max Min Mod Mul Neg Not Or Pad Range ReduceMax ReduceMin
ReduceSum Reshape ScatterElements Shape Size Slice Squeeze Sub TopK Transpose Trilu Unsqueeze Where
"""
_SIMPLE = frozenset(_OPERATORS.split())
_HIDDEN = -1e4  # what is added to the score of a key that must not count


@dataclass(frozen=True)
class Feed:
    """One row of real tokens: `new` ones behind `past` others; `room`: the columns of the caches."""

    past: int
    new: int
    room: int


@dataclass(frozen=True)
class Sight:
    """What a mask shows: the keys that a single token sees behind `past` others, and those that each row of a prefill
    of five tokens sees. `unknown`: why it could not be computed.
    """

    past: int
    alone: tuple[int, ...] = ()
    prefill: tuple[tuple[int, ...], ...] = ()
    unknown: str = ""

    @property
    def window(self) -> int | None:
        """The number of keys a token sees, itself included; None: all."""
        return None if len(self.alone) == self.past + 1 else len(self.alone)

    @property
    def latest(self) -> bool:
        """Whether the keys seen are the last ones."""
        return self.alone == tuple(range(self.past + 1 - len(self.alone), self.past + 1))

    @property
    def causal(self) -> bool:
        """Whether no token of the prefill sees one behind it. Of a mask of other rows all are the last token's."""
        tokens = range(_FEW) if len(self.prefill) == _FEW else (_FEW - 1,) * len(self.prefill)
        return all(max(row, default=0) <= i for i, row in zip(tokens, self.prefill, strict=True))


def sights(graph: Graph, masks: Mapping[str, bool], window: int) -> Mapping[str, Sight]:
    """By mask: what it shows of more keys than `window`. `masks`: its name, and whether true is visible."""
    found, past = dict[str, Sight](), window + 3
    for name, visible in masks.items():
        try:
            alone = _visible(computed(graph, name, Feed(past, 1, past)), visible)
            prefill = _visible(computed(graph, name, Feed(0, _FEW, 0)), visible)
        except LookupError as error:
            found[name] = Sight(past, unknown=str(error.args[0]))
        else:
            found[name] = Sight(past, alone[-1], tuple(prefill))
    return found


def computed(graph: Graph, name: str, feed: Feed) -> np.ndarray:
    """A value of the graph, from lengths alone. Raises LookupError where it cannot be computed so."""
    part, unknown = _part(graph, name)
    if unknown:
        raise LookupError(unknown)
    try:
        return _run(graph, part, name, feed)
    except Exception as error:  # whatever an operator makes of a graph that may be wrong
        raise LookupError(f"it cannot be computed: {type(error).__name__}: {error}"[:200]) from error


def _part(graph: Graph, name: str) -> tuple[list[NodeProto], str]:
    """The nodes that make a value, in order; or why they cannot be run alone."""
    wanted, names = set[int](), [name]
    while names:
        value = names.pop()
        weight = graph.initializers.get(value)
        if weight is not None and weight.external is not None:
            return [], f"it depends on the weight {value}"
        node = graph.producers.get(value)
        if node is None or id(node) in wanted:
            continue
        if node.domain not in ("", "ai.onnx") or node.op_type not in _SIMPLE:
            return [], f"it depends on {node.op_type}"
        wanted.add(id(node))
        names += [given for given in node.input if given]
        if len(wanted) > _MOST:
            return [], f"more than {_MOST} nodes make it"
    return [node for node in graph.proto.graph.node if id(node) in wanted], ""


def _run(graph: Graph, nodes: Collection[NodeProto], name: str, feed: Feed) -> np.ndarray:
    needed = {given for node in nodes for given in node.input} | {name}
    feeds = {port: _fed(graph, port, feed) for port in graph.ports.inputs if port in needed}
    held = [w.proto for w in graph.initializers.values() if w.name in needed and w.name not in feeds]
    given = {"": None, **{tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in held}, **feeds}
    try:
        return _valued(name, given, [(node, partial(masks.run, node)) for node in nodes])
    except Exception:  # an operator that is rare in masks, or a fault: onnx's own evaluator tells which
        return _valued(name, given, _by_onnx(graph, nodes, name, feeds, held))


Step = tuple[NodeProto, Callable[[list[Any]], Iterable[Any]]]  # a node and what computes its outputs


def _by_onnx(
    graph: Graph, nodes: Collection[NodeProto], name: str, feeds: Collection[str], held: list[TensorProto]
) -> Iterator[Step]:
    from onnx.reference import ReferenceEvaluator

    part = GraphProto(name="part", node=nodes, initializer=held)
    part.input.extend(value for value in graph.proto.graph.input if value.name in feeds)
    part.output.add().name = name
    model = ModelProto(ir_version=graph.proto.ir_version, graph=part, opset_import=graph.proto.opset_import)
    evaluator: Any = ReferenceEvaluator(model)
    for node, step in zip(nodes, evaluator.rt_nodes_, strict=True):
        yield node, lambda inputs, step=step: step.run(*inputs)


def _valued(name: str, given: Mapping[str, Any], steps: Iterable[Step]) -> np.ndarray:
    """The value `name`, from those that are given."""
    values = dict(given)
    for node, compute in steps:
        inputs = [values[given] for given in node.input]
        if _elements(node.op_type, inputs) > _LARGEST:
            raise ValueError(f"{node.op_type} makes more than {_LARGEST:,} elements")
        values.update(zip(node.output, compute(inputs), strict=False))
    return np.asarray(values[name])


def _elements(op_type: str, inputs: list[Any]) -> int:
    """The elements that a step may make, before it makes them."""
    given = [np.asarray(value) for value in inputs if value is not None]
    if op_type == "Range":
        start, limit, delta = (int(value) for value in given)
        return max(0, -(-(limit - start) // delta)) if delta else 0
    if op_type == "Pad":
        more = np.abs(given[1].reshape(-1)).astype(np.int64)
        return given[0].size + int(more.sum()) * max(
            1, given[0].size
        )  # more than it makes, and enough to know
    if op_type in ("Expand", "ConstantOfShape"):
        return math.prod(int(size) for size in given[-1])
    try:
        return math.prod(np.broadcast_shapes(*(value.shape for value in given)))
    except ValueError:  # not an operator over pairs of elements
        return sum(value.size for value in given)


def _fed(graph: Graph, port: str, feed: Feed) -> np.ndarray:
    if port == "input_ids":
        return np.zeros((1, feed.new), np.int64)
    if port == "attention_mask":
        return np.ones((1, feed.past + feed.new), np.int64)
    if port == "position_ids":
        return np.arange(feed.past, feed.past + feed.new)[None]
    shape = graph.ports.inputs[port].shape
    if shape[1:2] == ("sequence",):  # tokens that another graph embedded
        return np.broadcast_to(
            np.float32(0), [1, feed.new, *(d if isinstance(d, int) else 1 for d in shape[2:])]
        )
    if named(port):  # only its shape is asked for: no memory
        return np.broadcast_to(
            np.float32(0), [1, *(d if isinstance(d, int) else feed.room for d in shape[1:])]
        )
    return np.zeros([d if isinstance(d, int) else 1 for d in shape], np.int64)


def _visible(mask: np.ndarray, visible: bool) -> list[tuple[int, ...]]:
    """The columns that each row sees."""
    seen = mask == visible if mask.dtype == bool else mask > _HIDDEN
    rows = seen.reshape(-1, seen.shape[-1])
    return [tuple(np.flatnonzero(row).tolist()) for row in rows]
