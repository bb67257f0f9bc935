"""Images, sound and video beside the words of a prompt: read, counted, and put where their placeholders stand.

A template or a caller writes one placeholder for each. In its place comes what transformers' Gemma4Processor writes:
begin, a soft token for each row of features, end; for a video the time of each frame before it, and spaces between.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from cabochon.errors import RequestError
from cabochon.runtime.embedder import Embedder, text_alone
from cabochon.runtime.folder import Folder
from cabochon.runtime.marks import Marks, read_marks
from cabochon.runtime.soft import SoftToken
from cabochon.runtime.sources import Attached, Sources
from cabochon.runtime.tokens import Tokens

OPTIONS = {"image": "images", "audio": "audio", "video": "videos"}
"""The option of `generate` that takes each kind."""
Given = Mapping[str, Sequence[Any]]


class Attachments:
    """The media of prompts for one package. One that takes text alone has no placeholders, and refuses all media."""

    def __init__(self, folder: Folder, embedder: Embedder, tokens: Tokens | None) -> None:
        """Nothing is read before the first attachment comes."""
        self._config, self._path, self._tokens = folder.config, folder.path, tokens
        self._sources = Sources(folder.path, embedder)
        self.placeholders = embedder.placeholders
        self.kinds = tuple(self.placeholders)

    def refuse_others(self, given: Given) -> None:
        """Raise RequestError for media of a kind that this package does not take."""
        for kind in (kind for kind, sources in given.items() if sources and kind not in self.kinds):
            if not self.kinds:
                raise text_alone(OPTIONS[kind])
            raise RequestError(
                f"this package takes no {kind}; it takes {' and '.join(self.kinds)}", at=OPTIONS[kind]
            )

    def written(self, text: str, given: Given, at: str = "prompt") -> tuple[str, dict[str, list[Attached]]]:
        """`text`, which came from `at`, with what is written for each placeholder in it, and what was attached.

        Raises RequestError where there are more or fewer of a kind than placeholders, before any is read.
        """
        self.refuse_others(given)
        found = self._pattern.findall(text)
        for kind in self.kinds:
            if marks := self.marks.get(kind):
                _require_as_many(marks.token, found.count(marks.token), kind, len(given.get(kind, ())), at)
            elif given.get(kind):
                raise RequestError(
                    f"the tokenizer has no token {self.placeholders[kind]}, which stands for {kind}",
                    at=OPTIONS[kind],
                    remedy="give the prompt as token ids",
                )
        attached = self.read(given)
        kind_of = {marks.token: kind for kind, marks in self.marks.items()}
        left = {kind: iter(those) for kind, those in attached.items()}

        def written(match: re.Match[str]) -> str:
            kind = kind_of[match.group()]
            return self.marks[kind].text(next(left[kind]))

        return self._pattern.sub(written, text), attached

    def with_placeholders(self, text: str, given: Given) -> str:
        """`text` behind the placeholders of what is given, unless it has placeholders of its own."""
        self.refuse_others(given)
        if self._tokens is None or self._pattern.search(text):
            return text
        return (
            "".join(self.marks[kind].token for kind in given if kind in self.marks for _ in given[kind])
            + text
        )

    def apart(self, text: str, guarded: Callable[[str], str]) -> str:
        """`text` with everything `guarded` but its placeholders."""
        ends = 0
        pieces = list[str]()
        for found in self._pattern.finditer(text):
            pieces += guarded(text[ends : found.start()]), found.group()
            ends = found.end()
        return "".join([*pieces, guarded(text[ends:])])

    def filled(self, ids: Sequence[int], attached: Mapping[str, Sequence[Attached]]) -> list[int]:
        """The ids with soft tokens in the place of placeholders, in order; raise RequestError for another number."""
        kind_of = {token: kind for kind, token in self.placeholders.items()}
        soft = {kind: list(self._soft(kind, attached.get(kind, ()))) for kind in self.kinds}
        bare = [i for i in ids if not isinstance(i, SoftToken)]
        for kind, token in self.placeholders.items():
            found, needed, count = bare.count(token), len(soft[kind]), len(attached.get(kind, ()))
            if found != needed:
                raise RequestError(
                    f"{found} placeholders {token} and {needed} soft tokens of {count} {OPTIONS[kind]}; "
                    "expected as many",
                    at="prompt",
                    remedy=f"give what they stand for with {OPTIONS[kind]}=[...]; each soft token has a placeholder",
                )
        left = {kind: iter(tokens) for kind, tokens in soft.items()}
        return [i if isinstance(i, SoftToken) or i not in kind_of else next(left[kind_of[i]]) for i in ids]

    def _soft(self, kind: str, attached: Sequence[Attached]) -> Iterator[SoftToken]:
        return (
            t for one in attached for medium in one.media for t in medium.soft(kind, self.placeholders[kind])
        )

    def read(self, given: Given) -> dict[str, list[Attached]]:
        """Everything that was given, as the encoders take it."""
        self.refuse_others(given)
        return {
            kind: [
                self._sources.read(kind, source, f"{OPTIONS[kind]}[{n}]") for n, source in enumerate(sources)
            ]
            for kind, sources in given.items()
            if sources
        }

    @cached_property
    def marks(self) -> dict[str, Marks]:
        """The texts of the placeholders, of each kind that the tokenizer has a placeholder for.

        Raises PackageError where it lacks a token around it.
        """
        assert self._tokens is not None
        return read_marks(self.placeholders, self._tokens, self._config, f"{self._path / 'config.json'}")

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(re.escape(marks.token) for marks in self.marks.values()) or r"(?!)")


def _require_as_many(token: str, found: int, kind: str, given: int, at: str) -> None:
    if found != given:
        remedy = f"write {token} where each belongs, and give each with {OPTIONS[kind]}=[...]"
        raise RequestError(
            f"{found} placeholders {token} and {given} {OPTIONS[kind]}; expected as many",
            at=at,
            remedy=remedy if at == "prompt" else f"take a template that writes {token} for each, or raw text",
        )
