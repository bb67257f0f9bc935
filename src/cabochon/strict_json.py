"""JSON as this project accepts it: UTF-8, an object at the top, every key once, no NaN."""

import json
from collections.abc import Iterable
from typing import Any

__all__ = ["parse_object"]


def parse_object(text: bytes) -> dict[str, Any]:
    """The object that `text` spells. ValueError says what is wrong with it, without naming the file."""
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 text: byte {error.start} cannot be decoded") from None
    except RecursionError:
        raise ValueError("not usable JSON: nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"the top is a {type(value).__name__}; expected a JSON object")
    return value


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key!r} is given twice; which one is meant cannot be known")
        result[key] = value
    return result


def _no_constant(name: str) -> Any:
    raise ValueError(f"not JSON: the value {name}")
