"""A chat template is a stranger's code: it runs in a sandbox, and whatever it does wrong is an error of ours."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.sandbox

from cabochon.errors import CabochonError, PackageError, RequestError

MOST = 1 << 24  # characters of a text, elements of a list, bits of a number


class Template:
    """A compiled template; `at` names the file it came from."""

    def __init__(self, source: str, *, at: str) -> None:
        """Raise PackageError for a template that does not compile."""
        self._at = at
        try:
            self._template = _environment().from_string(source)
        except Exception as error:  # jinja2's own and Python's, such as RecursionError
            raise PackageError(
                f"not a template: {error}", at=at, remedy="take the source's own template"
            ) from error

    def render(self, values: Mapping[str, Any]) -> str:
        """The text; raise RequestError for whatever goes wrong on the way and for more than `MOST` characters."""
        try:
            return "".join(_bounded(self._template.generate(values)))
        except CabochonError:
            raise
        except Exception as error:  # a template may do anything
            raise RequestError(
                f"the template fails on these messages: {type(error).__name__}: {error}",
                at=self._at,
                remedy="check the roles and contents of the messages and the template's options",
            ) from error


class Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """jinja2's sandbox, where a product or a power cannot fill the memory either."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Raise OverflowError before a result of more than `MOST` is computed."""
        if _extent(operator, left, right) > MOST:
            raise OverflowError(f"{operator} gives more than {MOST} elements")
        return super().call_binop(context, operator, left, right)


def _extent(operator: str, left: Any, right: Any) -> int:
    if isinstance(left, int) and isinstance(right, int):
        return left.bit_length() * right if operator == "**" else left.bit_length() + right.bit_length()
    if isinstance(left, int):
        left, right = right, left
    return len(left) * right if isinstance(right, int) and hasattr(left, "__len__") else 0


def _bounded(pieces: Iterator[str]) -> Iterator[str]:
    length = 0
    for piece in pieces:
        length += len(piece)
        if length > MOST:
            raise OverflowError(f"more than {MOST} characters")
        yield piece


def _environment() -> Sandbox:
    """With the blocks, filters and functions that transformers gives to a template."""
    environment = Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    environment.filters["tojson"] = _tojson
    names: dict[str, Any] = environment.globals
    names.update(raise_exception=_refuse, strftime_now=_now)
    return environment


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, sort_keys=sort_keys)


def _refuse(message: str) -> None:
    raise RequestError(message, at="chat template", remedy="follow what the template asks of messages")


def _now(form: str) -> str:
    return datetime.now().strftime(form)
