"""The tokens of a package as its tokenizer files state them: never a default, never a placeholder."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cabochon.errors import PackageError

__all__ = ["Special", "Vocabulary", "end_tokens", "read_vocabulary", "special_names"]


@dataclass(frozen=True)
class Special:
    """A token with a meaning of its own."""

    id: int
    content: str


@dataclass(frozen=True)
class Vocabulary:
    """What tokenizer.json, tokenizer_config.json, generation_config.json and config.json say of the tokens.

    `algorithm` is the model's kind in lower case ("bpe"), `size` counts the tokens with the added ones. `special` maps
    the name that tokenizer_config.json gives a token, without `_token`, to it. `ends` are the ids that end an answer,
    ascending: the union of all files.
    """

    algorithm: str
    size: int
    byte_level: bool
    special: Mapping[str, Special]
    ends: tuple[int, ...]


def read_vocabulary(tokenizer: Path, *configs: Mapping[str, Any], names: Mapping[str, Any]) -> Vocabulary:
    """The vocabulary of a tokenizer.json. `names` is tokenizer_config.json; `configs` may state `eos_token_id`.

    An end token without a name is called `eos_{id}`; a placeholder that only config.json knows is called as it says
    there: `video`. Raises PackageError for a file that is no tokenizer.
    """
    from tokenizers import Tokenizer

    try:
        read = Tokenizer.from_buffer(tokenizer.read_bytes())  # a path may be no UTF-8
    except Exception as error:  # tokenizers raises plain Exception
        raise PackageError(f"not a tokenizer: {error}", at=str(tokenizer)) from error
    named = {
        key.removesuffix("_token"): Special(number, content)
        for key, content in special_names(names)
        if (number := read.token_to_id(content)) is not None
    }
    stated = {number for config in configs for number in end_tokens(config)}
    ends = sorted(stated | ({named["eos"].id} if "eos" in named else set()))
    known = {special.id for special in named.values()}
    for number in ends:
        if number not in known and (content := read.id_to_token(number)) is not None:
            named[f"eos_{number}"] = Special(number, content)
    for name, number in _placeholders(configs):
        if name not in named and (content := read.id_to_token(number)) is not None:
            named[name] = Special(number, content)
    parts = (read.pre_tokenizer, read.decoder)
    return Vocabulary(
        algorithm=type(read.model).__name__.lower(),
        size=read.get_vocab_size(with_added_tokens=True),
        byte_level=any(b'"ByteLevel"' in part.__getstate__() for part in parts if part is not None),
        special=named,
        ends=tuple(ends),
    )


def _placeholders(configs: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    """The tokens that stand for media, as config.json states them."""
    for config in configs:
        for name in ("image", "video", "audio"):
            if isinstance(number := config.get(f"{name}_token_id"), int):
                yield name, number


def end_tokens(config: Mapping[str, Any]) -> Iterator[int]:
    """The end-of-sequence ids of a generation_config.json, or of a config.json and its text_config."""
    for said in (config, config.get("text_config") or {}):
        found = said.get("eos_token_id")
        yield from found if isinstance(found, list) else () if found is None else (found,)


def special_names(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(key, text) of each `*_token` of tokenizer_config.json; a token is a string or an object with `content`."""
    more = config.get("model_specific_special_tokens")
    for key, value in {**config, **(more if isinstance(more, Mapping) else {})}.items():
        content = value.get("content") if isinstance(value, Mapping) else value
        if key.endswith("_token") and isinstance(content, str):
            yield key, content
