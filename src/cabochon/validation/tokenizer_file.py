"""What tokenizer.json says of its tokens, without parsing all of it: a large one has 33 MB and would take seconds."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from cabochon.validation.memo import once
from cabochon.validation.opened import Opened

__all__ = ["Tokens", "tokens"]

NAME = "tokenizer.json"
_LARGEST = 256 << 20  # bytes
# An object of texts to numbers. Possessive: nothing of it is tried twice, whatever the file holds.
_VOCABULARY = re.compile(rb'"vocab"\s*:\s*\{((?:\s*+"(?:[^"\\]|\\.)*+"\s*+:\s*+\d++\s*+,?+)*+)\}')
_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*+"\s*+:\s*+(\d++)')
_ADDED = re.compile(rb'"added_tokens"\s*+:\s*+(\[(?:[^\[\]"]|"(?:[^"\\]|\\.)*+")*+\])')


@dataclass(frozen=True)
class Tokens:
    """Texts of the added tokens by id; of all tokens the `highest` id and the `count`, None where not known."""

    added: Mapping[int, str]
    highest: int | None
    count: int | None


def tokens(package: Opened) -> Tokens:
    """What tokenizer.json says; nothing where there is none, or another kind of one."""
    return once(package, _tokens)


def _tokens(package: Opened) -> Tokens:
    if not 0 < package.files.get(NAME, 0) <= _LARGEST:
        return Tokens({}, None, None)
    content = package.bytes(NAME)
    added = _added(content)
    found = _VOCABULARY.search(content)
    if found is None:
        return Tokens(added, None, None)
    numbers = {*map(int, _NUMBER.findall(found[1])), *added}
    return Tokens(added, max(numbers, default=None), len(numbers))


def _added(content: bytes) -> dict[int, str]:
    """The list of added tokens, which is an array at the top of the file."""
    found = _ADDED.search(content)
    try:
        listed = json.loads(found[1]) if found else []
    except (ValueError, RecursionError):
        return {}
    pairs = [(entry.get("id"), entry.get("content")) for entry in listed if isinstance(entry, dict)]
    return {number: text for number, text in pairs if isinstance(number, int) and isinstance(text, str)}
