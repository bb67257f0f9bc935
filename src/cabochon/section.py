"""One object of a configuration, read key by key with its address: types are checked, nothing is converted."""

import math
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np

from cabochon.errors import ConfigError

__all__ = ["Section"]

_REQUIRED: Any = object()
_ABSENT: Any = object()
_MOST = 2**31 - 1  # kernels count in int32
_F32 = np.finfo(np.float32)  # and compute in float32
_LARGEST = float(_F32.max)


class Section:
    """The object found at `at` ("config.json: text_config"), the address of every ConfigError it raises.

    `null_is_absent`: a key whose value is null means what an absent one means, here and in the sections inside.
    """

    def __init__(self, values: Mapping[str, Any], at: str, *, null_is_absent: bool = False) -> None:
        self.values, self.at, self.null_is_absent = values, at, null_is_absent

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def error(self, key: str, message: str, remedy: str = "") -> ConfigError:
        """An error about `key`, for the caller to raise."""
        return ConfigError(message, at=f"{self.at}: {key}", remedy=remedy)

    def refuse_unknown(self, known: Collection[str]) -> None:
        """Every key must be one of `known`; the error names all others, and what they may have meant."""
        unknown = [key for key in self.values if key not in known]
        if not unknown:
            return
        hints = [f"{key!r}{_did_you_mean(key, known)}" for key in unknown]
        raise ConfigError(
            f"unknown {'key' if len(unknown) == 1 else 'keys'} {', '.join(hints)}; "
            f"known keys: {', '.join(sorted(known))}",
            at=self.at,
            remedy="results are right only if every key is understood: remove it, or open an issue",
        )

    def refuse_other(self, key: str, allowed: Collection[Any], why: str) -> None:
        """`key` must be absent or one of `allowed`, of its type too; the error says `why`."""
        value = self._get(key, _ABSENT)
        if value is _ABSENT or any(type(value) is type(one) and value == one for one in allowed):
            return
        raise self.error(key, f"is {value!r:.100}; expected {' or '.join(map(repr, allowed))}: {why}")

    def integer(self, key: str, default: Any = _REQUIRED, *, minimum: int = 1, maximum: int = _MOST) -> int:
        """A whole number from `minimum` to `maximum`; true and "512" are not numbers."""
        value = self._get(key, default)
        if type(value) is not int or not minimum <= value <= maximum:
            what = f"is {value!r:.100}; expected a whole number, {minimum} or more, {maximum} at most"
            raise self.error(key, what)
        return value

    def optional_integer(self, key: str) -> int | None:
        """A positive whole number, or None where the key is absent, null or 0."""
        value = self.values.get(key)
        return None if value is None or (type(value) is int and value == 0) else self.integer(key)

    def positive(
        self,
        key: str,
        default: Any = _REQUIRED,
        *,
        minimum: float = float(_F32.smallest_normal),
        maximum: float = _LARGEST,
    ) -> float:
        """A number above 0, from `minimum` to `maximum`."""
        return self._number(key, default, minimum, maximum, f"above 0, from {minimum:g} to {maximum:g}")

    def number(
        self,
        key: str,
        default: Any = _REQUIRED,
        *,
        minimum: float,
        maximum: float,
        above: bool = False,
        why: str = "",
    ) -> float:
        """A number from `minimum` (or `above` it) to `maximum`; the error says `why`."""
        least = math.nextafter(minimum, math.inf) if above else minimum
        expected = f"{'above' if above else 'from'} {minimum:g} to {maximum:g}{': ' if why else ''}{why}"
        return self._number(key, default, least, maximum, expected)

    def numbers(self, key: str, count: int) -> tuple[float, ...] | None:
        """`count` finite numbers; None where the key is absent or null."""
        value = self.values.get(key)
        if value is None:
            return None
        fits = isinstance(value, list) and len(value) == count and all(map(_is_finite, value))
        if not fits:
            raise self.error(key, f"is {value!r:.100}; expected {count} numbers")
        return tuple(map(float, value))

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self._get(key, default)
        if type(value) is not bool:
            raise self.error(key, f"is {value!r:.100}; expected true or false")
        return value

    def section(self, key: str) -> "Section":
        """The object under `key`."""
        value = self._get(key, _REQUIRED)
        if not isinstance(value, Mapping):
            raise self.error(key, f"is {value!r:.100}; expected an object")
        return Section(value, f"{self.at}: {key}", null_is_absent=self.null_is_absent)

    def _number(self, key: str, default: Any, least: float, most: float, expected: str) -> float:
        value = self._get(key, default)
        if type(value) not in (int, float) or not least <= value <= most:
            raise self.error(key, f"is {value!r:.100}; expected a number {expected}")
        return float(value)

    def _get(self, key: str, default: Any) -> Any:
        value = self.values.get(key, default)
        if value is None and self.null_is_absent:
            value = default
        if value is _REQUIRED:
            raise self.error(key, "is missing; the model cannot be known without it")
        return value


def _is_finite(value: Any) -> bool:
    """Whether it is a number that float32 holds; a whole number may be too large for any float."""
    return type(value) in (int, float) and -_LARGEST <= value <= _LARGEST


def _did_you_mean(key: str, known: Collection[str]) -> str:
    close = get_close_matches(key, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
