"""Text to token ids and back. Control tokens come from templates and callers, never from text a user typed."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cabochon.errors import PackageError, RequestError
from cabochon.metadata.vocabulary import special_names

BYTE = re.compile(r"<0x[0-9A-F]{2}>")


class Tokens:
    """The tokenizer of a package. `controls` maps the text of each control token to its id."""

    def __init__(
        self,
        path: Path,
        config: Mapping[str, Any],
        bos_token_id: int | None = None,
        placeholders: Iterable[int] = (),
    ) -> None:
        """Read tokenizer.json. `config` is tokenizer_config.json; where it names no BOS, `bos_token_id` counts.

        `placeholders` are control tokens whatever the files say.
        """
        from tokenizers import Tokenizer

        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises plain Exception
            raise PackageError(
                f"not a tokenizer: {error}", at=str(path), remedy="build the package again"
            ) from error
        added = self._tokenizer.get_added_tokens_decoder()
        self.named = dict(special_names(config))
        self.skipped = frozenset(i for i, t in added.items() if t.special)
        self.controls = {
            t.content: i for i, t in added.items() if t.special or t.content in self.named.values()
        }
        known = ((self._tokenizer.id_to_token(i), i) for i in placeholders)
        self.controls |= {text: i for text, i in known if text}
        self.bos = self.id_of(self.named.get("bos_token"))
        if self.bos is None:
            self.bos = bos_token_id
        self._unknown = self.id_of(getattr(self._tokenizer.model, "unk_token", None))
        self._tokenizer.encode_special_tokens = True
        longest_first = sorted(self.controls, key=len, reverse=True)
        self._control = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._starts = re.compile("[" + re.escape("".join({c[0] for c in self.controls}) or "\0") + "]")

    def id_of(self, content: str | None) -> int | None:
        """The id of a token by its text."""
        return None if content is None else self._tokenizer.token_to_id(content)

    def text(self, text: str) -> list[int]:
        """Encode text a user typed: what looks like a control token is letters.

        Raises RequestError for text that is not Unicode or that cannot be told from a control token.
        """
        _require_unicode(text)
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        found = set(self.controls.values()).intersection(ids)
        if not found:
            return ids
        pieces = self._broken_up(text)
        if len(pieces) > 1:
            return [i for piece in pieces for i in self.text(piece)]
        if found == {self._unknown}:  # letters the tokenizer has no token for
            return ids
        raise RequestError(
            f"{text!r} becomes the control token {self._tokenizer.id_to_token(min(found))!r}; expected letters",
            at="prompt",
            remedy="leave it out of the text",
        )

    def _broken_up(self, text: str) -> list[str]:
        """Cut each control token that the tokenizer would still find behind its first character."""
        cuts = [m.start() + 1 for m in self._control.finditer(text)]
        return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True) if a < b]

    def marked_up(self, text: str, guard: str = "") -> list[int]:
        """Encode a template's output: control tokens are meant, except where `guard` (see `guarded`) breaks them."""
        ids: list[int] = []
        end = 0
        for found in self._control.finditer(text):
            ids += self._plain(text[end : found.start()], guard)
            ids.append(self.controls[found.group()])
            end = found.end()
        return ids + self._plain(text[end:], guard)

    def _plain(self, text: str, guard: str) -> list[int]:
        text = text.replace(guard, "") if guard else text
        return self.text(text) if text else []

    def guarded(self, value: Any, guard: str) -> Any:
        """The value with `guard` behind each character that may begin a control token, in every string within it."""
        if isinstance(value, str):
            return self._starts.sub(lambda m: m.group() + guard, value)
        if isinstance(value, Mapping):
            return {self.guarded(k, guard): self.guarded(v, guard) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.guarded(v, guard) for v in value]
        return value

    def with_one_bos(self, ids: Sequence[int]) -> list[int]:
        """The ids behind exactly one beginning-of-sequence token, where the tokenizer has one."""
        if self.bos is None:
            return list(ids)
        first = next((n for n, i in enumerate(ids) if i != self.bos), len(ids))
        return [self.bos, *ids[first:]]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids, without control tokens; bytes that are no UTF-8 become U+FFFD."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)

    def is_byte(self, token: int) -> bool:
        """True for a token that is one byte of a character."""
        return BYTE.fullmatch(self._tokenizer.id_to_token(token) or "") is not None


def _require_unicode(text: str) -> None:
    """A lone surrogate is half a character, or a byte of input that was not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{text[error.start]!a} at character {error.start}; expected Unicode text",
            at="prompt",
            remedy="give the text as UTF-8",
        ) from error


def unused_character(values: Iterable[Any]) -> str:
    """A private-use character that occurs nowhere in the values."""
    text = json.dumps(list(values), ensure_ascii=False, default=str)
    return next(c for c in map(chr, range(0xF0000, 0xFFFFE)) if c not in text)
