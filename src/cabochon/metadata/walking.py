"""Every part of a document with its path: to look at, to change, and as plain data."""

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from cabochon.metadata.addresses import Path
from cabochon.metadata.parts.part import ALWAYS, Part

__all__ = ["changed", "key_of", "parts", "plain"]

_SCALARS = frozenset({str, int, float, bool, type(None)})  # in which there is nothing to look for


def key_of(part: type[Part], field: str) -> str:
    """The key that a field is written under: `class_` is a word of Python."""
    return _keys(part)[field]


def parts(value: Any, path: Path = ()) -> Iterator[tuple[Path, Part]]:
    """Every part that is written in a document, itself first."""
    left = [(path, value)]
    while left:
        here, found = left.pop()
        if _is_part(type(found)):
            yield here, found
        inside = [((*here, key), child) for key, child in _children(found) if type(child) not in _SCALARS]
        left += reversed(inside)


def _children(value: Any) -> Iterable[tuple[str | int, Any]]:
    if _is_part(type(value)):
        keys = _keys(type(value))
        return [(keys[field], child) for field, child in _written(value)]
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, tuple) else ()


def _written(part: Part) -> list[tuple[str, Any]]:
    """The fields that are written and what they hold: those that were set, and the tag of an alternative always."""
    said = part.model_fields_set
    held = vars(part).items()  # in the order of the model
    return [(name, value) for name, value in held if value is not None and (name in said or name in ALWAYS)]


@cache
def _is_part(kind: type[Any]) -> bool:
    """What isinstance says too, at ten times the price of a look into a cache: pydantic answers it in Python."""
    return issubclass(kind, Part)


@cache
def _keys(part: type[Part]) -> Mapping[str, str]:
    """The fields of a part and their keys, in the order of the model, which pydantic takes its time to say."""
    return {name: field.alias or name for name, field in part.model_fields.items()}


def changed(value: Any, change: Callable[[Path, Part], Any], path: Path = ()) -> Any:
    """The value with every part, the innermost first, as `change` makes it; itself where nothing is changed."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, dict):
        new = {key: changed(child, change, (*path, key)) for key, child in value.items()}
        return value if all(child is value[key] for key, child in new.items()) else new
    if isinstance(value, tuple):
        items = tuple(changed(child, change, (*path, i)) for i, child in enumerate(value))
        return value if all(map(operator.is_, items, value)) else items
    if not _is_part(type(value)):
        return value
    keys = _keys(type(value))
    before = {field: child for field, child in _written(value) if field != "kind"}
    after = {field: changed(child, change, (*path, keys[field])) for field, child in before.items()}
    different = {field: child for field, child in after.items() if child is not before[field]}
    return change(path, value.model_copy(update=different) if different else value)


def plain(value: Any) -> Any:
    """A part as mappings, sequences and scalars: what was said in it, in the order of the model."""
    if type(value) in _SCALARS:
        return value
    if _is_part(type(value)):
        keys = _keys(type(value))
        said = {keys[field]: plain(child) for field, child in _written(value)}
        more = {key: plain(child) for key, child in (value.model_extra or {}).items() if child is not None}
        return said | more
    if isinstance(value, dict):
        return {key: plain(child) for key, child in value.items()}
    return [plain(child) for child in value] if isinstance(value, list | tuple) else value
