"""cabochon list: the tables of targets, precisions and rules."""

from enum import StrEnum
from typing import Annotated

import typer

from cabochon.cli.options import AsJson
from cabochon.cli.output import print_json, print_table

__all__ = ["Table", "list_rows"]


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
    else:
        print_table(rows[0], [[str(value) for value in row.values()] for row in rows])


def targets() -> list[dict[str, str]]:
    """Where a package can run."""
    from cabochon.dialects import TARGETS

    return [
        {
            "target": target.name,
            "provider": target.provider,
            "padding": target.mask,
            "precisions": " ".join(sorted(target.precisions)),
            "caveats": "; ".join(f"{precision}: {caveat}" for precision, caveat in target.caveats.items()),
        }
        for target in TARGETS.values()
    ]


def precisions() -> list[dict[str, str]]:
    """How a package can store its weights."""
    from cabochon.dialects import TARGETS
    from cabochon.recipes import PRECISIONS

    return [
        {
            "precision": name,
            "targets": " ".join(target.name for target in TARGETS.values() if name in target.precisions),
        }
        for name in PRECISIONS
    ]


def rules() -> list[dict[str, str]]:
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
