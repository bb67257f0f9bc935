"""Shape inference, one node at a time, so that a wrong shape fails at the Python line that made it."""

from collections.abc import Mapping
from typing import Any

import onnx
import onnx_ir as ir

from cabochon.errors import GraphError

__all__ = ["infer"]

# What the schema sees of a node -> what it says of the outputs. Decoders repeat a few dozen nodes in every layer.
Known = tuple[ir.TypeProtocol | None, ir.Shape | None]
_known: dict[Any, list[Known | None]] = {}

# Only small integers shape anything (Reshape, Slice ...); looking at more would read weights.
_SHAPING = 8


def infer(node: ir.Node, opsets: Mapping[str, int]) -> None:
    """Set type and shape of the node's outputs. Raises GraphError for an unknown operator or shapes that do not fit."""
    key = (
        node.op_type,
        tuple(None if v is None else (v.dtype, _dims(v), _shaping(v)) for v in node.inputs),
        tuple(sorted((a.name, str(a.value)) for a in node.attributes.values())),
        len(node.outputs),
        opsets[node.domain],
    )
    if key not in _known:
        _known[key] = _inferred(node, opsets)
    for output, known in zip(node.outputs, _known[key], strict=True):
        if known is not None:
            output.type, output.shape = known[0], None if known[1] is None else ir.Shape(known[1].dims)


def _inferred(node: ir.Node, opsets: Mapping[str, int]) -> list[Known | None]:
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets[node.domain], node.domain)
    except onnx.defs.SchemaError:
        raise GraphError(
            f"operator {node.op_type!r} is not in opset {opsets[node.domain]}", at=node.name or ""
        ) from None
    proto = onnx.NodeProto(op_type=node.op_type, domain=node.domain)
    proto.input.extend("" if v is None else f"i{k}" for k, v in enumerate(node.inputs))
    proto.output.extend(f"o{k}" for k in range(len(node.outputs)))
    proto.attribute.extend(ir.serde.serialize_attribute(a) for a in node.attributes.values())
    types, data = {}, {}
    for name, value in zip(proto.input, node.inputs, strict=True):
        if value is None or value.type is None:
            continue
        types[name] = ir.serde.serialize_type(value.type)
        if value.shape is not None:
            ir.serde.serialize_shape_into(types[name], value.shape)
        if _shaping(value) is not None and value.const_value is not None:
            data[name] = ir.serde.serialize_tensor(value.const_value)
    try:
        found = onnx.shape_inference.infer_node_outputs(
            schema,
            proto,
            types,
            data,
            opset_imports=[onnx.helper.make_opsetid(d, n) for d, n in opsets.items()],
        )
    except Exception as error:  # onnx raises its InferenceError and, for broken attributes, several others
        shapes = ", ".join("-" if v is None else f"{v.dtype}{_dims(v)}" for v in node.inputs)
        raise GraphError(f"{node.op_type}({shapes}): {error}", at=node.name or "") from error
    read = ir.serde
    return [
        (read.deserialize_type_proto_for_type(found[o]), read.deserialize_type_proto_for_shape(found[o]))
        if o in found
        else None
        for o in proto.output
    ]


def _dims(value: ir.Value) -> tuple[str, ...] | None:
    return None if value.shape is None else tuple(map(str, value.shape))


def _shaping(value: ir.Value) -> bytes | None:
    constant = value.const_value
    if constant is None or value.dtype != ir.DataType.INT64 or constant.size > _SHAPING:
        return None
    return constant.numpy().tobytes()
