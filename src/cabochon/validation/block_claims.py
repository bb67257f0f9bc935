"""The rules on what a package says of its weights in blocks: recipe, report and card against the graphs."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cabochon.recipes import Precision
from cabochon.recipes.addresses import address
from cabochon.validation.findings import Severity
from cabochon.validation.graph import Graph
from cabochon.validation.holdings import Form, Held, held
from cabochon.validation.opened import Opened
from cabochon.validation.planned import planned, recipe_fault
from cabochon.validation.rules import Found, rule
from cabochon.validation.statements import CARD, NEEDS, PROVENANCE, inside, own_graphs, sums_of, whole_name

__all__: list[str] = []

_CLOSE = 1e-3  # bits of a weight


@rule("HON031", Severity.ERROR, NEEDS)
def otherwise_than_planned(package: Opened) -> Iterator[Found]:
    """A weight is stored otherwise than the recipe in provenance.json says.

    Causes: a weight stayed floating that was to be stored in blocks, or the reverse; the recipe is that of another
    build; it was edited.
    Remedy: build the package again. Only matrices that are multiplied with or looked up can be stored in blocks.
    """
    if fault := recipe_fault(package):
        yield Found(fault.at, fault.message, "a recipe", fault.remedy)
        return
    recipe = inside(package.json(PROVENANCE), "build", "recipe")
    for graph in own_graphs(package).values():
        weights = held(graph).values()
        blocks = sum(one.read is not None for one in weights)
        if recipe is None and blocks and package.json(PROVENANCE) is not None:
            yield Found(
                f"{PROVENANCE}: build.recipe",
                "nothing",
                f"how {graph.path} stores {blocks} weights in blocks",
            )
        elif plan := planned(package, graph):
            yield from _otherwise(graph, plan.precision, weights)


def _otherwise(graph: Graph, precision: Precision, weights: Any) -> Iterator[Found]:
    for one in weights:
        scheme = precision.scheme(whole_name(one.name))
        if one.read is None:
            if scheme is not None and len(one.shape) == 2:
                yield Found(f"{graph.path}: {one.name}", f"{one.form}", f"{scheme}, as {PROVENANCE} says")
            continue
        real = (one.form.kind, one.read.block, bool(one.read.zero_points))
        if scheme is None:
            yield Found(f"{graph.path}: {one.name}", f"{one.form}", f"floats, as {PROVENANCE} says")
            continue
        kind = "nf4" if scheme.method == "nf4" else f"int{scheme.bits}"
        symmetric = scheme.symmetric or kind == "nf4"
        if real[:2] != (kind, scheme.block) or (not symmetric and not real[2]):
            points = "" if real[2] or kind == "nf4" else ", no zero points"
            yield Found(f"{graph.path}: {one.name}", f"{one.form}{points}", f"{scheme}, as {PROVENANCE} says")


@rule("HON032", Severity.ERROR, NEEDS)
def report_does_not_sum(package: Opened) -> Iterator[Found]:
    """What provenance.json reports of the bytes of weights is not what the files hold.

    Causes: the report is that of another build; weights were replaced; a number was edited.
    Remedy: build the package again.
    """
    said = inside(package.json(PROVENANCE), "build", "stored")
    if not isinstance(said, Mapping):
        return
    at, lines = f"{PROVENANCE}: build.stored", said.get("weights")
    rows = [line for line in lines if isinstance(line, Mapping)] if isinstance(lines, list) else []
    rest = sum(_count(said, key) for key in ("padding", "padding_and_unused"))
    total, files = _count(said, "bytes"), _files(package)
    if (together := sum(_count(row, "bytes") for row in rows) + rest) != total:
        yield Found(f"{at}.weights", f"{together:,} bytes with padding", f"{total:,}, as bytes says")
    if files is not None and total != files:
        yield Found(f"{at}.bytes", f"{total:,}", f"{files:,}, the size of the files of weights")
    parameters, bits = _count(said, "parameters"), said.get("bits_per_weight")
    if parameters and isinstance(bits, int | float) and abs(bits - 8 * (total - rest) / parameters) > _CLOSE:
        yield Found(f"{at}.bits_per_weight", f"{bits}", f"{8 * (total - rest) / parameters:.4f}")
    yield from _by_role(package, at, rows)


def _count(said: Mapping[str, Any], key: str) -> int:
    value = said.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _files(package: Opened) -> int | None:
    """The bytes of the package's own files of weights; those that have several names once. None where one is away."""
    sizes, listed = dict[Any, int](), sums_of(package)
    for graph in own_graphs(package).values():
        said = (weight.external for weight in graph.initializers.values())
        for location in {external.location or "" for external in said if external}:
            name = (graph.folder() / location).as_posix()
            if name not in package.files:
                return None
            stat = package.path(name).stat()
            sizes[listed.get(name, (stat.st_dev, stat.st_ino))] = package.files[name]
    return sum(sizes.values())


def _by_role(package: Opened, at: str, rows: list[Mapping[str, Any]]) -> Iterator[Found]:
    """The bytes of each role."""
    real, said = dict[tuple[str, str], int](), dict[tuple[str, str], int]()
    for one, component in _weights(package):
        of, _, role = address(whole_name(one.name), component).partition("/")
        real[of, role] = real.get((of, role), 0) + one.nbytes
    for row in rows:
        if _count(row, "parameters"):
            key = str(row.get("component")), str(row.get("role"))
            said[key] = said.get(key, 0) + _count(row, "bytes")
    for key in sorted(real.keys() | said.keys()):
        if said.get(key, 0) != real.get(key, 0):
            where = f"{at}.weights: {'/'.join(key)}"
            yield Found(
                where, f"{said.get(key, 0):,} bytes", f"{real.get(key, 0):,}, which the graphs refer to"
            )


def _weights(package: Opened) -> Iterator[tuple[Held, str]]:
    """Every weight once, whatever graphs have it, and the component that owns what is no tower's."""
    graphs = own_graphs(package).values()
    owner = "drafter" if any(g.properties.get("cabochon.model") == "drafter" for g in graphs) else "decoder"
    distinct = {name: one for graph in graphs for name, one in held(graph).items()}
    return ((one, owner) for one in distinct.values())


def _spelled(form: Form) -> str:
    return "NF4" if form.kind == "nf4" else f"{form.kind.removeprefix('int')} bits"


@rule("HON033", Severity.ERROR, NEEDS)
def blocks_unsaid(package: Opened) -> Iterator[Found]:
    """README.md does not say how weights in blocks are stored.

    Causes: the card was written by hand, or kept from another build. The name of a precision says little: Q4_K_M is the
    name of a format of llama.cpp, whose files and mix of bits are others.
    Remedy: state bits and block of all that is stored in blocks, and that the format is not llama.cpp's.
    """
    text = package.text(CARD)
    for graph in own_graphs(package).values() if text is not None else ():
        for form in sorted({one.form for one in held(graph).values() if one.read}, key=str):
            words = f"{_spelled(form)} in blocks of {form.block}"
            if words not in (text or ""):
                yield Found(CARD, f"nothing of {words}", f"how {graph.path} stores weights")
    names = {graph.properties.get("cabochon.precision", "") for graph in own_graphs(package).values()}
    for name in sorted(names):
        if re.match(r"I?Q\d", name) and text is not None and not re.search(r"not\s+llama\.cpp", text):
            yield Found(CARD, f"the name {name}", "that this is not llama.cpp's format of that name")
