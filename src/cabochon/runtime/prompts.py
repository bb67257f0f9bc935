"""From what a caller gives to token ids: raw text, messages, or ids, and the media that come with them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cabochon.errors import PackageError, RequestError
from cabochon.runtime.attachments import Attachments, Given
from cabochon.runtime.chat import Chat
from cabochon.runtime.embedder import Embedder, Lookup
from cabochon.runtime.folder import Folder
from cabochon.runtime.parts import Message, separated, shown
from cabochon.runtime.request import Request
from cabochon.runtime.soft import SoftToken
from cabochon.runtime.tokens import Tokens, unused_character

Prompt = str | Sequence[Message] | Sequence[int] | np.ndarray
"""Raw text, the messages of a conversation, or token ids, soft ones among them."""


class Prompts:
    """What a package can read: `tokens` is None without tokenizer.json, `chat` without a template besides."""

    def __init__(self, folder: Folder, vocabulary: int, embedder: Embedder | None = None) -> None:
        """`vocabulary` bounds the ids a caller may give; `embedder` says which media the package takes beside text."""
        path = folder.path / "tokenizer.json"
        bos = folder.text_config.get("bos_token_id")
        if bos is not None and bos >= vocabulary:
            raise PackageError(
                f"{bos}; expected a token id below {vocabulary}",
                at=f"{folder.path / 'config.json'}: bos_token_id",
                remedy="correct the file or take the entry out",
            )
        embedder = embedder or Lookup()
        placeholders = embedder.placeholders.values()
        self.tokens = Tokens(path, folder.tokenizer, bos, placeholders) if path.is_file() else None
        self._media = Attachments(folder, embedder, self.tokens)
        kinds = self._media.kinds
        self.chat = (
            Chat(folder.template, self.tokens, kinds=kinds) if self.tokens and folder.template else None
        )
        self._vocabulary = vocabulary

    def ids(self, prompt: Any, request: Request) -> list[int]:
        """The ids to feed, with soft tokens in the place of placeholders.

        Raises RequestError for a prompt that is none or that the package cannot read, and where there are more or fewer
        media than placeholders.
        """
        self._media.refuse_others(request.media)
        if isinstance(prompt, str):
            return self._of_text(prompt, request)
        if not isinstance(prompt, Sequence | np.ndarray) or isinstance(
            prompt, bytes | bytearray | memoryview
        ):
            raise RequestError(f"{shown(prompt)}; expected text, messages or token ids", at="prompt")
        prompt = prompt.tolist() if isinstance(prompt, np.ndarray) else list(prompt)
        if prompt and all(isinstance(p, Mapping) for p in prompt):
            return self._of_messages(prompt, request)
        for n, token in enumerate(prompt):
            self._check(token, f"prompt[{n}]")
        ids = [token if isinstance(token, SoftToken) else int(token) for token in prompt]
        return self._media.filled(ids, self._media.read(request.media))

    def with_placeholders(self, text: str, request: Request) -> str:
        """See `Model.with_placeholders`."""
        return self._media.with_placeholders(text, request.media)

    def _of_text(self, text: str, request: Request) -> list[int]:
        """Placeholders are meant where media come with the text; else they are letters, like all control tokens."""
        if self.tokens is None:
            raise lacking("tokenizer.json", "token ids")
        if request.parse_special:
            return self._of_marked_up(text, "", request.media)
        if not any(request.media.values()):
            return self.tokens.with_one_bos(self.tokens.text(text))
        guard = unused_character([text])
        tokens = self.tokens
        return self._of_marked_up(
            self._media.apart(text, lambda piece: tokens.guarded(piece, guard)), guard, request.media
        )

    def _of_messages(self, messages: Sequence[Message], request: Request) -> list[int]:
        if self.chat is None:
            raise lacking("chat_template.jinja", "a raw prompt or token ids")
        self.chat.check(messages)
        messages, media = separated(messages, request.media)
        return self._of_marked_up(*self.chat.guarded(messages, **request.template), media, "chat template")

    def _of_marked_up(self, text: str, guard: str, given: Given, at: str = "prompt") -> list[int]:
        assert self.tokens is not None
        text, attached = self._media.written(text, given, at)
        return self._media.filled(self.tokens.with_one_bos(self.tokens.marked_up(text, guard)), attached)

    def _check(self, token: Any, at: str) -> None:
        known = isinstance(token, int | np.integer) and not isinstance(token, bool)
        if not known or not 0 <= token < self._vocabulary:
            raise RequestError(
                f"{shown(token)}; expected a token id from 0 to {self._vocabulary - 1}",
                at=at,
                remedy="take the ids of this package's tokenizer",
            )


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
