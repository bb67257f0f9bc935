"""What stands in the folder of a variant: its record says what it was built from, its sums whether it is whole."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cabochon import __version__, files, sums
from cabochon.dialects import TARGETS
from cabochon.errors import PackageError
from cabochon.matrix.plan import Unit
from cabochon.recipes import PRECISIONS
from cabochon.recipes.recipe_file import written
from cabochon.strict_json import parse_object

__all__ = ["Inputs", "Standing", "read_record", "standing"]

PROVENANCE = "provenance.json"
_SMALL = 64 << 20  # bytes: what is smaller is hashed each time


@dataclass(frozen=True)
class Inputs:
    """What a run builds from: the fingerprints of both checkpoints, and the licence of the first."""

    fingerprint: str
    assistant: str | None
    license: str


@dataclass(frozen=True)
class Standing:
    """`state`: nothing stands there; what was asked for; a package that something else was built as; one that is not
    whole; what is no package at all. `why` it is not what was asked for."""

    state: Literal["absent", "whole", "other", "damaged", "foreign"]
    why: str = ""


def standing(out: Path, unit: Unit, inputs: Inputs, *, verify: bool = False) -> Standing:
    """What stands below `out` in the place of `unit`. Sizes are compared, and hashes of small files; with `verify`
    hashes of all."""
    package = out / unit.folder
    if not package.exists():
        return Standing("absent")
    if not (package / PROVENANCE).is_file():
        return Standing("foreign", f"it has no {PROVENANCE}")
    try:
        record, digests = read_record(package), sums.read(package)
    except PackageError as error:
        return Standing("damaged", error.message)
    if said := next(_differing(out, record, unit, inputs), None):
        return Standing("other", said)
    if said := next(_damaged(package, digests, _sizes(record), verify), None):
        return Standing("damaged", said)
    return Standing("whole")


def read_record(package: Path) -> dict[str, Any]:
    """provenance.json. Raises PackageError where it cannot be read."""
    try:
        return parse_object((package / PROVENANCE).read_bytes())
    except (OSError, ValueError) as error:
        raise PackageError(f"{PROVENANCE} cannot be read: {error}", at=str(package)) from None


def _differing(out: Path, record: Mapping[str, Any], unit: Unit, inputs: Inputs) -> Iterator[str]:
    """What the record says otherwise than a build of today would."""
    for place, expected in _expected(unit, inputs).items():
        found = _at(record, place)
        if found != expected:
            yield f"{place} is {found!r}; expected {expected!r}"
    rules = written(PRECISIONS[unit.variant.precision].on(TARGETS[_built_target(unit)].storage).rules)
    if (_at(record, "build.recipe") or [])[: len(rules)] != rules:
        yield f"it was built by another recipe called {unit.variant.precision}"
    if unit.variant.needs is None:
        yield from _other_files(_sizes(record), unit)
    else:
        yield from _other_origin(record, out / unit.variant.needs)


def _built_target(unit: Unit) -> str:
    return unit.variant.target if unit.variant.target in TARGETS else "onnx-standard"


def _expected(unit: Unit, inputs: Inputs) -> dict[str, Any]:
    found: dict[str, Any] = {
        "build.tool": "cabochon",
        "build.version": __version__,
        "build.target": unit.variant.target,
        "build.precision": unit.variant.precision,
        "target.fingerprint": inputs.fingerprint,
        "target.license": inputs.license,
    }
    if unit.variant.converted:
        found["build.stateful"] = unit.variant.stateful
    return found if inputs.assistant is None else {**found, "assistant.fingerprint": inputs.assistant}


def _at(record: Any, place: str) -> Any:
    for key in place.split("."):
        record = record.get(key) if isinstance(record, Mapping) else None
    return record


def _sizes(record: Mapping[str, Any]) -> dict[str, int]:
    said = _at(record, "files")
    entries = said.items() if isinstance(said, Mapping) else ()
    return {name: _at(entry, "bytes") for name, entry in entries}


def _other_files(sizes: Mapping[str, int], unit: Unit) -> Iterator[str]:
    """Text or full, alone or in a pair, one file or several: the files of weights tell."""
    for file in unit.files:
        if sizes.get(file.path) != file.nbytes:
            yield f"{file.path} has {sizes.get(file.path, 'no')} bytes; expected {file.nbytes}"


def _other_origin(record: Mapping[str, Any], origin: Path) -> Iterator[str]:
    """Where what it was made of still stands, its graphs and weights are those that stand there."""
    with suppress(PackageError):
        if read_record(origin).get("files") != _at(record, "converted_from.files"):
            yield f"it was made of another {origin.name} than stands there"


def _damaged(
    package: Path, digests: Mapping[str, str], sizes: Mapping[str, int], verify: bool
) -> Iterator[str]:
    for name, digest in digests.items():
        path = package / name
        if not path.is_file():
            yield f"{name} is missing"
            continue
        nbytes, stated = path.stat().st_size, sizes.get(name)
        if stated is not None and nbytes != stated:
            yield f"{name} has {nbytes} bytes; expected {stated}"
        elif (verify or stated is None or nbytes < _SMALL) and files.sha256(path) != digest:
            yield f"{name} is not what {sums.SUMS} says"
