"""The rule on what config.json states of norms, against the graphs."""

import math
from collections import Counter
from collections.abc import Iterator, Set
from typing import NamedTuple

from onnx import NodeProto

from cabochon.validation.assembled import CONFIGS, assembled
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.opened import DECODER, FED, LOOKUP, Opened
from cabochon.validation.rules import Found, rule
from cabochon.validation.statements import CLOSE

__all__: list[str] = []

# What each adds where the attribute is absent.
EPSILONS = {
    "LayerNormalization": 1e-5,
    "RMSNormalization": 1e-5,
    "SimplifiedLayerNormalization": 1e-5,
    "SkipSimplifiedLayerNormalization": 1e-12,
}
_ROOT_MEAN_SQUARE = EPSILONS.keys() - {"LayerNormalization"}
_UNSTATED = 1e-6  # of the encoder of sound, where transformers builds norms without an epsilon


@rule("HON035", Severity.ERROR, ("graphs",))
def norms_differ(package: Opened) -> Iterator[Found]:
    """The norms of a graph add another epsilon than config.json states.

    Causes: the graph was built from another config; a converter left the operator's default, often 1e-5.
    Remedy: build the package again.
    """
    for one in _stated(package):
        real = Counter(_epsilon(node) for node in one.graph.nodes if node.op_type in one.operators)
        for epsilon, count in real.items():
            if not any(math.isclose(epsilon, known, rel_tol=CLOSE) for known in one.known):
                found, said = f"{one.known[0]:g}", f"{epsilon:g}, as {count} norms of {one.graph.path}"
                yield Found(f"config.json: {one.key}", found, said)


class _Stated(NamedTuple):
    """A graph, the key of config.json that its norms follow, what they may add, and the operators that are norms."""

    graph: Graph
    key: str
    known: tuple[float, ...]
    operators: Set[str] = _ROOT_MEAN_SQUARE


def _stated(package: Opened) -> Iterator[_Stated]:
    if text := package.config or (package.drafter and package.drafter.text):
        own = (package.graphs[path] for path in (DECODER, FED, LOOKUP) if path in package.graphs)
        yield from (_Stated(graph, "rms_norm_eps", (text.eps,)) for graph in own)
    found = assembled(package)
    if found is None:
        return
    vision, audio = map(found.graphs.get, CONFIGS)
    if vision and found.seeing:
        yield _Stated(vision, f"{CONFIGS['vision_encoder']}.rms_norm_eps", (found.seeing.eps,))
    if audio and found.hearing:
        key, known = f"{CONFIGS['audio_encoder']}.rms_norm_eps", (found.hearing.eps, _UNSTATED)
        yield _Stated(audio, key, known, EPSILONS.keys())


def _epsilon(node: NodeProto) -> float:
    return next((a.f for a in node.attribute if a.name == "epsilon"), EPSILONS[node.op_type])
