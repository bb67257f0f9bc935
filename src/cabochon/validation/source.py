"""The source: with the checkpoint at hand, every weight is derived again and compared."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from cabochon.checkpoint import Checkpoint
from cabochon.dialects import TARGETS, Target
from cabochon.errors import PackageError
from cabochon.gemma4 import (
    DrafterConfig,
    drafter_tensors,
    drafter_weights,
    full_tensors,
    full_weights,
    read_config,
    read_full_config,
    text_tensors,
    text_weights,
)
from cabochon.recipes import PRECISIONS, Precision, Recipe
from cabochon.validation.assembled import assembled
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
    if checkpoint is None:
        return
    if found := assembled(package):
        yield from _of_components(found.graphs, checkpoint)
        return
    if graph is None:
        return
    own = graph.properties.get("cabochon.model") == DRAFTER
    if own != (given := isinstance(read_config(checkpoint.config), DrafterConfig)):
        kinds = {True: "a drafter", False: "a model that generates by itself"}
        yield Found(graph.path, kinds[own], f"{kinds[given]}, as {checkpoint.source} is")
        return
    yield from _compared(graph, _recipes(checkpoint, graph), checkpoint)


def _of_components(graphs: Mapping[str, Graph], checkpoint: Checkpoint) -> Iterator[Found]:
    """The same of a full package, graph by graph."""
    if checkpoint.config.get("vision_config") is None and checkpoint.config.get("audio_config") is None:
        at = next(iter(graphs.values())).path
        yield Found(
            at, "a component of a full package", f"a model without encoders, as {checkpoint.source} is"
        )
        return
    config = read_full_config(checkpoint.config)
    tensors = full_tensors(checkpoint.tensors, config).used
    for name, graph in graphs.items():
        recipes = full_weights(config, tensors, *_built_for(graph)).get(name, ())
        yield from _compared(graph, recipes, checkpoint)


def _compared(graph: Graph, recipes: Iterable[Recipe], checkpoint: Checkpoint) -> Iterator[Found]:
    for recipe in recipes:
        at = f"{graph.path}: {recipe.name}"
        if recipe.name not in graph.initializers:
            yield Found(at, "no such weight", "one, as the checkpoint gives it")
        elif difference := _difference(graph, recipe):
            yield Found(at, difference, f"what {checkpoint.source} gives")


def _built_for(graph: Graph) -> tuple[Target, Precision]:
    target = TARGETS.get(graph.properties.get("cabochon.target", ""))
    precision = PRECISIONS.get(graph.properties.get("cabochon.precision", ""))
    if target is None or precision is None:
        found = "its properties name no target and precision of cabochon"
        raise PackageError(found, at=graph.path, remedy="compare a package that cabochon built")
    return target, precision


def _recipes(checkpoint: Checkpoint, graph: Graph) -> Iterator[Recipe]:
    """The weights as a build from the checkpoint would write them."""
    target, precision = _built_for(graph)
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
