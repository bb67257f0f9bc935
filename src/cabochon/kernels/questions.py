"""Graphs of one operator each, made of the schemas of the installed onnxruntime: what a runtime is asked that lists no
kernels of its own. It has a kernel for what it takes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cabochon.kernels.generate import Rows, bindings
from cabochon.kernels.tables import Operator

__all__ = ["Question", "questions", "rows"]

OLDEST = 13  # of the operator sets of ai.onnx that are asked about
PLAIN = 21  # the operator set around operators that are older than that, or of another domain
TYPES = (
    "float",
    "float16",
    "bfloat16",
    "double",
    "int32",
    "int64",
    "uint32",
    "uint8",
    "int8",
    "bool",
    "int4",
    "uint4",
)
_PREFERRED = (("float",), ("float16", "float"), ("int64",), ("bool",), ("int32",), ("uint8",))
_VARIED = 2  # of the choices above: those of which the types of each variable are tried one by one
# Values of required attributes that a schema's type does not tell.
_VALUES: Mapping[str, Any] = {
    **{"num_heads": 8, "q_num_heads": 8, "kv_num_heads": 2, "hidden_size": 64, "K": 64, "N": 64, "bits": 4},
    **{
        "block_size": 32,
        "gather_axis": 0,
        "quantize_axis": 1,
        "equation": "ij,jk->ik",
        "mode": "DCR",
        "axes": [0],
    },
    **{"kernel_shape": [1, 1], "blocksize": 2, "quant_type": 1},
}
_BY_TYPE: Mapping[str, Any] = {
    **{"FLOAT": 1.0, "INT": 1, "STRING": "x", "FLOATS": [1.0], "INTS": [1], "STRINGS": ["x"]},
}


@dataclass(frozen=True)
class Question:
    """Whether there is a kernel of an operator, as it has been since a version, for these types by type variable."""

    operator: Operator
    since: int
    types: Mapping[str, str]
    graph: bytes


def questions(wanted: Iterable[Operator] | None = None) -> Iterator[Question]:
    """All that is asked of each version of each operator; of the `wanted` ones alone where some are."""
    chosen = None if wanted is None else set(wanted)
    versions = dict[Operator, list[Any]]()
    for schema in bindings().get_all_operator_schema():
        if schema.domain in ("", "com.microsoft"):
            versions.setdefault((schema.domain, schema.name), []).append(schema)
    for operator, schemas in versions.items():
        if chosen is None or operator in chosen:
            schemas.sort(key=lambda schema: schema.since_version)
            ends = [later.since_version for later in schemas[1:]]
            for schema, end in zip(schemas, [*ends, 1 << 30], strict=True):
                if end > OLDEST or operator[0]:
                    yield from _of(operator, schema)


def _of(operator: Operator, schema: Any) -> Iterator[Question]:
    allowed = {c.type_param_str: _tensors(c.allowed_type_strs) for c in schema.type_constraints}
    if not all(allowed.values()):
        return  # an operator over sequences or text
    for types in _choices(allowed):
        for all_inputs in (True, False):
            if graph := _graph(schema, types, all_inputs):
                yield Question(operator, schema.since_version, types, graph)


def _tensors(kinds: Iterable[str]) -> list[str]:
    present = set(kinds)
    return [name for name in TYPES if f"tensor({name})" in present]


def _choices(allowed: Mapping[str, list[str]]) -> list[dict[str, str]]:
    """Types for all variables: the same for all where that may be, and then each variable's types in turn."""
    first = [
        {
            name: next((kind for kind in preferred if kind in kinds), kinds[0])
            for name, kinds in allowed.items()
        }
        for preferred in _PREFERRED
    ]
    varied = [
        {**choice, name: kind}
        for name, kinds in allowed.items()
        for choice in first[:_VARIED]
        for kind in kinds
    ]
    unique = {tuple(sorted(choice.items())): choice for choice in (*first, *varied)}
    return list(unique.values())


def _graph(schema: Any, types: Mapping[str, str], all_inputs: bool) -> bytes:
    """The graph of one node, its inputs of any shape; empty where it cannot be made."""
    from onnx import helper

    attributes = _attributes(schema, types)
    inputs, outputs = _ends(schema.inputs, types, all_inputs), _ends(schema.outputs, types, all_inputs)
    if attributes is None or inputs is None or outputs is None:
        return b""
    names = [value.name if value else "" for value in inputs]
    while names and not names[-1]:
        names.pop()
    made = [value.name for value in outputs if value]
    node = helper.make_node(schema.name, names, made, domain=schema.domain, **attributes)
    graph = helper.make_graph([node], "asked", [v for v in inputs if v], [v for v in outputs if v])
    version = schema.since_version if not schema.domain and schema.since_version >= OLDEST else PLAIN
    opsets = [helper.make_opsetid("", version)]
    opsets += [helper.make_opsetid(schema.domain, 1)] if schema.domain else []
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def _ends(formal: Iterable[Any], types: Mapping[str, str], every: bool) -> list[Any] | None:
    """A value for each parameter, None for one that is left out; None where one is no tensor."""
    from onnx import helper

    found = list[Any]()
    for i, one in enumerate(formal):
        kind = types.get(one.typeStr) or one.typeStr.removeprefix("tensor(").removesuffix(")")
        if not every and str(one.option).endswith("Optional"):
            found.append(None)
        elif (number := _number(kind)) is None:
            return None
        else:
            name = f"{one.name}_{i}"
            found.append(helper.make_value_info(name, helper.make_tensor_type_proto(number, None)))
    return found


def _number(kind: str) -> int | None:
    from onnx import TensorProto

    return dict(TensorProto.DataType.items()).get(kind.upper())


def _attributes(schema: Any, types: Mapping[str, str]) -> dict[str, Any] | None:
    """Those that the operator requires, and those that say a type; None where one is a graph or a tensor."""
    found = dict[str, Any]()
    for name, attribute in schema.attributes.items():
        if attribute.required:
            value = _VALUES.get(name, _BY_TYPE.get(str(attribute.type).rpartition(".")[2]))
            if value is None:
                return None
            found[name] = value
    if schema.name in ("Cast", "DequantizeLinear", "QuantizeLinear"):
        said = "to" if schema.name == "Cast" else "output_dtype"
        if said in schema.attributes and (kind := types.get("T2" if said == "to" else "T3")):
            found[said] = _number(kind)
    return found


def rows(answers: Iterable[tuple[Question, bool]]) -> Rows:
    """The rows of a table: of each version what was taken, the types of its variables together where one may vary."""
    taken = dict[tuple[Operator, int], list[Mapping[str, str]]]()
    for question, yes in answers:
        if yes:
            found = taken.setdefault((question.operator, question.since), [])
            if question.types not in found:
                found.append(question.types)
    result: Rows = {}
    for (domain, name), since in sorted(taken):
        listed = result.setdefault(domain, {}).setdefault(name, [])
        listed += [(since, since, types) for types in _together(taken[(domain, name), since])]
    return result


def _together(taken: list[Mapping[str, str]]) -> Iterator[dict[str, str]]:
    left = list(taken)
    while left:
        first = left[0]
        sets = {name: {kind} for name, kind in first.items()}
        for types in left:
            apart = [name for name in types if types[name] != first[name]]
            if len(apart) == 1:
                sets[apart[0]].add(types[apart[0]])
        yield {name: " ".join(sorted(kinds)) for name, kinds in sorted(sets.items())}
        left = [types for types in left if not all(types[name] in sets[name] for name in types)]
