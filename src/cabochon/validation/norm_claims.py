"""The rule on what config.json states of norms, against the graphs."""

import math
from collections import Counter
from collections.abc import Iterator

from onnx import NodeProto

from cabochon.validation.assembled import CONFIGS, assembled
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.opened import DECODER, FED, LOOKUP, Opened
from cabochon.validation.rules import Found, rule
from cabochon.validation.statements import CLOSE

__all__: list[str] = []

_NORMS = {"RMSNormalization", "SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"}
_DEFAULT = 1e-5  # of all of them, where the attribute is absent


@rule("HON035", Severity.ERROR, ("graphs",))
def norms_differ(package: Opened) -> Iterator[Found]:
    """The norms of a graph add another epsilon than config.json states.

    Causes: the graph was built from another config; a converter left the operator's default, 1e-5.
    Remedy: build the package again.
    """
    for graph, key, stated in _stated(package):
        real = Counter(_epsilon(node) for node in graph.nodes if node.op_type in _NORMS)
        for epsilon, count in real.items():
            if not math.isclose(epsilon, stated, rel_tol=CLOSE):
                yield Found(
                    f"config.json: {key}", f"{stated:g}", f"{epsilon:g}, as {count} norms of {graph.path}"
                )


def _stated(package: Opened) -> Iterator[tuple[Graph, str, float]]:
    """The graphs, and the epsilon that config.json states for all of their norms. Of the encoder of sound it states
    one of two."""
    if text := package.config or (package.drafter and package.drafter.text):
        own = (package.graphs[path] for path in (DECODER, FED, LOOKUP) if path in package.graphs)
        yield from ((graph, "rms_norm_eps", text.eps) for graph in own)
    seen = assembled(package)
    if seen and seen.seeing and (graph := seen.graphs.get("vision_encoder")):
        yield graph, f"{CONFIGS['vision_encoder']}.rms_norm_eps", seen.seeing.eps


def _epsilon(node: NodeProto) -> float:
    return next((a.f for a in node.attribute if a.name == "epsilon"), _DEFAULT)
