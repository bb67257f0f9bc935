"""From plain data to the model: every mistake of type, key and value at once, each with its path."""

from typing import Any

from pydantic import ValidationError

from cabochon.metadata.addresses import Path, Problem, in_words
from cabochon.metadata.document import READING, Document

__all__ = ["typed"]

_EXPECTED = {
    "missing": "it to be there",
    "extra_forbidden": "no such key; see `cabochon metadata schema` for those that are known",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
    "tuple_type": "a sequence",
    "string_type": "a text",
    "string_too_short": "a text that is not empty",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "too_short": "at least one item",
    "union_tag_not_found": "the key `kind`",
    "recursion_loop": "a flatter document",
}


def typed(data: Any) -> Document | tuple[Problem, ...]:
    """The document, or all that keeps `data` from being one."""
    try:
        return Document.model_validate(data, context=READING)
    except ValidationError as error:
        return _problems(error, data)


def _problems(error: ValidationError, data: Any) -> tuple[Problem, ...]:
    found: dict[tuple[Path, str], list[str]] = {}
    for detail in error.errors(include_url=False, include_input=False):
        path, value = _place(detail["loc"], data, detail["type"])
        what = "nothing" if detail["type"] == "missing" else in_words(value)
        expected = found.setdefault((path, what), [])
        if (words := _expected(detail)) not in expected:
            expected.append(words)
    return tuple(Problem(path, what, " or ".join(words)) for (path, what), words in found.items())


def _place(loc: tuple[Any, ...], data: Any, kind: str) -> tuple[Path, Any]:
    """The path of a mistake and what is there. Pydantic puts the names of alternatives between the keys."""
    path: list[str | int] = []
    here: Any = data
    for key in loc:
        if key in (here if isinstance(here, dict) else range(len(here)) if isinstance(here, list) else ()):
            here = here[key]
            path.append(key)
    if kind == "missing":
        path.append(loc[-1])
    return tuple(path), here


def _expected(detail: Any) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind in ("literal_error", "union_tag_invalid"):
        return "one of " + str(context.get("expected") or context.get("expected_tags")).replace(" or ", ", ")
    if kind == "value_error":
        return str(context.get("error"))
    if kind in ("greater_than_equal", "less_than_equal"):
        bound = context.get("ge", context.get("le"))
        return f"{'at least' if kind.startswith('greater') else 'at most'} {bound}"
    return _EXPECTED.get(kind) or str(detail["msg"])
