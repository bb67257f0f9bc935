"""From what a caller gives to token ids: raw text, messages, or ids."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cabochon.errors import PackageError, RequestError
from cabochon.runtime.chat import Chat, Message
from cabochon.runtime.folder import Folder
from cabochon.runtime.request import Request
from cabochon.runtime.tokens import Tokens

Prompt = str | Sequence[Message] | Sequence[int] | np.ndarray
"""Raw text, the messages of a conversation, or token ids."""


class Prompts:
    """What a package can read: `tokens` is None without tokenizer.json, `chat` without a template besides."""

    def __init__(self, folder: Folder, vocabulary: int) -> None:
        """`vocabulary` bounds the ids a caller may give."""
        path = folder.path / "tokenizer.json"
        bos = folder.text_config.get("bos_token_id")
        if bos is not None and bos >= vocabulary:
            raise PackageError(
                f"{bos}; expected a token id below {vocabulary}",
                at=f"{folder.path / 'config.json'}: bos_token_id",
                remedy="correct the file or take the entry out",
            )
        self.tokens = Tokens(path, folder.tokenizer, bos) if path.is_file() else None
        self.chat = Chat(folder.template, self.tokens) if self.tokens and folder.template else None
        self._vocabulary = vocabulary

    def ids(self, prompt: Any, request: Request) -> list[int]:
        """The ids to feed; raise RequestError for a prompt that is none or that the package cannot read."""
        if isinstance(prompt, str):
            return self._of_text(prompt, request.parse_special)
        if not isinstance(prompt, Sequence | np.ndarray) or isinstance(
            prompt, bytes | bytearray | memoryview
        ):
            raise RequestError(f"{prompt!r}; expected text, messages or token ids", at="prompt")
        prompt = prompt.tolist() if isinstance(prompt, np.ndarray) else list(prompt)
        if prompt and all(isinstance(p, Mapping) for p in prompt):
            return self._of_messages(prompt, request.template)
        for n, token in enumerate(prompt):
            self._check(token, f"prompt[{n}]")
        return [int(token) for token in prompt]

    def _of_text(self, text: str, parse_special: bool) -> list[int]:
        if self.tokens is None:
            raise lacking("tokenizer.json", "token ids")
        ids = self.tokens.marked_up(text) if parse_special else self.tokens.text(text)
        return self.tokens.with_one_bos(ids)

    def _of_messages(self, messages: Sequence[Message], template: Mapping[str, Any]) -> list[int]:
        if self.chat is None:
            raise lacking("chat_template.jinja", "a raw prompt or token ids")
        return self.chat.ids(messages, **template)

    def _check(self, token: Any, at: str) -> None:
        known = isinstance(token, int | np.integer) and not isinstance(token, bool)
        if not known or not 0 <= token < self._vocabulary:
            raise RequestError(f"{token!r}; expected a token id from 0 to {self._vocabulary - 1}", at=at)


def lacking(file: str, instead: str) -> RequestError:
    """The error for a request that needs a file the package lacks."""
    return RequestError(
        f"the package has no {file}",
        at="prompt",
        remedy=f"use {instead}, or build the package from a source that has it",
    )


def is_batch(prompt: Any) -> bool:
    """True for a list of prompts."""
    return (
        isinstance(prompt, list | tuple)
        and bool(prompt)
        and isinstance(prompt[0], str | list | tuple | np.ndarray)
    )
