"""python -m bench [--full] [--write]: measures, prints a Markdown table, writes it into the README."""

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from bench import (
    building,
    checkpoints,
    experts,
    installing,
    kernels,
    media,
    packing,
    quality,
    quantized,
    running,
    speculation,
    validation,
)
from bench.table import Row, failed, markdown, write_into

LARGE = ("full", "media", "quantized", "experts")  # parts that need checkpoints of real size
Part = Callable[[Path, float, int], Iterable[Row]]


def main() -> None:
    """Parses, measures part by part, prints each row as it is known."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--full", action="store_true", help="also E2B at full size: 30 GB of disk, 24 GB of memory"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, help="only these parts")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="shrinks the checkpoints, to try the scripts out"
    )
    parser.add_argument("--rounds", type=int, default=3, help="ours, copy, ours, copy ... this often")
    parser.add_argument("--work", type=Path, help="a folder on the disk to measure (the current one)")
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    chosen = parser.parse_args()
    parts = chosen.only or [name for name in PARTS if name not in LARGE or chosen.full]
    rows: list[Row] = []
    for row in measured(parts, chosen.work or Path.cwd(), chosen.scale, chosen.rounds):
        print(row.line(), flush=True)
        rows.append(row)
    table = markdown(rows, chosen.scale)
    print(f"\n{table}")
    if chosen.write:
        write_into(checkpoints.ROOT / "README.md", table)


def measured(parts: Iterable[str], work: Path, scale: float, rounds: int) -> Iterator[Row]:
    """The rows of the chosen parts, in order, each part in a folder of its own; a part that fails is a row too."""
    for name in parts:
        with tempfile.TemporaryDirectory(prefix="cabochon-bench-", dir=work) as place:
            try:
                yield from PARTS[name](Path(place), scale, rounds)
            except Exception as error:  # whatever it is, the other parts are worth their time
                yield failed(name, error)


def _build(work: Path, scale: float, rounds: int) -> Iterator[Row]:
    source = building.checkpoint(checkpoints.medium(scale), work / "medium")
    yield from building.against_copy("1.75 GB", source, work, rounds)


def _layers(work: Path, scale: float, _: int) -> Iterator[Row]:
    source = building.checkpoint(checkpoints.e2b_layers(scale), work / "layers")
    package = work / "layers-f32"
    building.build(source, package, "f32")
    shutil.rmtree(source)
    yield running.memory(package)
    decoder = running.Decoder(package)
    yield from running.decoding(decoder)


def _attention(work: Path, scale: float, _: int) -> Iterator[Row]:
    source = building.checkpoint(checkpoints.e2b_attention(scale), work / "attention")
    for precision in ("f32", "f16"):
        packages = {target: work / f"{target}-{precision}" for target in running.SPELLINGS}
        for target, package in packages.items():
            building.build(source, package, precision, target)
        yield from running.spellings(packages, precision)
        for package in packages.values():
            shutil.rmtree(package)


def _validate(work: Path, scale: float, rounds: int) -> Iterator[Row]:
    yield validation.quick(validation.hollow(checkpoints.e2b(scale), work), rounds)
    source = building.checkpoint(checkpoints.medium(scale), work / "medium")
    yield from validation.full("1.75 GB", source, work, rounds)


def _speculation(work: Path, _: float, rounds: int) -> Iterator[Row]:
    """f32, where answers are held to be the same; a quantized pair belongs here as soon as there is one."""
    yield from speculation.speculation(speculation.pair(work, "f32"), "f32", rounds)


def _full(work: Path, scale: float, rounds: int) -> Iterator[Row]:
    source = building.checkpoint(checkpoints.e2b(scale), work / "e2b")
    yield from building.against_copy("full E2B", source, work, min(2, rounds))
    package, planned = work / "e2b-f16", running.planned(source)
    building.build(source, package, "f16")
    shutil.rmtree(source)
    yield running.disk(package, planned)
    yield from running.load_and_run(package, planned)
    yield running.prefill(package)


def _media(work: Path, scale: float, rounds: int) -> Iterator[Row]:
    source = media.checkpoint(work / "e2b", scale)
    yield from building.against_copy("full E2B", source, work, min(2, rounds), (building.FULL,))
    package = work / "e2b-full"
    building.build(source, package, "f16", model="full")
    shutil.rmtree(source)
    yield media.sizes(package)
    yield from media.components(package)
    yield from media.answer(package)


PARTS: dict[str, Part] = {
    "import": lambda *_: [installing.import_time()],
    "install": lambda *_: [installing.install_size()],
    "build": _build,
    "validate": _validate,
    "kernels": lambda *_: kernels.rows(),
    "quality": lambda work, *_: quality.rows(work),
    "packing": lambda *_: [*packing.quality(), *packing.speed()],
    "layers": _layers,
    "attention": _attention,
    "speculation": _speculation,
    "full": _full,
    "media": _media,
    "quantized": quantized.quantized,
    "experts": experts.experts,
}

if __name__ == "__main__":
    main()
