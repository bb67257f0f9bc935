"""What the tokens of media are called in text: the placeholder of each kind, and what stands before and behind it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cabochon.errors import PackageError
from cabochon.runtime.sources import Attached
from cabochon.runtime.tokens import Tokens

AFFIXES = {"image": ("boi", "eoi"), "video": ("boi", "eoi"), "audio": ("boa", "eoa")}


@dataclass(frozen=True)
class Marks:
    """The texts of a placeholder and of the tokens around it."""

    token: str
    begin: str
    end: str

    def text(self, one: Attached) -> str:
        """What is written for one placeholder."""
        each = [f"{self.begin}{self.token * medium.tokens}{self.end}" for medium in one.media]
        if one.times is None:
            return "".join(each)
        return " ".join(f"{at} {text}" for at, text in zip(one.times, each, strict=True))


def read_marks(
    placeholders: Mapping[str, int], tokens: Tokens, config: Mapping[str, Any], at: str
) -> dict[str, Marks]:
    """The marks of each kind whose placeholder the tokenizer has; `config` is config.json, which `at` names.

    Raises PackageError where it lacks a token around it.
    """
    texts = {kind: _text(tokens, token) for kind, token in placeholders.items()}
    return {
        kind: Marks(text, *(_affix(tokens, name, config, at) for name in AFFIXES[kind]))
        for kind, text in texts.items()
        if text
    }


def _affix(tokens: Tokens, name: str, config: Mapping[str, Any], at: str) -> str:
    """The text of a token around: as tokenizer_config.json names it, else by its id in config.json."""
    key = f"{name}_token_id"
    said = tokens.named.get(f"{name}_token") or _text(tokens, config.get(key))
    if said is None:
        raise PackageError(
            f"{config.get(key)!r}; expected a control token of tokenizer.json",
            at=f"{at}: {key}",
            remedy="correct the file, or build the package again from a source that has it right",
        )
    return said


def _text(tokens: Tokens, token: Any) -> str | None:
    return next((text for text, number in tokens.controls.items() if number == token), None)
