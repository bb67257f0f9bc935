"""The files of a checkpoint that travel along unchanged, and which of them a package must have."""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from cabochon.errors import PackageError

__all__ = ["MISSABLE", "require", "travelling"]

_TOKENIZER = {
    "tokenizer.json": "the tokenizer",
    "tokenizer_config.json": "how the tokenizer is set up",
    "special_tokens_map.json": "special tokens, as older tokenizers list them",
    "added_tokens.json": "added tokens, as older tokenizers list them",
    "tokenizer.model": "the tokenizer in SentencePiece's form",
}
_TRAVELLING = {
    "config.json": "the checkpoint's config, as published",
    "generation_config.json": "how the checkpoint's authors generate",
    **_TOKENIZER,
    "chat_template.jinja": "the chat template",
}
MISSABLE = ("tokenizer", "generation_config", "chat_template")


def travelling(files: Mapping[str, Path]) -> dict[str, str]:
    """The names among `files` that are copied into a package, and what each is."""
    return {name: what for name, what in _TRAVELLING.items() if name in files}


def require(files: Mapping[str, Path], allowed: Collection[str]) -> tuple[str, ...]:
    """Refuse a checkpoint without tokenizer, generation config or chat template, but for what is `allowed`.

    Returns remarks on what is absent and allowed to be. Raises PackageError with everything that is not.
    """
    for name in allowed:
        if name not in MISSABLE:
            raise PackageError(f"allow_missing names {name!r}; expected one of {', '.join(MISSABLE)}")
    missing = dict(_missing(files))
    refused = [name for name in missing if name not in allowed]
    if refused:
        raise PackageError(
            "the checkpoint has no " + ", no ".join(missing[name] for name in refused),
            at="checkpoint",
            remedy="copy them from the base model into its folder, or build with "
            + " ".join(f"--allow-missing {name}" for name in refused),
        )
    return tuple(f"the package has no {missing[name]}" for name in missing)


def _missing(files: Mapping[str, Path]) -> Iterator[tuple[str, str]]:
    if not {"tokenizer.json", "tokenizer_config.json"} <= set(files):
        yield "tokenizer", "tokenizer (tokenizer.json and tokenizer_config.json)"
    if "generation_config.json" not in files:
        yield "generation_config", "generation_config.json"
    if "chat_template.jinja" not in files and not _template_inside(files):
        yield "chat_template", "chat template (chat_template.jinja, or in tokenizer_config.json)"


def _template_inside(files: Mapping[str, Path]) -> bool:
    if "tokenizer_config.json" not in files:
        return False
    try:
        return bool(
            json.loads(files["tokenizer_config.json"].read_text(encoding="utf-8")).get("chat_template")
        )
    except (ValueError, AttributeError) as error:
        raise PackageError(
            f"is not a JSON object: {error}", at="tokenizer_config.json", remedy="download the file again"
        ) from None
