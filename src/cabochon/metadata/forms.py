"""Documents read and written in every form there is: v1, v1.1 to v1.8, and the loop form that calls itself '1.0'."""

from collections.abc import Mapping
from typing import Any

from cabochon.errors import MetadataError
from cabochon.metadata import versions, yaml
from cabochon.metadata.addresses import Problem, dotted, raised
from cabochon.metadata.checking import typed
from cabochon.metadata.conversion import Converted, convert
from cabochon.metadata.document import Document
from cabochon.metadata.walking import plain

__all__ = ["NAMES", "Converted", "convert", "dump", "load", "read"]

NAMES = ("inference_metadata.yaml", "inference_metadata.yml", "inference_metadata.json")  # in their order
_REMEDY = "correct the document, or build the package again"


def load(data: Any, at: str) -> Document:
    """The document that plain data says, in any known version.

    Raises MetadataError at "NAME: key.of.the[0].mistake" for what the model does not know, the other mistakes in its
    `others`. Whether keys fit the version is another question: `versions.check`.
    """
    if problems := _problems(data):
        raise raised(problems, at, _REMEDY)
    return Document.model_validate(data)


def read(text: bytes, at: str) -> Document:
    """The document that a file says. Raises MetadataError at "NAME:LINE:COLUMN: key.of.the[0].mistake"."""
    data = yaml.read(text, at)
    if not (problems := _problems(data)):
        return Document.model_validate(data)
    errors = [_located(text, at, problem) for problem in problems]
    first, others = errors[0], tuple(errors[1:])
    raise MetadataError(first.found, first.expected, at=first.at, remedy=_REMEDY, others=others)


def dump(document: Document, dialect: str) -> dict[str, Any]:
    """Plain data of the document as "v1" or "v1.8" says it, in the order of the model.

    Raises MetadataError as `convert` does, whose remarks are not heard here.
    """
    return plain(convert(document, dialect).document)


def _problems(data: Any) -> tuple[Problem, ...]:
    if not isinstance(data, Mapping):
        found = "nothing" if data is None else f"a {type(data).__name__}"
        return (Problem((), found, "a mapping"),)
    try:
        versions.number(data.get("schema_version"))
    except MetadataError as error:
        return (Problem(("schema_version",), error.found, error.expected),)
    found = typed(data)
    return () if isinstance(found, Document) else found


def _located(text: bytes, at: str, problem: Problem) -> MetadataError:
    place = yaml.address(text, at, problem.path)
    where = f"{place}: {dotted(problem.path)}" if problem.path else place
    return MetadataError(problem.found, problem.expected, at=where, remedy=_REMEDY)
