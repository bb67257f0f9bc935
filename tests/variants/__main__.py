"""`python -m variants`: builds every variant of the tiny multimodal checkpoint, validates and executes each, and holds
the table of the README to what was found. Fails where a variant is not right, or the table says another thing."""

import argparse
import datetime
import platform
import re
import sys
import tempfile
from pathlib import Path

from cabochon.matrix import build_matrix
from packages import TINY
from variants.browsing import Browsing
from variants.executing import TWIN, Executing, Execution, Row

README = Path(__file__).parents[2] / "README.md"
START, END = "<!-- variants:start -->\n", "<!-- variants:end -->"
HEAD = """Written by `make variants ARGS=--write` on {date}, {machine}: every variant of the tiny multimodal checkpoint,
all four components. *native*: by the runtime and on the kind of device that it is for. *substitute*: by
another, such as the graph of `cuda` on the CPU provider. *static*: not executed. Numbers are the largest difference
of any component from the NumPy reference on the weights that the package holds, divided by the largest value: of
what is executed in its own arithmetic, and, as parity, in f32 with nothing rounded but the constants of 16-bit
packages.

| variant | bytes | validated | executed by | parity |
|---|---|---|---|---|
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="variants", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table of the README")
    parser.add_argument(
        "--only", action="append", default=[], help="variants that fit a pattern; writes no table"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = list(_rows(Path(folder), asked.only))
    wrong = [f"{row.folder}: {error}" for row in rows for error in row.errors]
    wrong += [f"{row.folder}: {_cell(run)}" for row in rows for run in row.executions if not run.holds]
    wrong += [f"{row.folder}: nothing says how it was executed" for row in rows if not row.executions]
    table = "".join(_line(row) for row in rows)
    text = README.read_text(encoding="utf-8")
    before, old, after = _parts(text)
    if asked.write and not wrong:
        machine = f"{platform.system()}, Python {platform.python_version()}"
        head = HEAD.format(date=datetime.date.today().isoformat(), machine=machine)
        README.write_text(f"{before}{START}{head}{table}{END}{after}", encoding="utf-8")
    elif not asked.only and _without_figures(table) != _without_figures(
        old.partition("|---|---|---|---|---|\n")[2]
    ):
        wrong.append("the table of the README says another thing: make variants ARGS=--write")
    for line in wrong:
        print("WRONG", line)
    print(f"{len(rows)} variants, {sum(len(row.executions) for row in rows)} executions, {len(wrong)} wrong")
    return 1 if wrong else 0


def _rows(folder: Path, only: list[str]) -> "list[Row]":
    browsing = Browsing()
    try:
        ran = build_matrix(
            TINY / "target", folder / "matrix", only=only, every=not only, license="apache-2.0"
        )
        assert ran.complete, [outcome for outcome in ran.variants if outcome.status not in ("kept", "built")]
        executing = Executing(TINY / "target", folder / "matrix", folder / "room", browsing)
        rows = list[Row]()
        for outcome in ran.variants:
            rows.append(executing.row(outcome.folder))
            print(_line(rows[-1]), end="", flush=True)
        return rows
    finally:
        browsing.close()


def _line(row: Row) -> str:
    validated = f"{row.rules} rules" if not row.errors else f"{len(row.errors)} ERRORS"
    runs = "; ".join(_cell(run) for run in row.executions if run.manner != TWIN)
    parity = "as openvino-ir" if row.parity is None or row.parity.far is None else f"{row.parity.far:.0e}"
    return f"| `{row.folder}` | {row.nbytes:,} | {validated} | {runs} | {parity} |\n"


def _cell(run: Execution) -> str:
    said = f" ({run.said})" if run.said else ""
    far = "" if run.far is None or run.limit == 0 else f": {run.far:.0e}"
    return f"{run.runtime}, *{run.manner}*{said}{far}"


def _parts(text: str) -> tuple[str, str, str]:
    before, _, rest = text.partition(START)
    old, _, after = rest.partition(END)
    return before, old, after


def _without_figures(table: str) -> str:
    return re.sub(r"\d[\d.,]*(e-?\d+)?", "0", table)


if __name__ == "__main__":
    sys.exit(main())
