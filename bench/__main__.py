"""python -m bench [--full] [--write]: measures, prints a Markdown table, writes it into the README."""

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench import building, checkpoints, installing, running
from bench.table import Row, markdown, write_into

PARTS = ("import", "install", "build", "prefill", "decode")


def main() -> None:
    """Parses, measures part by part, prints each row as it is known."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--full", action="store_true", help="also E2B at full size: 30 GB of disk, 24 GB of memory"
    )
    parser.add_argument("--only", nargs="+", choices=(*PARTS, "full"), help="only these parts")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="shrinks the checkpoints, to try the scripts out"
    )
    parser.add_argument("--rounds", type=int, default=3, help="ours, copy, ours, copy ... this often")
    parser.add_argument("--work", type=Path, help="a folder on the disk to measure (the current one)")
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    chosen = parser.parse_args()
    parts = chosen.only or (*PARTS, *(["full"] if chosen.full else []))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="cabochon-bench-", dir=chosen.work or Path.cwd()) as work:
        for row in measured(parts, Path(work), chosen.scale, chosen.rounds):
            print(row.line(), flush=True)
            rows.append(row)
    table = markdown(rows, chosen.scale)
    print(f"\n{table}")
    if chosen.write:
        write_into(checkpoints.ROOT / "README.md", table)


def measured(parts: tuple[str, ...], work: Path, scale: float, rounds: int) -> Iterator[Row]:
    """The rows of the chosen parts, in order; what is big is deleted as soon as it was measured."""
    if "import" in parts:
        yield installing.import_time()
    if "install" in parts:
        yield installing.install_size()
    if "build" in parts:
        source = building.checkpoint(checkpoints.medium(scale), work / "medium")
        yield from building.against_copy("1.75 GB", source, work, rounds)
        shutil.rmtree(source)
    if {"prefill", "decode"} & set(parts):
        yield from _run_layers(parts, work, scale)
    if "full" in parts:
        source = building.checkpoint(checkpoints.e2b(scale), work / "e2b")
        yield from building.against_copy("full E2B", source, work, max(2, rounds - 1))
        building.build(source, work / "e2b-f16", "f16")
        shutil.rmtree(source)
        yield running.load_and_run(work / "e2b-f16")
        shutil.rmtree(work / "e2b-f16")


def _run_layers(parts: tuple[str, ...], work: Path, scale: float) -> Iterator[Row]:
    source = building.checkpoint(checkpoints.e2b_layers(scale), work / "layers")
    package = work / "layers-f32"
    building.build(source, package, "f32")
    shutil.rmtree(source)
    if "prefill" in parts:
        yield running.prefill(package)
    if "decode" in parts:
        yield from running.decoding(package)
    shutil.rmtree(package)


if __name__ == "__main__":
    main()
