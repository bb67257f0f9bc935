"""Schema: the documents can be read, are what their version allows, and say the same as their copies."""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from cabochon.errors import MetadataError
from cabochon.metadata import forms, versions, yaml
from cabochon.metadata.addresses import dotted
from cabochon.metadata.document import Document
from cabochon.metadata.identity import identity
from cabochon.validation.findings import Severity
from cabochon.validation.opened import CANONICAL, DOCUMENTS, Opened
from cabochon.validation.rules import Found, rule

_ANNOTATED = DOCUMENTS[2]
_HASH = re.compile(r"(?:^|[_.-])(?:sha\d*|hash|fingerprint|digest)(?:$|[_.-])", re.IGNORECASE)
_RIVALS = tuple(CANONICAL.replace(".yaml", ending) for ending in (".yml", ".json"))


@rule("SCH001", Severity.ERROR)
def no_document(package: Opened) -> Iterator[Found]:
    """The package has no inference metadata.

    Causes: A package of an earlier version of cabochon or of another tool, or a file that was left out of a copy.
    (Packages that were converted to OpenVINO have none: it describes ONNX graphs.)
    Remedy: Build the package again.
    """
    if CANONICAL not in package.files and not package.converted:
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


@rule("SCH004", Severity.ERROR)
def unknown_version(package: Opened) -> Iterator[Found]:
    """A document is of a version that is not known.

    Causes: A document that is newer than this cabochon, a version that does not exist, or one that is a number instead
    of text (1.1 without quotes).
    Remedy: Convert it with a tool that knows its version, or put quotes around the version.
    """
    yield from package.faults.get("SCH004", ())


@rule("SCH005", Severity.ERROR)
def other_version(package: Opened) -> Iterator[Found]:
    """A document says what its version does not have, or leaves out what it must say.

    Causes: Fields of two versions in one document: rank and capabilities belong to v1, and from v1.1 on they are
    errors; family belongs to v1.5 and later, publication_mode to v1.7 and later.
    Remedy: Write one version; `cabochon metadata convert` makes a document of either.
    """
    for name, document in package.documents.items():
        for problem in versions.check(document) if name != _ANNOTATED else ():
            yield Found(f"{name}: {dotted(problem.path)}", problem.found, problem.expected)


@rule("SCH006", Severity.ERROR)
def hashed(package: Opened) -> Iterator[Found]:
    """A document carries a hash.

    Causes: A document of a time when checksums were part of it. The contract holds for a graph whatever its weights;
    whether files are whole is the matter of SHA256SUMS and of those who distribute them.
    Remedy: Remove the field.
    """
    for name, data in package.raw.items():
        for at, key in _hashes(data, ""):
            yield Found(f"{name}: {at}", f"the key {key!r}", "no hash, fingerprint or digest")


def _hashes(value: Any, at: str) -> Iterator[tuple[str, str]]:
    """The address and name of each key that is called after a hash."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if _is_hash(str(key)):
                yield f"{at}.{key}" if at else str(key), str(key)
            if isinstance(inner, dict | list | tuple):
                yield from _hashes(inner, f"{at}.{key}" if at else str(key))
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            if isinstance(inner, dict | list | tuple):
                yield from _hashes(inner, f"{at}[{i}]")


@lru_cache(1000)  # a document has few names of keys, each many times
def _is_hash(key: str) -> bool:
    return _HASH.search(key) is not None


@rule("SCH007", Severity.NOTE)
def not_canonical(package: Opened) -> Iterator[Found]:
    """A document is not written in the one form that cabochon writes.

    Causes: A document of another tool, or one that was edited by hand: other indents, another order of keys, comments,
    fields that say no more than their defaults.
    Remedy: Nothing needs to be done. To compare documents line by line, write both with cabochon.
    """
    for name, document in package.documents.items():
        if name != _ANNOTATED and (line := _first_difference(package.bytes(name), document)):
            yield Found(
                f"{name}:{line}", "a line that cabochon would not write", "the form that cabochon writes"
            )


def _first_difference(text: bytes, document: Document) -> int:
    """The first line that differs from what cabochon writes, from 1 on; 0 where there is none."""
    dialect = versions.dialect(document)
    if dialect not in versions.DIALECTS or versions.check(document):  # the latter is another rule's matter
        return 0
    try:
        written = yaml.write(forms.dump(document, dialect))
    except MetadataError:  # what it says cannot be said in its own version
        return 0
    if text == written:
        return 0
    pairs = enumerate(zip_longest(text.splitlines(), written.splitlines()), 1)
    return next((number for number, (a, b) in pairs if a != b), 1)


@rule("SCH008", Severity.ERROR)
def other_copy(package: Opened) -> Iterator[Found]:
    """The annotated copy does not say what the document says.

    Causes: One of the two was edited, or one is of an earlier build.
    Remedy: Build the package again; change neither by hand.
    """
    if CANONICAL in package.raw and _ANNOTATED in package.raw:
        one, other = package.raw[CANONICAL], package.raw[_ANNOTATED]
        # To the last digit and in the same order: no need to work out who they are.
        if repr(one) == repr(other):
            return
        expected, found = identity(one), identity(other)
        if found != expected:
            yield Found(_ANNOTATED, found, f"{expected}, as {CANONICAL} has it")


@rule("SCH009", Severity.WARNING)
def rivals(package: Opened) -> Iterator[Found]:
    """Two documents compete for one place.

    Causes: A document in another format was left beside inference_metadata.yaml. Readers look for .yaml, .yml and .json
    in this order, but not all of them.
    Remedy: Keep one of them, inference_metadata.yaml where there is no reason for another.
    """
    if CANONICAL in package.files:
        for name in _RIVALS:
            if name in package.files:
                yield Found(name, f"a document beside {CANONICAL}", "one document")
