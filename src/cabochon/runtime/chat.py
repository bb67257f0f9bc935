"""The chat template: messages to marked-up text, in a sandbox, as transformers renders it."""

from collections.abc import Mapping, Sequence
from typing import Any

from cabochon.errors import RequestError
from cabochon.runtime.tokens import Tokens, unused_character

Message = Mapping[str, Any]


class Chat:
    """A compiled chat template. `at` names the file it came from."""

    def __init__(self, source: str, tokens: Tokens, *, at: str = "chat_template.jinja") -> None:
        """Raise PackageError for a template that does not parse."""
        from cabochon.runtime.sandbox import Template

        self._tokens, self._template = tokens, Template(source, at=at)

    def render(self, messages: Sequence[Message], **options: Any) -> str:
        """The template's text for these messages; `options` are the template's own (tools, enable_thinking ...)."""
        usual = {"add_generation_prompt": True, "tools": None, **self._tokens.named}
        return self._template.render({**usual, **options, "messages": messages})

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
