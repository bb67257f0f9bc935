"""The chat template: messages to marked-up text, in a sandbox, as transformers renders it."""

from collections.abc import Sequence
from typing import Any

from cabochon.runtime.parts import Message, check
from cabochon.runtime.tokens import Tokens, unused_character


class Chat:
    """A compiled chat template. `at` names the file it came from, `kinds` what messages may hold beside text."""

    def __init__(
        self, source: str, tokens: Tokens, *, at: str = "chat_template.jinja", kinds: Sequence[str] = ()
    ) -> None:
        """Raise PackageError for a template that does not parse."""
        from cabochon.runtime.sandbox import Template

        self._kinds = tuple(kinds)
        self._tokens, self._template = tokens, Template(source, at=at)

    def render(self, messages: Sequence[Message], **options: Any) -> str:
        """The template's text for these messages; `options` are the template's own (tools, enable_thinking ...)."""
        usual = {"add_generation_prompt": True, "tools": None, **self._tokens.named}
        return self._template.render({**usual, **options, "messages": messages})

    def ids(self, messages: Sequence[Message], **options: Any) -> list[int]:
        """Token ids with exactly one BOS; control tokens are the template's own, never a message's."""
        self.check(messages)
        return self._tokens.with_one_bos(self._tokens.marked_up(*self.guarded(messages, **options)))

    def check(self, messages: Sequence[Message]) -> None:
        """Raise RequestError for what is no message, or holds what the package does not take."""
        for number, message in enumerate(messages):
            check(message, f"messages[{number}]", self._kinds)

    def guarded(self, messages: Sequence[Message], **options: Any) -> tuple[str, str]:
        """The template's text and the guard in it, for `Tokens.marked_up`."""
        guard = unused_character([messages, options])
        values = self._tokens.guarded({**options, "messages": list(messages)}, guard)
        return self.render(**values), guard
