"""The nodes of a graph with their types, and whether a provider has kernels for them.

The kernels of the CPU provider are those that the installed onnxruntime registers, whatever its version; those of other
providers, which no installed wheel lists, are the tables of `cabochon.kernels`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any

from onnx import AttributeProto, GraphProto, NodeProto, TypeProto, defs, helper

from cabochon.kernels import PROVIDERS, Provider
from cabochon.kernels.generate import CPU, bindings, installed
from cabochon.validation.graph import Graph
from cabochon.validation.memo import once

__all__ = [
    "Place",
    "Typed",
    "element_types",
    "place",
    "provider",
    "registry_version",
    "runs",
    "schema",
    "typed",
]

_DEEP = 4  # functions inside functions
_NAMES = {"float32": "float", "float64": "double"}  # numpy -> onnxruntime, where they differ
_NUMPY = {name: numpy for numpy, name in _NAMES.items()}


@dataclass(frozen=True)
class Typed:
    """A node with the element types of its inputs and outputs by numpy's names; "" where there is none, or none known.

    `version`: of the operator set that it belongs to.
    """

    node: NodeProto
    version: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def domain(self) -> str:
        """The operator's domain; "" is ai.onnx."""
        return "" if self.node.domain == "ai.onnx" else self.node.domain

    @property
    def floats(self) -> frozenset[str]:
        """The floating types that it handles."""
        return frozenset(name for name in (*self.inputs, *self.outputs) if "float" in name)


@cache
def _installed() -> Provider:
    """The table, where it is of the version that is installed, which a test holds it to: it is read faster."""
    table = PROVIDERS[CPU]
    return table if table.version == registry_version() else installed()


def provider(name: str) -> Provider:
    """What a provider has kernels for: the CPU's as they are installed, others as they are in their table."""
    return _installed() if name == CPU else PROVIDERS[name]


@cache
def _schemas() -> Mapping[tuple[str, str], list[Any]]:
    """Every version of every operator that onnxruntime knows, the newest first."""
    found = dict[tuple[str, str], list[Any]]()
    for known in bindings().get_all_operator_schema():
        found.setdefault((known.domain, known.name), []).append(known)
    return {key: sorted(all_, key=lambda s: -s.since_version) for key, all_ in found.items()}


def schema(domain: str, op_type: str, version: int) -> Any | None:
    """The operator as it was in a version of its set; None where onnxruntime does not know it."""
    known = _schemas().get((domain, op_type), [])
    return next((found for found in known if found.since_version <= version), None)


def registry_version() -> str:
    """The version of the registry."""
    import onnxruntime

    return onnxruntime.__version__


def typed(graph: Graph) -> tuple[Typed, ...]:
    """Every node with its types, those of bodies behind what they are inside of."""
    return once(graph, _typed)


def _typed(graph: Graph) -> tuple[Typed, ...]:
    return tuple(_deep(graph.proto.graph.node, graph.opsets, dict(element_types(graph))))


def _deep(nodes: Iterable[NodeProto], opsets: Mapping[str, int], types: dict[str, str]) -> Iterator[Typed]:
    for node in nodes:
        yield _with(node, opsets, types)
        for body in _bodies(node):
            inner = types | _stated(body)
            _fill(body.node, opsets, inner)
            yield from _deep(body.node, opsets, inner)


def _bodies(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def _stated(proto: GraphProto) -> dict[str, str]:
    """The types that a graph states."""
    found = {value.name: _name(value.type) for value in (*proto.value_info, *proto.input, *proto.output)}
    return found | {weight.name: _of(weight.data_type) for weight in proto.initializer}


def _with(node: NodeProto, opsets: Mapping[str, int], types: Mapping[str, str]) -> Typed:
    domain = "" if node.domain == "ai.onnx" else node.domain
    inputs = tuple(types.get(name, "") for name in node.input)
    return Typed(node, opsets.get(domain, 1), inputs, tuple(types.get(name, "") for name in node.output))


def element_types(graph: Graph) -> Mapping[str, str]:
    """The element type of every value: as the graph states it, else as the operators' schemas imply."""
    return once(graph, _element_types)


def _element_types(graph: Graph) -> Mapping[str, str]:
    proto = graph.proto.graph
    found = _stated(proto) | {weight.name: weight.dtype for weight in graph.initializers.values()}
    _fill(proto.node, graph.opsets, found)
    return found


def _name(given: TypeProto) -> str:
    return _of(given.tensor_type.elem_type)


def _fill(nodes: Any, opsets: Mapping[str, int], types: dict[str, str]) -> None:
    """Work out the types of values that are not stated, node by node."""
    for node in nodes:
        if all(types.get(name) for name in node.output if name):
            continue
        now = _with(node, opsets, types)
        for name, implied in zip(node.output, _implied(now), strict=False):
            if implied:
                types.setdefault(name, implied)


def _implied(node: Typed) -> Iterator[str]:
    """The types of the outputs."""
    known = schema(node.domain, node.node.op_type, node.version)
    said = {attribute.name: attribute for attribute in node.node.attribute}
    for i, _ in enumerate(node.node.output):
        if node.node.op_type == "Cast" and "to" in said:
            yield _of(said["to"].i)
        elif node.node.op_type == "DequantizeLinear":
            yield _of(said["output_dtype"].i) if "output_dtype" in said else _given(node, 1)
        elif node.node.op_type in ("Constant", "ConstantOfShape"):
            yield _of(said["value"].t.data_type) if "value" in said else "float32"
        else:
            yield _bound(node, known, i)


def _given(node: Typed, place: int) -> str:
    """The type of an input; "" where there is none."""
    return node.inputs[place] if place < len(node.inputs) else ""


@cache
def _of(number: int) -> str:
    """numpy's name of an element type, which numpy puts together anew each time; "" for one that is not known."""
    try:
        return helper.tensor_dtype_to_np_dtype(number).name
    except (KeyError, TypeError, ValueError):
        return ""


def _bound(node: Typed, known: Any | None, output: int) -> str:
    """The type of an output: fixed by the schema, or that of an input of the same type variable."""
    if known is None or not known.outputs:
        return ""
    wanted = known.outputs[min(output, len(known.outputs) - 1)].typeStr
    if wanted.startswith("tensor("):
        return _numpy(wanted)
    given = (kind for formal, kind in _formal(known.inputs, node.inputs) if formal.typeStr == wanted and kind)
    return next(given, _only(known, wanted))


def _only(known: Any, variable: str) -> str:
    allowed = next((c.allowed_type_strs for c in known.type_constraints if c.type_param_str == variable), [])
    return _numpy(allowed[0]) if len(allowed) == 1 else ""


def _numpy(text: str) -> str:
    name = text.removeprefix("tensor(").removesuffix(")")
    return _NUMPY.get(name, name)


def _formal(formal: Any, types: tuple[str, ...]) -> Iterator[tuple[Any, str]]:
    """Each given type beside its formal parameter; the last of a variadic operator stands for all that follow."""
    return ((formal[min(i, len(formal) - 1)], kind) for i, kind in enumerate(types) if formal)


class Place(IntEnum):
    """Where a node is computed, from the best to the worst."""

    OWN = 0  # by kernels of the provider
    BESIDE = 1  # by the provider that runs beside it
    UNKNOWN = 2  # nothing is known of the operator
    NOWHERE = 3


def runs(node: Typed) -> bool:
    """Whether the CPU provider of the installed onnxruntime runs a node."""
    return place(node, _installed()) == Place.OWN


def place(node: Typed, on: Provider) -> Place:
    """Where a node is computed: by a kernel for its types; as the operators that its function is made of; or, where it
    is of f16 alone, in f32 between casts that ONNX Runtime puts around it on a CPU (none are put around bf16).
    """
    return _place(node, on, 0)


def _place(node: Typed, on: Provider, depth: int) -> Place:
    operator = (node.domain, node.node.op_type)
    if not on.typed:
        return (
            Place.UNKNOWN if operator in on.unknown else Place.OWN if _has_kernel(node, on) else Place.NOWHERE
        )
    if _has_kernel(node, on):
        return Place.OWN
    if operator in on.unknown:
        return Place.UNKNOWN
    beside = provider(on.beside) if on.beside else None
    if beside and _has_kernel(node, beside):
        return Place.BESIDE
    if (unfolded := _unfolded(node, on, depth)) != Place.NOWHERE:
        return unfolded
    if "float16" in node.floats and not _mixed(node) and _has_kernel(_widened(node), beside or on):
        return Place.BESIDE if beside else Place.OWN
    return Place.NOWHERE


def _mixed(node: Typed) -> bool:
    """Whether f16 stands beside f32 where the operator wants one type: no cast is put around that."""
    known = schema(node.domain, node.node.op_type, node.version)
    bound = _bindings(node, known) if known else {}
    return any({"float16", "float"} <= kinds for kinds in bound.values())


def _widened(node: Typed) -> Typed:
    wide = {"float16": "float32"}
    inputs = tuple(wide.get(name, name) for name in node.inputs)
    return Typed(node.node, node.version, inputs, tuple(wide.get(name, name) for name in node.outputs))


def _has_kernel(node: Typed, on: Provider) -> bool:
    known = schema(node.domain, node.node.op_type, node.version)
    operator = (node.domain, node.node.op_type)
    return known is not None and on.has(operator, known.since_version, _bindings(node, known))


def _bindings(node: Typed, known: Any) -> Mapping[str, frozenset[str]]:
    """By type variable and by formal parameter: the types given, as ONNX calls them."""
    found = dict[str, frozenset[str]]()
    for formal, kind in (*_formal(known.inputs, node.inputs), *_formal(known.outputs, node.outputs)):
        if kind:
            for name in (formal.typeStr, formal.name):
                found[name] = found.get(name, frozenset()) | {_NAMES.get(kind, kind)}
    return found


def _unfolded(node: Typed, on: Provider, depth: int) -> Place:
    """Where the operators that a function of ai.onnx is made of are computed, for these types: the worst of it."""
    body = _body(node) if depth < _DEEP and node.domain == "" else None
    if body is None:
        return Place.NOWHERE
    types = dict(zip(body.input, node.inputs, strict=False))
    opsets = {entry.domain: entry.version for entry in body.opset_import} or {"": node.version}
    _fill(body.node, opsets, types)
    return max((_place(_with(inner, opsets, types), on, depth + 1) for inner in body.node), default=Place.OWN)


def _body(node: Typed) -> Any | None:
    known: Any
    try:
        known = defs.get_schema(node.node.op_type, node.version, "")
    except defs.SchemaError:
        return None
    if known.has_function:
        return known.function_body
    if not known.has_context_dependent_function:
        return None
    from onnx import FunctionProto

    types = [_type(kind) for kind in node.inputs]
    try:
        return FunctionProto.FromString(
            known.get_context_dependent_function(node.node.SerializeToString(), types)
        )
    except Exception:  # a function that does not exist for these types
        return None


def _type(kind: str) -> bytes:
    import ml_dtypes
    import numpy as np

    given = TypeProto()
    dtype = getattr(ml_dtypes, kind) if kind.startswith("bfloat") else (kind or "float32")
    given.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return given.SerializeToString()
