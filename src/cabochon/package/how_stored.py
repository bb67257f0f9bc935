"""How a quantized package stores its weights: the section of its card, and what its record says of that."""

from collections.abc import Iterator, Mapping
from typing import Any

import onnx_ir as ir

from cabochon.package.coverage import Coverage, Line, coverage, require_planned, sources
from cabochon.package.facts import DrafterFacts, Facts, FullFacts
from cabochon.package.kinds import DRAFTER, FULL, TEXT
from cabochon.package.layout import GRAPH, inside
from cabochon.package.page import table
from cabochon.recipes import Rule, Weight
from cabochon.recipes.recipe_file import written

__all__ = ["covered", "how_stored", "recipe", "stored", "titled", "used"]

_SHOWN = 3  # roles of weights that stay floating which the card names
_ACCURACY = "accuracy_level"


def covered(facts: Facts[Any]) -> Coverage:
    """What is stored of a model whose files of weights are written.

    Raises PackageError where a weight stays floating that was to be in blocks, and where files are too small.
    """
    weights = _weights(facts)
    require_planned(weights, facts.precision)
    own = {inside(folder, GRAPH).removesuffix(GRAPH) for folder in facts.models}
    files = {
        digest.sha256: digest.nbytes  # one file may have several names
        for name, digest in facts.digests.items()
        if name[: name.rfind("/") + 1] in own and not name.endswith(".onnx")
    }
    return coverage(weights, files.values(), facts.precision.component)


def used(facts: Facts[Any]) -> dict[str, str]:
    """The tensors of the checkpoint that are stored, by their names in the graphs, in the order of the model."""
    found = sources(_weights(facts))
    order = dict.fromkeys([*facts.tensors.used, *found])
    return {name: found[name] for name in order if name in found}


def _weights(facts: Facts[Any]) -> Mapping[str, tuple[Weight, ...]]:
    """What is stored, by graph: that follows from the layout of the checkpoint alone."""
    kind = DRAFTER if isinstance(facts, DrafterFacts) else FULL if isinstance(facts, FullFacts) else TEXT
    return kind.weights(facts.config, facts.tensors.used, facts.target, facts.precision)


def titled(facts: Facts[Any]) -> str:
    """The precision as the title of a card has it."""
    precision = facts.precision
    return f"{precision.name}, activations {precision.activations}" if precision.quantized else precision.name


def recipe(facts: Facts[Any]) -> dict[str, Any]:
    """What provenance.json says under `build` of how weights were to be stored; nothing where all of them float."""
    if not facts.precision.quantized:
        return {}
    found = dict[str, Any](recipe=written(facts.precision.rules))
    if (of := facts.precision.statistics) is not None:
        found["calibration"] = {
            "text": of.text, "sha256": of.sha256, "tokens": of.tokens, "windows": of.windows
        }  # fmt: skip
    return found


def stored(facts: Facts[Any]) -> dict[str, Any]:
    """What it says of how they are: bytes by component, role and precision, which sum to the files of weights."""
    found = covered(facts)
    return {
        "bytes": found.nbytes,
        "parameters": found.parameters,
        "bits_per_weight": round(found.bits_per_weight, 4),
        "padding_and_unused" if facts.linked else "padding": found.rest,
        "weights": [_object(line) for line in found.lines],
    }


def _object(line: Line) -> dict[str, Any]:
    said = {
        "component": line.component,
        "role": line.role,
        "precision": line.precision,
        "scales": line.scheme.scales if line.scheme else None,
        "count": line.count,
        "parameters": line.parameters,
        "bytes": line.nbytes,
    }
    return {key: value for key, value in said.items() if value is not None}


def how_stored(facts: Facts[Any], title: str = "How weights are stored") -> dict[str, str]:
    """The section by its title; none where all weights float."""
    if not facts.precision.quantized:
        return {}
    found = covered(facts)
    body = [
        " ".join(_introduction(facts, found)),
        "The recipe, of whose rules the last that fits a weight decides; only matrices and tables go into blocks:",
        table(("Weights", "Stored as"), map(_rule, facts.precision.rules)),
        "What the files hold:",
        table(_HEAD, _rows(facts, found)),
    ]
    return {title: "\n\n".join(body)}


def _introduction(facts: Facts[Any], found: Coverage) -> Iterator[str]:
    name = facts.precision.name
    yield f"`{name}` is the name of the recipe."
    if name.startswith("Q"):
        yield (
            "It is not llama.cpp's format of that name: there are no super-blocks, every block has a scale of its own, "
            "and a zero point where it is asymmetric."
        )
    yield (
        f"{found.bits_per_weight:.2f} bits per weight, with scales, zero points and whatever stays floating. Ports and "
        f"activations are `{facts.precision.activations}`."
    )
    if (of := facts.precision.statistics) is not None:
        yield (
            f"The scales of `k-quant` were searched with what weights are multiplied with in {of.tokens:,} tokens of "
            f"`{of.text}` (SHA-256 `{of.sha256[:12]}…`)."
        )
    if level := ", ".join(map(str, sorted(_levels(facts.models)))):
        yield (
            f"Products with weights in blocks ask for `{_ACCURACY}` {level}"
            + (", which rounds activations to 8 bits, block by block." if level == "4" else ".")
        )


def _levels(models: Mapping[str, ir.Model]) -> set[int]:
    """The accuracy levels that products with weights in blocks ask for."""
    nodes = (n for model in models.values() for n in ir.traversal.RecursiveGraphIterator(model.graph))
    return {node.attributes[_ACCURACY].as_int() for node in nodes if _ACCURACY in node.attributes}


def _rule(rule: Rule) -> tuple[str, str]:
    if not rule.method:
        return f"`{rule.weights}`", "floating"
    symmetry = "symmetric" if rule.symmetric or rule.method == "nf4" else "asymmetric"
    return f"`{rule.weights}`", f"{rule.bits} bits in blocks of {rule.block}, {symmetry}, {rule.method}"


_HEAD = ("Component", "Stored as", "Weights", "Parameters", "Bits per weight", "Bytes")


def _rows(facts: Facts[Any], found: Coverage) -> Iterator[tuple[str, ...]]:
    """The lines of each component that are stored alike in one row, and what the files hold beside them."""
    groups: dict[tuple[str, str], list[Line]] = {}
    for line in found.lines:
        groups.setdefault((line.component, _kind(line)), []).append(line)
    for (component, kind), lines in groups.items():
        parameters, nbytes = sum(line.parameters for line in lines), sum(line.nbytes for line in lines)
        bits = f"{8 * nbytes / parameters:.2f}" if parameters else ""
        yield f"`{component}`", kind, _roles(lines), f"{parameters:,}", bits, f"{nbytes:,}"
    rest = "padding, and what linked files hold besides" if facts.linked else "padding"
    yield "", rest, "", "", "", f"{found.rest:,}"
    yield "all", "", "", f"{found.parameters:,}", f"{found.bits_per_weight:.2f}", f"{found.nbytes:,}"


def _kind(line: Line) -> str:
    return f"{line.precision}, scales {line.scheme.scales}" if line.scheme else line.precision


def _roles(lines: list[Line]) -> str:
    """All roles in blocks; of those that float the largest."""
    if lines[0].scheme:
        return ", ".join(f"`{line.role}`" for line in lines)
    first = sorted(lines, key=lambda line: -line.nbytes)[:_SHOWN]
    more = f" and {len(lines) - len(first)} roles more" if len(lines) > len(first) else ""
    return ", ".join(f"`{line.role}`" for line in first) + more
