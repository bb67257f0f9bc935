"""The source: with the checkpoint at hand, every weight is derived again and compared."""

from collections.abc import Iterator

import numpy as np

from cabochon.checkpoint import Checkpoint
from cabochon.dialects import TARGETS
from cabochon.errors import PackageError
from cabochon.gemma4 import (
    DrafterConfig,
    drafter_tensors,
    drafter_weights,
    read_config,
    text_tensors,
    text_weights,
)
from cabochon.recipes import PRECISIONS, Recipe
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.opened import DECODER, DRAFTER, Opened
from cabochon.validation.rules import Found, rule

_NEEDS = ("graphs", "source")


@rule("SRC001", Severity.ERROR, _NEEDS)
def other_weights(package: Opened) -> Iterator[Found]:
    """A weight is not what the checkpoint gives.

    Causes: A package of another checkpoint or another revision of it; bytes that were changed after the build, with
    their checksums.
    Remedy: Compare with the checkpoint and the revision that provenance.json names, or build again.
    """
    graph, checkpoint = package.graphs.get(DECODER), package.source
    if graph is None or checkpoint is None:
        return
    own = graph.properties.get("cabochon.model") == DRAFTER
    if own != (given := isinstance(read_config(checkpoint.config), DrafterConfig)):
        kinds = {True: "a drafter", False: "a model that generates by itself"}
        yield Found(graph.path, kinds[own], f"{kinds[given]}, as {checkpoint.source} is")
        return
    for recipe in _recipes(checkpoint, graph):
        at = f"{graph.path}: {recipe.name}"
        if recipe.name not in graph.initializers:
            yield Found(at, "no such weight", "one, as the checkpoint gives it")
        elif difference := _difference(graph, recipe):
            yield Found(at, difference, f"what {checkpoint.source} gives")


def _recipes(checkpoint: Checkpoint, graph: Graph) -> Iterator[Recipe]:
    """The weights as a build from the checkpoint would write them."""
    target = TARGETS.get(graph.properties.get("cabochon.target", ""))
    precision = PRECISIONS.get(graph.properties.get("cabochon.precision", ""))
    if target is None or precision is None:
        found = "its properties name no target and precision of cabochon"
        raise PackageError(found, at=graph.path, remedy="compare a package that cabochon built")
    config = read_config(checkpoint.config)
    if isinstance(config, DrafterConfig):
        return drafter_weights(drafter_tensors(checkpoint.tensors, config).used, precision)
    return text_weights(config, text_tensors(checkpoint.tensors, config).used, target, precision)


def _difference(graph: Graph, recipe: Recipe) -> str:
    """Where the package's bytes differ from those derived; "" where they are the same."""
    weight = graph.initializers[recipe.name]
    if (weight.shape, weight.nbytes) != (recipe.shape, recipe.nbytes):
        expected = f"{recipe.precision} {list(recipe.shape)}"
        return f"{weight.dtype} {list(weight.shape)}, where the checkpoint gives {expected}"
    raw, start = np.ascontiguousarray(graph.array(recipe.name)).reshape(-1).view(np.uint8), 0
    for block in recipe.blocks():
        expected = block.reshape(-1).view(np.uint8)
        if not np.array_equal(raw[start : start + expected.size], expected):
            at = start + int(np.argmax(raw[start : start + expected.size] != expected))
            return f"another byte at {at} of {raw.size}"
        start += expected.size
    return ""
