"""The text that is scored, and the windows it is cut into. Pure but for reading the file."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cabochon.errors import RequestError

__all__ = ["WINDOW", "Text", "Windows", "cut", "read_text"]

WINDOW = 511  # with <bos> 512 tokens, the length most models are compared at
_REMEDY = "give a UTF-8 text of at least two tokens"


@dataclass(frozen=True)
class Text:
    """What is scored: its letters, the name of its file (None: there is none), SHA-256 of its UTF-8 bytes.

    `at` is where errors say it is.
    """

    content: str
    name: str | None
    sha256: str
    at: str


def read_text(text: str | Path) -> Text:
    """The text itself, or that of a file, whose line ends stay as they are.

    Raises RequestError for what cannot be read, is no UTF-8 or is empty.
    """
    if isinstance(text, str):
        name, at, data = None, "text", text.encode(errors="surrogatepass")
    else:
        name, at, data = text.name, str(text), _bytes(text)
    try:
        content = data.decode()
    except UnicodeDecodeError as error:
        raise RequestError(
            f"byte {error.start} is {data[error.start]:#04x}, which is no UTF-8; expected text",
            at=at,
            remedy=_REMEDY,
        ) from None
    if not content:
        raise RequestError("empty; expected a text", at=at, remedy=_REMEDY)
    return Text(content, name, hashlib.sha256(data).hexdigest(), at)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise RequestError(
            f"cannot be read: {error.strerror}; expected a file of text", at=str(path), remedy=_REMEDY
        ) from None


@dataclass(frozen=True)
class Windows:
    """Token ids by window: all but the last are fed, all but the first are scored. `left_out` tokens are in none."""

    ids: Sequence[Sequence[int]]
    left_out: int

    @property
    def scored(self) -> int:
        """How many tokens are predicted."""
        return sum(len(window) - 1 for window in self.ids)


def cut(ids: Sequence[int], size: int, bos: int | None, limit: int | None, at: str) -> Windows:
    """Cut tokens into windows in each of which `size` are scored, the first `limit` of them (None: all).

    Each stands behind `bos`; where a tokenizer has none, a window has one token more, which is given. What does not
    fill a last window is left out, unless it would be the only one. Raises RequestError for fewer than two tokens.
    """
    if len(ids) < 2:
        raise RequestError(
            f"{len(ids)} token{'' if len(ids) == 1 else 's'}; expected at least two", at=at, remedy=_REMEDY
        )
    head = [] if bos is None else [bos]
    length = size + 1 - len(head)
    count = max(1, len(ids) // length)
    count = count if limit is None else min(limit, count)
    windows = [[*head, *ids[n * length : (n + 1) * length]] for n in range(count)]
    return Windows(windows, len(ids) - sum(len(window) - len(head) for window in windows))
