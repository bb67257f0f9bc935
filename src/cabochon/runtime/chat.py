"""The chat template: messages to marked-up text, in a sandbox, as transformers renders it."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from cabochon.errors import PackageError, RequestError
from cabochon.runtime.tokens import Tokens, unused_character

Message = Mapping[str, Any]


class Chat:
    """A compiled chat template. `at` names the file it came from."""

    def __init__(self, source: str, tokens: Tokens, *, at: str = "chat_template.jinja") -> None:
        """Raise PackageError for a template that does not parse."""
        import jinja2
        import jinja2.ext
        import jinja2.sandbox

        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        names: dict[str, Any] = environment.globals
        names.update(raise_exception=_refuse, strftime_now=_now)
        self._tokens, self._at, self._error = tokens, at, jinja2.TemplateError
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise PackageError(
                f"not a template: {error}", at=at, remedy="take the source's own template"
            ) from error

    def render(self, messages: Sequence[Message], **options: Any) -> str:
        """The template's text for these messages; `options` are the template's own (tools, enable_thinking ...)."""
        try:
            return self._template.render(
                **{
                    "add_generation_prompt": True,
                    "tools": None,
                    **self._tokens.named,
                    **options,
                    "messages": messages,
                }
            )
        except (self._error, TypeError, ValueError, AttributeError, KeyError) as error:
            raise RequestError(
                f"the template fails on these messages: {type(error).__name__}: {error}",
                at=self._at,
                remedy="check the roles and contents of the messages and the template's options",
            ) from error

    def ids(self, messages: Sequence[Message], **options: Any) -> list[int]:
        """Token ids with exactly one BOS; control tokens are the template's own, never a message's."""
        for number, message in enumerate(messages):
            _check(message, f"messages[{number}]")
        guard = unused_character([messages, options])
        guarded = self._tokens.guarded({**options, "messages": list(messages)}, guard)
        return self._tokens.with_one_bos(self._tokens.marked_up(self.render(**guarded), guard))


def _check(message: Any, at: str) -> None:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise RequestError(f"{message!r}; expected an object with 'role' and 'content'", at=at)
    content = message.get("content")
    if not isinstance(content, str | list | tuple | None):
        raise RequestError(f"content is {type(content).__name__}; expected text or a list of parts", at=at)
    for part in content if isinstance(content, list | tuple) else ():
        if (
            not isinstance(part, Mapping)
            or part.get("type") != "text"
            or not isinstance(part.get("text"), str)
        ):
            raise RequestError(f"part {part!r}; this package takes parts of type 'text' only", at=at)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, sort_keys=sort_keys)


def _refuse(message: str) -> None:
    raise RequestError(message, at="chat template", remedy="follow what the template asks of messages")


def _now(form: str) -> str:
    return datetime.now().strftime(form)
