"""What a value from outside may be: one table for the options of a call and the entries of a package's files."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from cabochon.errors import PackageError, RequestError
from cabochon.runtime.parts import shown

MOST = 2**63 - 1
MOST_DRAFT_TOKENS = 64
AUTO = "auto"


@dataclass(frozen=True)
class Kind:
    """`read` gives a value in the type we compute with; it raises ValueError or TypeError for any other."""

    expected: str
    read: Callable[[Any], Any]


def checked(values: Mapping[str, Any], names: Iterable[str], file: str | None = None) -> dict[str, Any]:
    """`values`, those of `names` in our own types; None is as good as absent.

    Raises RequestError, or PackageError where the values are those of a `file`, for one that is not of its kind.
    """
    return {
        **values,
        **{name: read(name, values[name], file) for name in names if values.get(name) is not None},
    }


def read(name: str, value: Any, file: str | None = None) -> Any:
    """One value; see `checked`."""
    try:
        return KINDS[name].read(value)
    except (TypeError, ValueError, OverflowError):
        found = f"{shown(value)}; expected {KINDS[name].expected}"
    if file is None:
        raise RequestError(found, at=name, remedy="change the value or leave it out")
    raise PackageError(found, at=f"{file}: {name}", remedy="correct the file or take the entry out")


def _require(good: object) -> None:
    if not good:
        raise ValueError


def whole(least: int, most: int = MOST, note: str = "") -> Kind:
    """A whole number; 50.0 is one, True is none."""

    def read(value: Any) -> int:
        _require(_is_real(value) and value % 1 == 0 and least <= value <= most)
        return int(value)

    return Kind(f"a whole number from {least}{f' to {most}' if most < MOST else ''}{note}", read)


def _draft_tokens(value: Any) -> int | str:
    return value if isinstance(value, str) and value == AUTO else whole(1, MOST_DRAFT_TOKENS).read(value)


def _number(expected: str, good: Callable[[float], bool]) -> Kind:
    def read(value: Any) -> float:
        _require(_is_real(value) and good(float(value)))
        return float(value)

    return Kind(f"a number {expected}", read)


def _is_real(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real)


def _flag(value: Any) -> bool:
    _require(isinstance(value, bool | np.bool_))
    return bool(value)


def _text(value: Any) -> str:
    _require(isinstance(value, str))
    return value


def _object(value: Any) -> Mapping[str, Any]:
    _require(isinstance(value, Mapping))
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(map(_text, _several(value)))


def _functions(value: Any) -> tuple[Callable[..., Any], ...]:
    _require(all(map(callable, _several(value))))
    return tuple(value)


def _proposer(value: Any) -> Any:
    own = (
        callable(getattr(value, "propose", None))
        and hasattr(value, "name")
        and hasattr(value, "reads_hidden")
    )
    _require(own or value == "prompt-lookup")
    return value


def _ids(value: Any) -> tuple[int, ...]:
    return tuple(map(whole(0).read, value if isinstance(value, list | tuple) else (value,)))


def _template(value: Any) -> str | None:
    """tokenizer_config.json holds one template or a list of named ones, of which "default" is taken."""
    if isinstance(value, str):
        return value
    named = {_text(_object(t).get("name")): _text(t.get("template")) for t in _several(value)}
    return named.get("default")


def _several(value: Any) -> Sequence[Any]:
    _require(isinstance(value, list | tuple))
    return value


_FLAG, _OBJECT = Kind("true or false", _flag), Kind("an object of names and values", _object)
KINDS: Mapping[str, Kind] = {
    "max_new_tokens": whole(1),
    "prefill_chunk": whole(1),
    "chunk": whole(1),
    "keep": whole(0),
    "threads": whole(1, 1024),
    "temperature": _number("above 0 (0 itself is greedy)", lambda x: 0 <= x < math.inf),
    "top_k": whole(0, note=" (off)"),
    "top_p": _number("above 0 and at most 1 (off)", lambda x: 0 < x <= 1),
    "min_p": _number("from 0 (off) to 1", lambda x: 0 <= x <= 1),
    "repetition_penalty": _number("above 0 (1 is off)", lambda x: 0 < x < math.inf),
    "seed": whole(0),
    "do_sample": _FLAG,
    "greedy": _FLAG,
    "ignore_eos": _FLAG,
    "speculation": _FLAG,
    "num_draft_tokens": Kind(f"a whole number from 1 to {MOST_DRAFT_TOKENS}, or '{AUTO}'", _draft_tokens),
    "num_assistant_tokens": whole(1),
    "proposer": Kind("'prompt-lookup' or an object with name, reads_hidden and propose", _proposer),
    "parse_special": _FLAG,
    "images": Kind("a list of images, or for a list of prompts a list of them for each", _several),
    "audio": Kind("a list of clips, or for a list of prompts a list of them for each", _several),
    "videos": Kind("a list of videos, or for a list of prompts a list of them for each", _several),
    "stop": Kind("text or a list of texts", _texts),
    "hooks": Kind("a list of functions", _functions),
    "template": _OBJECT,
    "provider": Kind("a name", _text),
    "provider_options": _OBJECT,
    "session_options": _OBJECT,
    "text_config": _OBJECT,
    "num_attention_heads": whole(1),
    "bos_token_id": whole(0),
    "eos_token_id": Kind("a token id or a list of them", _ids),
    "model_specific_special_tokens": _OBJECT,
    "chat_template": Kind("a template or a list of objects with 'name' and 'template'", _template),
}
"""By the name that callers and files use."""
