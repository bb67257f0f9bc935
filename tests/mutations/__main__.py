"""`python -m mutations`: every mistake, the comparison that shows it, and how much. Fails where none does."""

import argparse
import datetime
import sys
import tempfile
from pathlib import Path

from mutations.comparisons import Comparisons
from mutations.running import LIMIT, shown
from mutations.table import MUTATIONS

DOCS = Path(__file__).parents[2] / "docs" / "mutations.md"
HEAD = """# Mistakes that the tests would see

Written by `make mutations ARGS=--write` on {date}, for target {target} in f32. Each row is a mistake made on purpose in
our own formula (tests/mutations/table.py), the component traced again, and compared with recorded values and the NumPy
oracle as the tests do, at a limit of {limit:.0e}. The difference is the largest one divided by the largest value, of
the comparison that shows the mistake most, inf where it makes another number of rows.
"""
TARGET = "default"
Row = tuple[str, str, str, float]


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutations", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write docs/mutations.md")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        comparisons = Comparisons(Path(folder), TARGET)
        right = [
            row
            for component in dict.fromkeys(m.component for m in MUTATIONS)
            for row in _right(comparisons, component)
        ]
        wrong: list[Row] = []
        for mutation in MUTATIONS:
            wrong.append((mutation.component, mutation.what, *shown(comparisons, mutation)))
            print(_line(*wrong[-1]), flush=True)
    text = HEAD.format(date=datetime.date.today().isoformat(), target=TARGET, limit=LIMIT)
    text += _table("Without a mistake", "", right) + _table("With one", "mistake", wrong)
    if asked.write:
        DOCS.write_text(text)
    survivors = [row for row in wrong if not row[3] > LIMIT]
    broken = [row for row in right if row[3] > LIMIT]
    for row in (*broken, *survivors):
        print("NOT TOLD APART", _line(*row))
    print(
        f"{len(MUTATIONS)} mistakes, {len(survivors)} not seen; right formulas: {max(r[3] for r in right):.1e} at most"
    )
    return 1 if survivors or broken else 0


def _right(comparisons: Comparisons, component: str) -> list[Row]:
    return [(component, "", name, far) for name, far in comparisons.of(component)]


def _line(component: str, what: str, comparison: str, far: float) -> str:
    return f"{component:15s} {what:58s} {far:9.2e}  {comparison}"


def _table(title: str, mistake: str, rows: list[Row]) -> str:
    heads = ["component", *([mistake] if mistake else []), "comparison", "difference"]
    lines = [f"\n## {title}\n", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for component, what, comparison, far in rows:
        cells = [component, *([what] if mistake else []), comparison, f"{far:.1e}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
