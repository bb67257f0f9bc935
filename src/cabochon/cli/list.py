"""cabochon list: the tables of targets, precisions and rules."""

from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cabochon.cli.options import AsJson
from cabochon.cli.output import print_json, print_table

if TYPE_CHECKING:
    from cabochon.dialects import Target
    from cabochon.recipes import Precision

__all__ = ["Table", "list_rows", "precision_row"]

_BITS = {"f32": 32.0, "f16": 16.0, "bf16": 16.0}
_NAMES = (
    "Names say how weights are stored here; the formats of llama.cpp under such names are others.",
    "The last pattern that fits a weight decides. docs/recipes.md says more, and how to write a recipe of your own.",
)


class Table(StrEnum):
    """What can be listed."""

    targets = "targets"
    precisions = "precisions"
    rules = "rules"


def list_rows(
    what: Annotated[Table, typer.Argument(help="Which table.", show_default=False)], as_json: AsJson = False
) -> None:
    """List what there is."""
    rows = {Table.targets: targets, Table.precisions: precisions, Table.rules: rules}[what]()
    if as_json:
        print_json(rows)
    elif what is Table.precisions:
        print_precisions(rows)
    elif what is Table.targets:
        print_targets(rows)
    else:
        print_table(rows[0], [[str(value) for value in row.values()] for row in rows])


def targets() -> list[dict[str, Any]]:
    """Where a package can run."""
    from cabochon.dialects import CONVERSIONS, TARGETS

    made = {conversion.name: [f"converted from {conversion.of}"] for conversion in CONVERSIONS.values()}
    return [
        {
            "target": target.name,
            "provider": target.provider,
            "padding": target.mask,
            "precisions": " ".join(sorted(target.precisions)),
            "blocks": " ".join(sorted(target.storage.methods)),
            "caveats": [*made.get(target.name, []), *caveats(target)],
        }
        for target in (*TARGETS.values(), *(conversion.target for conversion in CONVERSIONS.values()))
    ]


def caveats(target: "Target") -> list[str]:
    """Each with the precisions and methods that it holds for."""
    found: dict[str, list[str]] = {}
    for name, caveat in target.caveats.items():
        found.setdefault(caveat, []).append(name)
    return [f"{' '.join(names)}: {caveat}" for caveat, names in found.items()]


def print_targets(rows: list[dict[str, Any]]) -> None:
    """For people: caveats are sentences, and stand below the table."""
    columns = [name for name in rows[0] if name != "caveats"]
    print_table(columns, [[str(row[name]) for name in columns] for row in rows])
    for row in rows:
        for caveat in row["caveats"]:
            print(f"- {row['target']}: {caveat}")


def precisions() -> list[dict[str, Any]]:
    """How a package can store its weights."""
    from cabochon.dialects import TARGETS
    from cabochon.recipes import PRECISIONS

    return [precision_row(precision, TARGETS.values()) for precision in PRECISIONS.values()]


def precision_row(precision: "Precision", targets: Iterable["Target"]) -> dict[str, Any]:
    """One precision with its rules, and what is to know of it by target.

    `bits_per_weight` counts scales and zero points, of rows that fill their blocks; it may differ between targets.
    """
    from cabochon.recipes import Rule
    from cabochon.recipes.recipe_file import written

    remarks, carried = list[str](), list["tuple[str, Precision]"]()
    for target in targets:
        known = precision.on(target.storage)
        if reason := target.refusal(known.activations, (), known.methods):
            remarks.append(reason)
        else:
            carried.append((target.name, known))
            remarks += [f"{target.name}: {target.caveats[m]}" for m in known.methods if m in target.caveats]
    return {
        "precision": precision.name,
        "targets": " ".join(name for name, _ in carried),
        "rules": [
            {**said, **stored(i, carried)} for i, said in enumerate(written(precision.rules or [Rule("*")]))
        ],
        "remarks": remarks,
    }


def stored(i: int, carried: "list[tuple[str, Precision]]") -> dict[str, Any]:
    """How the rule of this index stores weights: in words, with the targets where they differ, and the bits of each."""
    targets, bits = dict[str, list[str]](), set[float]()
    for name, known in carried:
        how, size = on_target(known, i)
        targets.setdefault(how, []).append(name)
        bits.add(size)
    words = [f"{how} ({', '.join(names)})" for how, names in targets.items()] if len(targets) > 1 else targets
    return {"stored": "; ".join(words), "bits_per_weight": sorted(bits)}


def on_target(known: "Precision", i: int) -> tuple[str, float]:
    """The same of a precision as one target stores it."""
    from cabochon.packing import Scheme

    rule = known.rules[i] if known.rules else None
    if rule is None or not rule.method:
        return known.activations, _BITS[known.activations]
    scheme = Scheme(rule.method, rule.bits, rule.block, bool(rule.symmetric), known.activations)
    return str(scheme), scheme.bits_per_weight


def print_precisions(rows: list[dict[str, Any]]) -> None:
    """The table of precisions for people, a line for each rule, and what is to know of them."""
    lines = [
        ("" if i else row["precision"], rule["weights"], *_cells(rule), _range(rule["bits_per_weight"]))
        for row in rows
        for i, rule in enumerate(row["rules"])
    ]
    print_table(("precision", "weights", "stored", "block>", "zero points", "bits/weight>"), lines)
    print()
    for said in (*(f"{row['precision']}: {remark}" for row in rows for remark in row["remarks"]), *_NAMES):
        print(f"- {said}")


def _cells(rule: dict[str, Any]) -> tuple[str, str, str]:
    """Method and bits, block, zero points."""
    if rule["method"] == "float":
        return "float", "", ""
    points = {None: "by target", True: "no", False: "yes"}[rule.get("symmetric")]
    stored = f"{rule['method']} {rule['bits']}" if rule["method"] != "nf4" else "nf4"
    return stored, str(rule["block"]), "" if stored == "nf4" else points


def _range(bits: list[float]) -> str:
    return f"{bits[0]:g}" if len(bits) == 1 else f"{bits[0]:g}-{bits[-1]:g}"


def rules() -> list[dict[str, Any]]:
    """What `cabochon validate` looks at."""
    from cabochon.validation.rules import load

    return [
        {
            "rule": code,
            "severity": rule.severity.value,
            "what": rule.title,
            "needs": " ".join(sorted(rule.needs)),
        }
        for code, rule in load().items()
    ]
