"""Schema: the documents can be read, are what their version allows, and say the same as their copies."""

import re
from collections.abc import Iterator
from typing import Any

from cabochon.validate.findings import Severity
from cabochon.validate.opened import CANONICAL, DOCUMENTS, Opened
from cabochon.validate.rules import Found, rule

_ANNOTATED = DOCUMENTS[2]
_HASH = re.compile(r"(?:^|[_.-])(?:sha\d*|hash|fingerprint|digest)(?:$|[_.-])", re.IGNORECASE)
_RIVALS = tuple(CANONICAL.replace(".yaml", ending) for ending in (".yml", ".json"))


@rule("SCH001", Severity.ERROR)
def no_document(package: Opened) -> Iterator[Found]:
    """The package has no inference metadata.

    Causes: A package of an earlier version of cabochon or of another tool, or a file that was left out of a copy.
    Remedy: Build the package again.
    """
    if CANONICAL not in package.files:
        yield Found(CANONICAL, "no such file", "the document that says how the graphs are run")


@rule("SCH002", Severity.ERROR)
def unreadable(package: Opened) -> Iterator[Found]:
    """A document is no YAML that every reader takes for the same.

    Causes: A typing error; a key that is given twice; anchors and aliases, which can fill the memory; nests too deep,
    files too long; text that is no UTF-8.
    Remedy: Correct the line that is named, or build the package again.
    """
    yield from package.faults.get("SCH002", ())


@rule("SCH003", Severity.ERROR)
def untyped(package: Opened) -> Iterator[Found]:
    """A document is not what the specification allows.

    Causes: A field that is unknown or missing, a value of the wrong type or none of those allowed; a document of
    another kind or of an unknown version.
    Remedy: Correct the field that is named, or build the package again; `cabochon metadata schema` prints what is
    allowed.
    """
    yield from package.faults.get("SCH003", ())


@rule("SCH006", Severity.ERROR)
def hashed(package: Opened) -> Iterator[Found]:
    """A document carries a hash.

    Causes: A document of a time when checksums were part of it. The contract holds for a graph whatever its weights;
    whether files are whole is the matter of SHA256SUMS and of those who distribute them.
    Remedy: Remove the field.
    """
    for name, data in package.raw.items():
        for at, key in _keys(data, ""):
            if _HASH.search(key):
                yield Found(f"{name}: {at}", f"the key {key!r}", "no hash, fingerprint or digest")


def _keys(value: Any, at: str) -> Iterator[tuple[str, str]]:
    """The address and name of each key that the specification gives; names that a document gives may be anything."""
    if isinstance(value, dict):
        for key, inner in value.items():
            where = f"{at}.{key}" if at else str(key)
            yield where, str(key)
            yield from _keys(inner, where)
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            yield from _keys(inner, f"{at}[{i}]")


@rule("SCH008", Severity.ERROR)
def other_copy(package: Opened) -> Iterator[Found]:
    """The annotated copy does not say what the document says.

    Causes: One of the two was edited, or one is of an earlier build.
    Remedy: Build the package again; change neither by hand.
    """
    from cabochon.metadata.identity import identity

    if CANONICAL in package.raw and _ANNOTATED in package.raw:
        expected, found = identity(package.raw[CANONICAL]), identity(package.raw[_ANNOTATED])
        if found != expected:
            yield Found(_ANNOTATED, found, f"{expected}, as {CANONICAL} has it")


@rule("SCH009", Severity.WARNING)
def rivals(package: Opened) -> Iterator[Found]:
    """Two documents compete for one place.

    Causes: A document in another format was left beside inference_metadata.yaml. Readers look for .yaml, .yml and .json
    in this order, but not all of them.
    Remedy: Keep one.
    """
    if CANONICAL in package.files:
        for name in _RIVALS:
            if name in package.files:
                yield Found(name, f"a document beside {CANONICAL}", "one document")
