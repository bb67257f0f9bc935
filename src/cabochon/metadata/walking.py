"""Every part of a document with its path: to look at, to change, and as plain data."""

from collections.abc import Callable, Iterator, Mapping
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
    if _is_part(type(value)):
        yield path, value
    for key, child in _children(value):
        if type(child) not in _SCALARS:
            yield from parts(child, (*path, key))


def _children(value: Any) -> Iterator[tuple[str | int, Any]]:
    if _is_part(type(value)):
        keys = _keys(type(value))
        for field in _written(value):
            yield keys[field], getattr(value, field)
    elif isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, tuple):
        yield from enumerate(value)


def _written(part: Part) -> list[str]:
    """The fields that are written: those that were set, and the tag of an alternative always."""
    said = part.model_fields_set
    known = [name for name in _keys(type(part)) if name in said or name in ALWAYS]
    return [name for name in known if getattr(part, name) is not None]


@cache
def _is_part(kind: type[Any]) -> bool:
    """What isinstance says too, at ten times the price of a look into a cache: pydantic answers it in Python."""
    return issubclass(kind, Part)


@cache
def _keys(part: type[Part]) -> Mapping[str, str]:
    """The fields of a part and their keys, in the order of the model, which pydantic takes its time to say."""
    return {name: field.alias or name for name, field in part.model_fields.items()}


def changed(value: Any, change: Callable[[Path, Part], Any], path: Path = ()) -> Any:
    """A copy in which every part, the innermost first, is what `change` makes of it."""
    if type(value) in _SCALARS:
        return value
    if isinstance(value, dict):
        return {key: changed(child, change, (*path, key)) for key, child in value.items()}
    if isinstance(value, tuple):
        return tuple(changed(child, change, (*path, i)) for i, child in enumerate(value))
    if not _is_part(type(value)):
        return value
    before = {field: getattr(value, field) for field in _written(value) if field != "kind"}
    keys = _keys(type(value))
    after = {field: changed(child, change, (*path, keys[field])) for field, child in before.items()}
    different = {field: child for field, child in after.items() if child is not before[field]}
    return change(path, value.model_copy(update=different) if different else value)


def plain(value: Any) -> Any:
    """A part as mappings, sequences and scalars: what was said in it, in the order of the model."""
    if type(value) in _SCALARS:
        return value
    if _is_part(type(value)):
        keys = _keys(type(value))
        said = {keys[field]: plain(getattr(value, field)) for field in _written(value)}
        more = {key: plain(child) for key, child in (value.model_extra or {}).items() if child is not None}
        return said | more
    if isinstance(value, dict):
        return {key: plain(child) for key, child in value.items()}
    return [plain(child) for child in value] if isinstance(value, list | tuple) else value
