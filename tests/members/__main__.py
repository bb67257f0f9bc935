"""`python -m members`: builds a tiny checkpoint of every member with its assistant, runs them beside what transformers
computed, and holds the table of the README to it. Fails where one differs, or the table says another thing."""

import argparse
import datetime
import platform
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from family import MEMBERS
from members.derived import Derived, rows
from members.measured import Measured, measure

README = Path(__file__).parents[2] / "README.md"
START, END = "<!-- members:start -->\n", "<!-- members:end -->"
EXACT = 1e-4
HEAD = """Written by `make members ARGS=--write` on {date}, {machine}. Kinds, parameters and sizes are what
`cabochon plan` says of the published config: sizes of all that a model has, for `default`. *Known answers*: what
`cabochon parity --known` compares a package of the published checkpoint with. *Tiny parity*: a checkpoint of the same
kind with few parameters and its assistant, built as a full pair in f32 for `default`, each graph of it beside what
transformers 5.24 computed: the largest difference, divided by the largest value.

| member | checkpoint | kinds | parameters | f16 | Q4_K_M | known answers | tiny parity, f32 |
|---|---|---|---|---|---|---|---|
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="members", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table of the README")
    asked = parser.parse_args()
    lines, wrong = list[str](), list[str]()
    with tempfile.TemporaryDirectory() as folder:
        measured = {member: measure(member, Path(folder)) for member in MEMBERS}
    for row in rows():
        lines.append(line(row, measured[row.member]))
        print(lines[-1], end="", flush=True)
    for member, found in measured.items():
        wrong += [f"{member.name}: {fault}" for fault in faults(found)]
    before, old, after = parts(README.read_text(encoding="utf-8"))
    if asked.write and not wrong:
        machine = f"{platform.system()}, Python {platform.python_version()}"
        head = HEAD.format(date=datetime.date.today().isoformat(), machine=machine)
        README.write_text(f"{before}{START}{head}{''.join(lines)}{END}{after}", encoding="utf-8")
    elif [without_figures(some) for some in lines] != [without_figures(some) for some in table(old)]:
        wrong.append("the table of the README says another thing: make members ARGS=--write")
    for some in wrong:
        print("WRONG", some)
    seconds = ", ".join(f"{member.name} {found.seconds:.1f} s" for member, found in measured.items())
    print(f"{len(measured)} members with their assistants ({seconds}), {len(wrong)} wrong")
    return 1 if wrong else 0


def line(row: Derived, found: Measured) -> str:
    """A row of the table."""
    far = found.assistant if row.drafts else found.member
    cell = ", ".join(f"{name.removesuffix('_features')} {value:.0e}" for name, value in far.items())
    return f"| {' | '.join((*row.cells, cell))} |\n"


def faults(found: Measured) -> Iterator[str]:
    """What is not as it should be."""
    for far in (found.member, found.assistant):
        yield from (f"{name} differ by {value:.1e}" for name, value in far.items() if not value <= EXACT)
    yield from found.faults


def parts(text: str) -> tuple[str, str, str]:
    """What stands before, between and behind the markers."""
    before, start, rest = text.partition(START)
    old, end, after = rest.partition(END)
    if not (start and end):
        raise ValueError(f"the README has no {START.strip()} or no {END}")
    return before, old, after


def table(old: str) -> Sequence[str]:
    """The rows of what stands between the markers."""
    return old.rpartition("---|\n")[2].splitlines(keepends=True)


def without_figures(row: str) -> str:
    """A row without what is measured."""
    return re.sub(r"\d\.?\d*e-\d+", "0", row)


if __name__ == "__main__":
    sys.exit(main())
