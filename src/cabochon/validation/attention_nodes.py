"""Attention as a graph spells it: one fused operator, or a softmax written out."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from cabochon.validation.caches import named
from cabochon.validation.graph import Graph
from cabochon.validation.memo import once

__all__ = ["AttentionNode", "attention_nodes", "attributes", "given", "shapes"]

FUSED = ("Attention", "GroupQueryAttention", "MultiHeadAttention")
_PASSED = {"Identity", "Cast", "CastLike", "Reshape", "Transpose", "Expand", "Squeeze", "Unsqueeze"}
_FAR = 40  # nodes between a softmax, or a head, and what it comes from


@dataclass(frozen=True)
class AttentionNode:
    """What one attention of the graph says of itself; None where it does not say it.

    `layer`: index of the decoder layer; `cache`: the layer whose keys it reads; `appends`: whether it adds to them.
    `query`, `key`, `mask`: names of values ("" where there is none); `visible`: whether `mask` is true where a token
    may look, false where it may not; a mask of numbers is added. `window`: the operator's own, in keys; -1 is all.
    """

    node: NodeProto
    layer: int
    cache: int | None
    appends: bool
    query: str
    key: str
    mask: str = ""
    visible: bool = True
    heads: int | None = None
    kv_heads: int | None = None
    size: int | None = None
    scale: float | None = None
    softcap: float = 0.0
    window: int = -1
    causal: bool = False
    rotates: bool = False

    @property
    def name(self) -> str:
        """The operator and the node's name."""
        return f"{self.node.op_type} {self.node.name or next(iter(self.node.output), '')}"


def attributes(node: NodeProto) -> dict[str, Any]:
    """The attributes of a node; text as str."""
    found = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}


def shapes(graph: Graph) -> Mapping[str, tuple[int | None, ...]]:
    """The shape of every value that the graph states one of; None is a dimension without a number."""
    return once(graph, _shapes)


def _shapes(graph: Graph) -> dict[str, tuple[int | None, ...]]:
    proto = graph.proto.graph
    found = dict[str, tuple[int | None, ...]]()
    found |= {weight.name: weight.shape for weight in graph.initializers.values()}
    for value in (*proto.value_info, *proto.input, *proto.output):
        if value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            found[value.name] = tuple(d.dim_value if d.HasField("dim_value") else None for d in dims)
    return found


def attention_nodes(graph: Graph) -> tuple[AttentionNode, ...]:
    """Every attention over a cache, in the order of the layers."""
    return once(graph, _attention_nodes)


def _attention_nodes(graph: Graph) -> tuple[AttentionNode, ...]:
    readers = {
        "Attention": _attention,
        "GroupQueryAttention": _group_query,
        "MultiHeadAttention": _multi_head,
        "Softmax": _written_out,
    }
    found, filled = list[AttentionNode](), set[int | None]()
    for node in graph.proto.graph.node:
        if (reader := readers.get(node.op_type)) and (read := reader(graph, node)):
            layer = _layer(node, len(found))
            if read.appends and not graph.consumers.get(node.output[0]):
                filled.add(layer)  # it only adds to the cache: the layer's softmax is written out behind it
            else:
                found.append(replace(read, layer=layer, appends=read.appends or layer in filled))
    return tuple(found)


def _layer(node: NodeProto, count: int) -> int:
    """The layer in the node's name, else its place among all attentions."""
    match = re.match(r"layers\.(\d+)\.", node.name or next(iter(node.output), ""))
    return int(match[1]) if match else count


def _attention(graph: Graph, node: NodeProto) -> AttentionNode | None:
    """Attention of ai.onnx: Q, K, V, mask, past keys, past values; heads on axis 1, or side by side."""
    said, (query, key, _, mask, past, _) = attributes(node), _inputs(node, 6)
    cache = cache_of(graph, past or key)
    four = len(shapes(graph).get(query, ())) == 4
    return AttentionNode(
        node,
        0,
        cache,
        bool(past),
        query,
        key,
        mask,
        heads=_folded_heads(graph, query) if four else said.get("q_num_heads"),
        kv_heads=_dim(graph, past or key, 1) if four else said.get("kv_num_heads"),
        size=_dim(graph, past or key, 3),
        scale=said.get("scale"),
        softcap=said.get("softcap", 0.0),
        causal=bool(said.get("is_causal", 0)),
    )


def _group_query(graph: Graph, node: NodeProto) -> AttentionNode | None:
    """GroupQueryAttention: query, key, value, past key, past value, lengths ... A scale of 0 means the default."""
    said, (query, key, _, past, *_) = attributes(node), _inputs(node, 12)
    cache = cache_of(graph, past)
    return AttentionNode(
        node,
        0,
        cache,
        appends=not _empty(graph, key),
        query=query,
        key=key,
        mask=_inputs(node, 12)[10],
        heads=said.get("num_heads"),
        kv_heads=said.get("kv_num_heads"),
        size=_dim(graph, past, 3),
        scale=said.get("scale") or None,
        softcap=said.get("softcap", 0.0),
        window=said.get("local_window_size", -1),
        causal=bool(said.get("causal", 1)),
        rotates=bool(said.get("do_rotary", 0)),
    )


def _multi_head(graph: Graph, node: NodeProto) -> AttentionNode | None:
    """MultiHeadAttention: query, key, value, bias, padding, attention bias, past key, past value."""
    said, inputs = attributes(node), _inputs(node, 8)
    return AttentionNode(
        node,
        0,
        cache_of(graph, inputs[6] or inputs[1]),
        bool(inputs[6]),
        inputs[0],
        inputs[1],
        inputs[5],
        heads=said.get("num_heads"),
        kv_heads=said.get("num_heads"),
        size=_dim(graph, inputs[6], 3),
        scale=said.get("scale"),
        causal=bool(said.get("unidirectional", 0)),
    )


def _inputs(node: NodeProto, count: int) -> list[str]:
    """The first `count` inputs; "" where there is none."""
    return [*node.input, *[""] * count][:count]


def given(node: NodeProto, place: int) -> str:
    """An input; "" where there is none."""
    return node.input[place] if len(node.input) > place else ""


def _dim(graph: Graph, name: str, axis: int) -> int | None:
    shape = shapes(graph).get(name, ())
    return shape[axis] if len(shape) > axis else None


def _folded_heads(graph: Graph, query: str) -> int | None:
    """Heads of a query [B, N, S, D]; of one whose heads were folded, those it had before."""
    for name in _upwards(graph, query):
        shape = shapes(graph).get(name, ())
        if len(shape) == 4 and shape[1] is not None:
            return shape[1]
    return None


def _upwards(graph: Graph, name: str) -> Iterator[str]:
    """The value and those it is but another form of."""
    for _ in range(_FAR):
        yield name
        node = graph.producers.get(name)
        if node is None or node.op_type not in _PASSED:
            return
        name = given(node, 0)


def cache_of(graph: Graph, name: str) -> int | None:
    """The layer of the cache that a value is, in whatever form."""
    for _ in range(_FAR):
        if port := named(name):
            return port[1]
        node = graph.producers.get(name)
        if node is None or node.op_type not in {*_PASSED, "Slice", "Where"}:
            return None
        name = given(node, 1 if node.op_type == "Where" else 0)
    return None


def _empty(graph: Graph, key: str) -> bool:
    """Whether the keys are those of no token, [B, 0, ...]: the shape they are expanded to says so."""
    if not key or _dim(graph, key, 1) == 0:
        return True
    node = graph.producers.get(key)
    if node is None or node.op_type not in ("Expand", "ConstantOfShape"):
        return False
    above = graph.producers.get(given(node, len(node.input) - 1) if node.input else "")
    sizes = (
        [graph.inline(name) for name in above.input]
        if above is not None and above.op_type == "Concat"
        else []
    )
    return any(size is not None and size.size and int(size.reshape(-1)[0]) == 0 for size in sizes)


def _written_out(graph: Graph, node: NodeProto) -> AttentionNode | None:
    """softmax(mask(scale · q kᵀ)): walked from the softmax up to the product with the keys of a cache."""
    read, name, scale = AttentionNode(node, 0, None, False, "", ""), given(node, 0), 1.0
    for _ in range(_FAR):
        above = graph.producers.get(name)
        if above is None:
            return None
        if above.op_type == "MatMul":
            return _product(graph, replace(read, scale=scale), above)
        if (step := _step(graph, above)) is None:
            return None
        name, scale = step.above, scale * step.factor
        if step.mask:
            read = replace(read, mask=step.mask, visible=step.visible)
        read = replace(read, softcap=step.softcap or read.softcap)
    return None


def _product(graph: Graph, read: AttentionNode, product: NodeProto) -> AttentionNode | None:
    """q kᵀ, or k qᵀ, if k is a cache's."""
    for query, key in (_inputs(product, 2), reversed(_inputs(product, 2))):
        if (cache := cache_of(graph, key)) is not None:
            heads = _dim(graph, given(read.node, 0), 1)
            port = f"present.{cache}.key"
            sizes = dict(kv_heads=_dim(graph, port, 1), size=_dim(graph, port, 3))
            return replace(read, query=query, key=key, cache=cache, heads=heads, **sizes)
    return None


@dataclass(frozen=True)
class Step:
    """One node between the product and the softmax: what it comes `above` from, and what it does to the scores."""

    above: str
    factor: float = 1.0
    mask: str = ""
    visible: bool = True
    softcap: float = 0.0


def _step(graph: Graph, node: NodeProto) -> Step | None:
    """None for a node that is no part of an attention."""
    if node.op_type in _PASSED:
        return Step(given(node, 0))
    if node.op_type == "Where":
        fill, other = _number(graph, given(node, 2)), _number(graph, given(node, 1))
        if fill is None and other is None:
            return None
        return Step(given(node, 1 if fill is not None else 2), mask=given(node, 0), visible=fill is not None)
    if node.op_type in ("Mul", "Div"):
        return _scaled(graph, node)
    if node.op_type == "Add":
        bias = next((i for i in (1, 0) if not _leads_to_product(graph, given(node, i))), None)
        return None if bias is None else Step(given(node, 1 - bias), mask=given(node, bias))
    return None


def _scaled(graph: Graph, node: NodeProto) -> Step | None:
    """x · c or x / c; cap · tanh(x / cap) is a soft-cap."""
    for i in (1, 0) if node.op_type == "Mul" else (1,):
        factor = _number(graph, given(node, i))
        if factor is None:
            continue
        above = graph.producers.get(given(node, 1 - i))
        if node.op_type == "Mul" and above is not None and above.op_type == "Tanh":
            return _capped(graph, above, factor)
        return Step(given(node, 1 - i), factor if node.op_type == "Mul" else 1 / factor)
    return None


def _capped(graph: Graph, tanh: NodeProto, cap: float) -> Step | None:
    inner = graph.producers.get(given(tanh, 0))
    step = _scaled(graph, inner) if inner is not None and inner.op_type in ("Mul", "Div") else None
    return replace(step, factor=step.factor * cap, softcap=cap) if step else None


def _leads_to_product(graph: Graph, name: str) -> bool:
    for _ in range(_FAR):
        node = graph.producers.get(name)
        if node is None or node.op_type in ("MatMul", "Add"):
            return node is not None and node.op_type == "MatMul"
        if (step := _step(graph, node)) is None:
            return False
        name = step.above
    return False


def _number(graph: Graph, name: str) -> float | None:
    """The value of a constant of one element, cast or not."""
    for above in _upwards(graph, name):
        value = graph.inline(above)
        if value is not None and value.size == 1:
            return float(np.asarray(value).reshape(-1)[0])
    return None
