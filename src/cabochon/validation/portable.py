"""The rule on graphs for any runtime: they have the operators of ai.onnx alone."""

from collections.abc import Iterator

from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, rule

__all__: list[str] = []

NEEDS = ("graphs",)
PORTABLE = "onnx-standard"


@rule("RUN019", Severity.ERROR, NEEDS)
def not_portable(package: Opened) -> Iterator[Found]:
    """A graph that is for any runtime needs an operator that only some have.

    Causes: the graph was optimized by a runtime, which puts its own operators in the place of several; a function of
    another domain was put into the model; an operator set is imported that no node needs. Bodies of Loop and If and of
    functions are looked at like the graph itself.
    Remedy: build the package again, and do not save what a runtime made of it; or build for the target of that runtime.
    """
    for graph in package.graphs.values():
        if _portable(package, graph):
            for name, nodes in _foreign(graph).items():
                found = f"{name}: {len(nodes)} nodes, such as {nodes[0]}"
                yield Found(graph.path, found, "operators of ai.onnx")
            for domain in sorted(graph.opsets.keys() - {""}):
                yield Found(f"{graph.path}: opset_import", domain, "ai.onnx alone")
            for function in graph.proto.functions:
                at = f"{graph.path}: functions.{function.name}"
                yield Found(at, f"a function of {function.domain or 'ai.onnx'}", "operators of ai.onnx")


def _portable(package: Opened, graph: Graph) -> bool:
    """It says so; or it says nothing, as a policy does, and the graph that decodes says so."""
    said = graph.properties.get("cabochon.target")
    if said is None and package.decoder is not None:
        said = package.decoder.properties.get("cabochon.target")
    return said == PORTABLE


def _foreign(graph: Graph) -> dict[str, list[str]]:
    """The nodes of other domains by their operator."""
    found = dict[str, list[str]]()
    for node in graph.nodes:
        if node.domain not in ("", "ai.onnx"):
            found.setdefault(f"{node.domain}.{node.op_type}", []).append(node.name or node.op_type)
    return found
