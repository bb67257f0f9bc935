"""The source: with the checkpoint at hand, every weight is derived again and compared."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from cabochon.checkpoint import Checkpoint
from cabochon.checkpoint.fingerprint import fingerprint
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
from cabochon.recipes import Precision, Weight
from cabochon.recipes.part import Part
from cabochon.validation.assembled import assembled
from cabochon.validation.blocks import codes_of, stem, zero_points_of
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.opened import DECODER, DRAFTER, Opened
from cabochon.validation.planned import Planned, planned
from cabochon.validation.repacked import not_nearest
from cabochon.validation.rules import Found, rule
from cabochon.validation.statements import PROVENANCE, inside

_NEEDS = ("graphs", "source")


@rule("SRC001", Severity.ERROR, _NEEDS)
def other_weights(package: Opened) -> Iterator[Found]:
    """A weight is not what the checkpoint gives.

    Causes: A package of another checkpoint or another revision of it; bytes that were changed after the build, with
    their checksums; weights in blocks that were put there by another recipe than the one that provenance.json states.
    Where they were calibrated, or found by another version, scales cannot be derived again: then every code is the
    nearest one for its scale, and all of them together are about as close as rounding to nearest.
    Remedy: Compare with the checkpoint and the revision that provenance.json names, or build again.
    """
    graph, checkpoint = package.graphs.get(DECODER), package.source
    if checkpoint is None:
        return
    if found := assembled(package):
        yield from _of_components(package, found.graphs, checkpoint)
        return
    if graph is None:
        return
    own = graph.properties.get("cabochon.model") == DRAFTER
    if own != (given := isinstance(read_config(checkpoint.config), DrafterConfig)):
        kinds = {True: "a drafter", False: "a model that generates by itself"}
        yield Found(graph.path, kinds[own], f"{kinds[given]}, as {checkpoint.source} is")
        return
    plan = planned(package, graph)
    yield from _compared(graph, _recipes(checkpoint, *_built_for(graph, plan)), plan, checkpoint)


@rule("SRC002", Severity.WARNING, ("source",))
def another_checkpoint(package: Opened) -> Iterator[Found]:
    """provenance.json was written of another checkpoint than the one that is compared with.

    Causes: another revision, whose weights may be the same; another config.json; a record that was edited.
    Remedy: compare with the checkpoint and the revision that provenance.json names, or build again.
    """
    if package.source is None:
        return
    record, real = package.json(PROVENANCE), fingerprint(package.source)
    said = {key: inside(record, key, "fingerprint") for key in ("target", "assistant")}
    stated = {key: each for key, each in said.items() if each is not None}
    if stated and real not in stated.values():
        for key, each in stated.items():
            yield Found(
                f"{PROVENANCE}: {key}.fingerprint", str(each), f"{real}, that of {package.source.source}"
            )


def _of_components(package: Opened, graphs: Mapping[str, Graph], checkpoint: Checkpoint) -> Iterator[Found]:
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
        plan = planned(package, graph)
        recipes = full_weights(config, tensors, *_built_for(graph, plan)).get(name, ())
        yield from _compared(graph, recipes, plan, checkpoint)


def _compared(
    graph: Graph, recipes: Iterable[Weight], plan: Planned | None, checkpoint: Checkpoint
) -> Iterator[Found]:
    exact = plan is None or plan.repeatable
    for recipe in recipes:
        at = f"{graph.path}: {recipe.name}"
        stored = _stored(graph, recipe)
        if stored is None:
            yield Found(at, "no such weight", "one, as the checkpoint gives it")
        elif difference := _difference(graph, stored, recipe, exact):
            yield Found(at, difference, f"what {checkpoint.source} gives")


def _stored(graph: Graph, recipe: Weight) -> str | None:
    """The initializer that holds a weight; of other sights of the same bytes any."""
    if recipe.name in graph.initializers:
        return recipe.name
    if not isinstance(recipe, Part) or recipe.what == "scales":
        return None
    sights = codes_of if recipe.what == "codes" else zero_points_of
    return next(iter(sights(graph, stem(recipe.name))), None)


def _built_for(graph: Graph, plan: Planned | None) -> tuple[Target, Precision]:
    target = TARGETS.get(graph.properties.get("cabochon.target", ""))
    if target is None or plan is None:
        found = "its properties name no target and precision of cabochon"
        raise PackageError(found, at=graph.path, remedy="compare a package that cabochon built")
    return target, plan.precision


def _recipes(checkpoint: Checkpoint, target: Target, precision: Precision) -> Iterator[Weight]:
    """The weights as a build from the checkpoint would write them."""
    config = read_config(checkpoint.config)
    if isinstance(config, DrafterConfig):
        return drafter_weights(drafter_tensors(checkpoint.tensors, config).used, precision)
    return text_weights(config, text_tensors(checkpoint.tensors, config).used, target, precision)


def _difference(graph: Graph, stored: str, recipe: Weight, exact: bool) -> str:
    """Where the package's bytes differ from those derived; "" where they are the same."""
    weight = graph.initializers[stored]
    expected = f"{recipe.precision} {list(recipe.shape)}"
    sight = isinstance(recipe, Part) and recipe.what != "scales"  # shape and type may be other ones
    if weight.nbytes != recipe.nbytes or (weight.shape != recipe.shape and not sight):
        return f"{weight.dtype} {list(weight.shape)}, where the checkpoint gives {expected}"
    if isinstance(recipe, Part) and not exact:
        return not_nearest(graph, recipe, stored) if recipe.what == "codes" else ""
    raw, start = graph.raw(stored), 0
    for block in recipe.blocks():
        expected_bytes = np.ascontiguousarray(block).reshape(-1).view(np.uint8)
        if not np.array_equal(raw[start : start + expected_bytes.size], expected_bytes):
            at = start + int(np.argmax(raw[start : start + expected_bytes.size] != expected_bytes))
            return f"another byte at {at} of {raw.size}"
        start += expected_bytes.size
    return ""
