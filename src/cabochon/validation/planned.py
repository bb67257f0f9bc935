"""How a package says that its weights are stored: the recipe in provenance.json, for the target of its graphs."""

from dataclasses import dataclass, replace

from cabochon import __version__
from cabochon.dialects import TARGETS
from cabochon.errors import ConfigError
from cabochon.evidence import activations
from cabochon.recipes import PRECISIONS, Precision
from cabochon.recipes.recipe_file import read_recipe
from cabochon.validation.graph import Graph
from cabochon.validation.net import Net
from cabochon.validation.opened import DRAFTER, Opened
from cabochon.validation.statements import PROVENANCE, inside

__all__ = ["Planned", "planned", "recipe_fault"]


@dataclass(frozen=True)
class Planned:
    """The precision that a graph was built in, resolved for its target.

    `repeatable`: this cabochon finds the same blocks. Not where it was given activation statistics, and not where
    another version searched for them.
    """

    precision: Precision
    repeatable: bool


def planned(package: Opened, graph: Graph | Net) -> Planned | None:
    """The plan of a graph's weights; None where its precision is not known, or where the recipe is not understood.

    What was converted to OpenVINO has the weights of a package of onnx-standard.
    """
    name, kind = graph.properties.get("cabochon.precision", ""), activations(graph.properties)
    named = graph.properties.get("cabochon.target", "")
    target = TARGETS.get("onnx-standard" if isinstance(graph, Net) else named)
    try:
        said = _recipe(package, name, kind or "") or PRECISIONS.get(name)
    except ConfigError:
        return None
    if said is None or kind not in ("f32", "f16", "bf16"):
        return None
    rules = tuple(replace(rule, symmetric=True) if rule.method == "nf4" else rule for rule in said.rules)
    precision = Precision(said.name, kind, rules)
    own = "drafter" if graph.properties.get("cabochon.model") == DRAFTER else "decoder"
    resolved = precision.on(target.storage) if target else precision
    build = inside(package.json(PROVENANCE), "build")
    repeatable = inside(build, "calibration") is None and inside(build, "version") in (None, __version__)
    return Planned(resolved.fitted(own, {}), repeatable)


def recipe_fault(package: Opened) -> ConfigError | None:
    """What is wrong with the recipe of provenance.json."""
    try:
        _recipe(package, "recipe", "f32")
    except ConfigError as error:
        return error
    return None


def _recipe(package: Opened, name: str, kind: str) -> Precision | None:
    rules = inside(package.json(PROVENANCE), "build", "recipe")
    if rules is None:
        return None
    return read_recipe({"name": name, "activations": kind, "rules": rules}, f"{PROVENANCE}: build.recipe")
