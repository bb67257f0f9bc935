"""The ONNX graphs around OpenVINO IR files: one EPContext node each, that names a file and repeats its ports."""

import re
from collections.abc import Iterator
from typing import Any

from onnx import NodeProto, helper

from cabochon.validation.converted import EPCONTEXT, context_of, parts
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, rule

__all__: list[str] = []

SOURCE = "OpenVINOExecutionProvider"
# https://onnxruntime.ai/docs/execution-providers/EP-Context-Design.html
_ATTRIBUTES = {"embed_mode": 0, "main_context": 1, "max_size": 0, "source": SOURCE}
_FREE = {"ep_cache_context", "ep_sdk_version", "partition_name", "notes", "hardware_architecture"}


@rule("OVN016", Severity.ERROR)
def not_one_node(package: Opened) -> Iterator[Found]:
    """A graph around an IR file is more or less than one EPContext node.

    Causes: A graph that was compiled in part, so that the rest of it would run on another provider, with weights of its
    own; an EPContext node of another domain; one inside of a body or a function, where no provider looks.
    Remedy: Convert the package again.
    """
    for graph in package.contexts.values():
        main = graph.proto.graph.node
        for node in main:
            if (node.domain, node.op_type) != ("com.microsoft", "EPContext"):
                yield Found(
                    f"{graph.path}: {node.name or node.op_type}", _named(node), "com.microsoft.EPContext"
                )
        if len(main) != 1 or len(graph.nodes) != 1:
            yield Found(graph.path, f"{len(graph.nodes)} nodes", "one node, com.microsoft.EPContext")
        for name, weight in graph.tensors.items():
            yield Found(
                f"{graph.path}: {name}", f"a tensor of {weight.nbytes} bytes", "no weights: the IR has them"
            )


def _named(node: NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _node(graph: Graph) -> NodeProto | None:
    """The one EPContext node; None where there are others, or none, as another rule says."""
    found = [node for node in graph.proto.graph.node if node.op_type == "EPContext"]
    return found[0] if len(found) == 1 else None


def _said(node: NodeProto) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


@rule("OVN017", Severity.ERROR)
def attributes_differ(package: Opened) -> Iterator[Found]:
    """An attribute of an EPContext node is not that of a wrapper around an IR file.

    Causes: A context that was compiled for one device and put into the node (embed_mode 1, which is the default): such
    a blob cannot be looked into, and runs on nothing else; a context of another provider; a file that is no IR.
    Remedy: Do not load a blob that you did not compile. Convert the package again.
    """
    for graph in package.contexts.values():
        if (node := _node(graph)) is None:
            continue
        at, said = f"{graph.path}: {node.name or 'EPContext'}", _said(node)
        for name, wanted in _ATTRIBUTES.items():
            real = said.get(name)
            real = real.decode("utf-8", "replace") if isinstance(real, bytes) else real
            if real != wanted:
                yield Found(f"{at}.{name}", "nothing" if real is None else repr(real)[:100], repr(wanted))
        for name in sorted(said.keys() - _ATTRIBUTES.keys() - _FREE):
            yield Found(f"{at}.{name}", "an attribute", f"none beside {', '.join(_ATTRIBUTES)}")
        context = said.get("ep_cache_context")
        context = context if isinstance(context, bytes) else b""
        if not re.fullmatch(rb"[^/\\\x00-\x1f]{1,200}\.xml", context):
            found = repr(context[:60]) if context else "nothing"
            yield Found(f"{at}.ep_cache_context", found, "the name of an IR file beside the graph")


@rule("OVN018", Severity.ERROR)
def wrapped_otherwise(package: Opened) -> Iterator[Found]:
    """The ports of a graph around an IR file are not those of the file.

    Causes: Graph and IR of two conversions; a port that was renamed, left out, or given another type in one of both.
    The provider binds them by name and place.
    Remedy: Convert the package again.
    """
    nets = {part.wrapper.path: part.net for part in parts(package) if part.wrapper}
    for graph in package.contexts.values():
        if graph.path not in nets:
            file = context_of(package, graph)
            if file in package.files and file not in package.nets and not package.faults.get("FIL020"):
                yield Found(graph.path, f"{file}, which is no IR file", "an IR file")
            continue
        net, node = nets[graph.path], _node(graph)
        for side in ("inputs", "outputs"):
            real, stated = getattr(net.ports, side), getattr(graph.ports, side)
            given = list(node.input if side == "inputs" else node.output) if node else list(stated)
            if not list(real) == list(stated) == given:
                odd = [name for name in (*stated, *given) if name not in real] or [
                    n for n in real if n not in given
                ]
                at, order = (
                    f"{graph.path}: {side}",
                    "another order" if not odd else f"{odd[0]!r} in one alone",
                )
                yield Found(at, order, f"the {side} of {net.path}, in their order")
            for name in sorted(real.keys() & stated.keys()):
                ours, theirs = stated[name], real[name]
                if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
                    found = f"{ours.dtype} {list(ours.shape)}"
                    yield Found(f"{graph.path}: {side}.{name}", found, f"{theirs.dtype} {list(theirs.shape)}")


@rule("OVN019", Severity.ERROR)
def told_otherwise(package: Opened) -> Iterator[Found]:
    """A graph around an IR file says something else than the file.

    Causes: Properties or the version of OpenVINO were edited, or belong to another conversion.
    Remedy: Convert the package again.
    """
    for part in parts(package):
        if (graph := part.wrapper) is None:
            continue
        wanted = {key: value for key, value in part.properties.items() if key != "cabochon.axes"}
        wanted["cabochon.target"] = EPCONTEXT
        for key in sorted(wanted.keys() | graph.properties.keys()):
            if graph.properties.get(key) != wanted.get(key):
                found = graph.properties.get(key, "nothing")
                yield Found(
                    f"{graph.path}: {key}", found, f"{wanted.get(key, 'no such property')}, as the IR"
                )
        node = _node(graph)
        version = _said(node).get("ep_sdk_version") if node else None
        said = version.decode("utf-8", "replace") if isinstance(version, bytes) else None
        if node and said != part.net.version:
            yield Found(f"{graph.path}: ep_sdk_version", str(said), f"{part.net.version}, which wrote the IR")
