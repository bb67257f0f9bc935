"""Documents read and written in every form there is: v1, v1.1 to v1.8, and the loop form that calls itself '1.0'."""

from collections.abc import Mapping
from typing import Any

from cabochon.errors import MetadataError
from cabochon.metadata import versions, yaml
from cabochon.metadata.addresses import Problem, dotted, in_words
from cabochon.metadata.checking import typed
from cabochon.metadata.conversion import Converted, convert
from cabochon.metadata.document import Document
from cabochon.metadata.walking import plain

__all__ = ["NAMES", "Converted", "convert", "dump", "load", "plain", "read"]

NAMES = ("inference_metadata.yaml", "inference_metadata.yml", "inference_metadata.json")  # in their order
_REMEDY = "correct the document, or build the package again"


def load(data: Any, at: str, text: bytes | None = None) -> Document:
    """The document that plain data says, in any known version; `text`, which it was read from, gives lines.

    Raises MetadataError at "NAME:LINE:COLUMN: key.of.the[0].mistake" ("NAME: key..." without `text`) for what the
    model does not know, the other mistakes in its `others`. Whether keys fit the version is another question:
    `versions.check`.
    """
    found = _typed(data)
    if isinstance(found, Document):
        return found
    places = yaml.addresses(text, at, (p.path for p in found)) if text else [at] * len(found)
    first, *others = map(_located, found, places)
    raise MetadataError(first.found, first.expected, at=first.at, remedy=_REMEDY, others=tuple(others))


def read(text: bytes, at: str) -> Document:
    """The document in a file named `at`. Raises MetadataError as `yaml.read` and `load` do."""
    return load(yaml.read(text, at), at, text)


def dump(document: Document, dialect: str) -> dict[str, Any]:
    """Plain data of the document as "v1" or "v1.8" says it, in the order of the model.

    Raises MetadataError as `convert` does, whose remarks are not heard here.
    """
    return plain(convert(document, dialect).document)


def _typed(data: Any) -> Document | tuple[Problem, ...]:
    if not isinstance(data, Mapping):
        return (Problem((), "nothing" if data is None else in_words(data), "a mapping"),)
    try:
        versions.number(data.get("schema_version"))
    except MetadataError as error:
        return (Problem(("schema_version",), error.found, error.expected),)
    return typed(data)


def _located(problem: Problem, place: str) -> MetadataError:
    where = ": ".join(filter(None, (place, dotted(problem.path))))
    return MetadataError(problem.found, problem.expected, at=where, remedy=_REMEDY)
