"""One object of a processor's configuration, read key by key with its address: types are checked, nothing converted."""

import json
import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from cabochon.errors import ConfigError

__all__ = ["Settings", "read_settings"]


class Settings:
    """The object found at `at` ("processor_config.json: image_processor"), the address of every error it raises.

    An absent key means what it means in transformers, and so does null where the default is not null.
    """

    def __init__(self, values: Mapping[str, Any], at: str) -> None:
        self.values, self.at = values, at

    def error(self, key: str, message: str, remedy: str = "") -> ConfigError:
        """An error about `key`, for the caller to raise."""
        return ConfigError(message, at=f"{self.at}: {key}", remedy=remedy)

    def refuse_unknown(self, known: Iterable[str]) -> None:
        """Every key must be one of `known`; the error names all others, and what they may have meant."""
        known = sorted(known)
        unknown = [key for key in self.values if key not in known]
        if unknown:
            close = {key: get_close_matches(key, known, n=1) for key in unknown}
            said = ", ".join(f"{k!r}" + (f" (did you mean {m[0]!r}?)" if m else "") for k, m in close.items())
            what = f"unknown {'key' if len(unknown) == 1 else 'keys'} {said}; known keys: {', '.join(known)}"
            remedy = "features are right only if every key is understood: remove it, or open an issue"
            raise ConfigError(what, at=self.at, remedy=remedy)

    def refuse_other(self, key: str, allowed: Iterable[Any], why: str) -> None:
        """`key` must be absent, null, or one of `allowed`; the error says `why`."""
        value = self.values.get(key)
        if value is None or any(type(value) is type(one) and value == one for one in allowed):
            return
        expected = " or ".join(json.dumps(one) for one in allowed) or "null"
        raise self.error(key, f"is {value!r:.100}; expected {expected}: {why}")

    def integer(self, key: str, default: int, most: int) -> int:
        """A whole number from 1 to `most`."""
        value = self._get(key, default)
        if type(value) is not int or not 1 <= value <= most:
            raise self.error(key, f"is {value!r:.100}; expected a whole number from 1 to {most}")
        return value

    def number(self, key: str, default: float, least: float, most: float, *, above: bool = False) -> float:
        """A finite number from `least` (or `above` it) to `most`."""
        value = self._get(key, default)
        if type(value) not in (int, float) or not least <= value <= most or (above and value == least):
            expected = f"a number {'above' if above else 'from'} {least:g} to {most:g}"
            raise self.error(key, f"is {value!r:.100}; expected {expected}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self._get(key, default)
        if type(value) is not bool:
            raise self.error(key, f"is {value!r:.100}; expected true or false")
        return value

    def numbers(self, key: str, count: int) -> tuple[float, ...] | None:
        """`count` finite numbers; None where the key is absent or null."""
        value = self.values.get(key)
        if value is None:
            return None
        fits = isinstance(value, list) and all(type(x) in (int, float) and math.isfinite(x) for x in value)
        if not fits or len(value) != count:
            raise self.error(key, f"is {value!r:.100}; expected {count} numbers")
        return tuple(map(float, value))

    def _get(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        return default if value is None else value


def read_settings(path: Path) -> Settings | None:
    """The JSON object in `path`; None where there is no such file. Raises ConfigError."""
    if not path.is_file():
        return None
    try:
        values = json.loads(path.read_text("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"not JSON: {error}", at=path.name) from error
    if not isinstance(values, dict):
        raise ConfigError(f"the top is a {type(values).__name__}; expected an object", at=path.name)
    return Settings(values, path.name)


def _unique(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise ValueError(f"the key {key!r} is given twice; which one is meant cannot be known")
        result[key] = value
    return result
