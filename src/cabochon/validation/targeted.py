"""The target that a graph was built for, and its nodes by operator and types."""

import re
from collections.abc import Mapping

from cabochon.dialects import TARGETS, Target
from cabochon.validation.graph import Graph
from cabochon.validation.memo import once
from cabochon.validation.opened import Opened
from cabochon.validation.registry import Typed, typed

__all__ = ["CPU", "REQUIREMENTS", "Sort", "name_of", "provider_of", "sorts", "stated_runtime", "target_of"]

CPU = "CPUExecutionProvider"


REQUIREMENTS = "runtime-requirements.txt"


def target_of(graph: Graph) -> Target | None:
    """The target that a graph was built for; None where it does not say, or says one that there is not."""
    return TARGETS.get(graph.properties.get("cabochon.target", ""))


def provider_of(graph: Graph) -> str:
    """The execution provider of the target; the CPU's where none is said, as for policies."""
    target = target_of(graph)
    return target.provider if target else CPU


Sort = tuple[str, str, tuple[str, ...], tuple[str, ...]]  # domain, operator, types


def sorts(graph: Graph) -> Mapping[Sort, list[Typed]]:
    """The nodes by operator and types."""
    return once(graph, _sorts)


def _sorts(graph: Graph) -> Mapping[Sort, list[Typed]]:
    found = dict[Sort, list[Typed]]()
    for node in typed(graph):
        key = (node.domain, node.node.op_type, node.inputs, node.outputs)
        found.setdefault(key, []).append(node)
    return found


def stated_runtime(package: Opened) -> str:
    """The version of onnxruntime that runtime-requirements.txt states; "" where it states none."""
    match = re.search(
        r"^onnxruntime(?:-\w+)?==(\d+\.\d+[\d.]*)", package.text(REQUIREMENTS) or "", re.MULTILINE
    )
    return match[1] if match else ""


def name_of(node: Typed) -> str:
    """The node's name, or that of its first output."""
    return node.node.name or next(iter(node.node.output), "")
