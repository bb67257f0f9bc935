"""What a word of YAML means: the core schema of YAML 1.2, and how to write a word that no reader takes for another.

YAML 1.2.2, 10.3.2 (core schema); YAML 1.1 types (int, float, bool, null, merge, timestamp, value) for the words
that older readers see something else in.
"""

import json
import math
import re
from functools import lru_cache
from typing import Any

__all__ = ["LONGEST_KEY", "resolve", "spell", "spell_text"]

LONGEST_KEY = 1000  # characters; a reader looks no further than 1024 for the colon behind a key

_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_INT64, _UINT64 = -(2**63), 2**64 - 1
_NUMBERS = frozenset("+-.0123456789")  # how every number begins
# A word that begins so is never a number, a date or a merge key; these are the rest that have a meaning somewhere.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./@+-]*")
_MEANT = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity"}
_ESCAPES = {"\n": r"\n", "\t": r"\t", "\r": r"\r", "\\": r"\\", '"': r"\""}


def resolve(word: str) -> Any:
    """The value of a plain word. ValueError, whose text is what to expect, for numbers that are none here."""
    if word in _WORDS:
        return _WORDS[word]
    if word[0] not in _NUMBERS:
        return word
    if _INTEGER.fullmatch(word):
        return _integer(word)
    if _NOT_FINITE.fullmatch(word) or (_FLOAT.fullmatch(word) and not math.isfinite(float(word))):
        raise ValueError("a finite number of 64 bits, or quotes around a text")
    return float(word) if _FLOAT.fullmatch(word) else word


def _integer(word: str) -> int:
    if len(word) <= 200:
        value = int(word, {"0o": 8, "0x": 16}.get(word[:2], 10))
        if _INT64 <= value <= _UINT64:
            return value
    raise ValueError("an integer of 64 bits, or quotes around a text")


def spell(value: Any) -> str:
    """A scalar as every reader of YAML 1.1 and 1.2 takes it. ValueError for what has no such spelling."""
    if isinstance(value, str):
        return spell_text(value)
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int) and _INT64 <= value <= _UINT64:
        return str(int(value))
    if isinstance(value, float) and math.isfinite(value):
        mantissa, mark, exponent = repr(float(value)).partition("e")
        return (mantissa if "." in mantissa else mantissa + ".0") + mark + exponent
    raise ValueError("a text, a truth value, null, an integer of 64 bits or a finite number")


@lru_cache(1000)  # a document has few names, each many times
def spell_text(text: str) -> str:
    """A text: as it is where nobody can take it for anything else, else in quotes."""
    if _PLAIN.fullmatch(text) and text.lower() not in _MEANT:
        return text
    if text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else _escape(c)) for c in text) + '"'


def _escape(character: str) -> str:
    code = ord(character)
    if 0xD800 <= code < 0xE000:
        raise ValueError("a text of characters, without half of a surrogate pair")
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
