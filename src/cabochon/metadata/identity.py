"""The semantic identity of a document: equal for two texts that say the same, whatever their layout and order.

Not an integrity check: that is SHA256SUMS. Specification, section 1.
"""

import hashlib
import json
from decimal import Decimal
from typing import Any

__all__ = ["canonical", "identity"]

_PREFIX = "onnx-genai-metadata-identity-v1:sha256:"


def identity(data: Any) -> str:
    """The identity of parsed data, "onnx-genai-metadata-identity-v1:sha256:" and 64 hexadecimal digits."""
    return _PREFIX + hashlib.sha256(canonical(data).encode()).hexdigest()


def canonical(data: Any) -> str:
    """What is hashed: compact JSON, keys sorted, nulls, empty containers and ignorable profiles left out."""
    if isinstance(data, dict) and isinstance(data.get("profiles"), dict):
        data = data | {"profiles": {k: v for k, v in data["profiles"].items() if not _ignorable(v)}}
    kept = _kept(data)
    return "{}" if kept is None else _spelled(kept)


def _ignorable(profile: Any) -> bool:
    return isinstance(profile, dict) and profile.get("requirement") == "ignorable"


def _kept(value: Any) -> Any:
    """The value without what says nothing; None where all of it does. Items of a sequence keep their places."""
    if isinstance(value, dict):
        kept = {key: _kept(child) for key, child in sorted(value.items())}
        return {key: child for key, child in kept.items() if child is not None} or None
    if isinstance(value, list | tuple):
        return [_kept(child) for child in value] or None
    return value


def _spelled(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_spelled(key)}:{_spelled(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_spelled, value)) + "]"
    return _number(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    """The shortest digits that mean the number; in decimals from 1e-5 to 1e16, as serde_json prints it."""
    if value == int(value) and abs(value) < 1e18:
        return str(int(value))
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    point = len(digits) + int(exponent)  # digits before the decimal point
    if -5 < point <= 16:
        return repr(value) if "e" not in repr(value) else format(Decimal(repr(value)), "f")
    mantissa = "".join(map(str, digits))
    return "-" * sign + mantissa[0] + ("." + mantissa[1:] if mantissa[1:] else "") + f"e{point - 1}"
