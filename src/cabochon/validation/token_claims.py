"""The rules on tokens: what documents and configs say of them, against the tokenizer and the logits."""

from collections.abc import Iterator, Mapping
from typing import Any

from cabochon.metadata.vocabulary import special_names
from cabochon.validation.findings import Severity
from cabochon.validation.opened import Opened
from cabochon.validation.rules import Found, rule
from cabochon.validation.statements import GENAI, NEEDS, documents, facts, inside
from cabochon.validation.tokenizer_file import tokens

__all__: list[str] = []


@rule("HON020", Severity.ERROR, NEEDS)
def tokens_differ(package: Opened) -> Iterator[Found]:
    """A special token is not one of the tokenizer's, or not below the vocabulary.

    Causes: ids were copied from another tokenizer; placeholders of a template were left.
    Remedy: take ids and texts from tokenizer.json and generation_config.json.
    """
    known = tokens(package).added
    ids = {text: number for number, text in known.items()}
    for found in facts(package):
        for at, number, text in stated_tokens(package):
            if found.vocabulary is not None and number >= found.vocabulary:
                yield Found(at, str(number), f"an id below {found.vocabulary}")
            elif text is not None and known.get(number, text) != text:
                yield Found(at, f"{number} for {text!r}", f"{known[number]!r}, as in tokenizer.json")
            elif text is not None and ids.get(text, number) != number:
                yield Found(at, f"{number} for {text!r}", f"{ids[text]}, as in tokenizer.json")


def stated_tokens(package: Opened) -> Iterator[tuple[str, int, str | None]]:
    """Every special token that a file states: where, its id, its text where that is said."""
    for name, document in documents(package):
        tokenizer = document.package.tokenizer if document.package else None
        special = getattr(tokenizer, "special_tokens", None)
        at = f"{name}: package.tokenizer.special_tokens"
        if isinstance(special, Mapping):
            for role, token in special.items():
                yield f"{at}.{role}", token.id, token.content
        elif special is not None:
            yield from _ids(f"{at}.", special.model_dump(exclude_none=True))
    yield from _ids("generation_config.json: ", package.json("generation_config.json"))
    yield from _ids(f"{GENAI}: model.", inside(package.json(GENAI), "model"))


def _ids(at: str, said: Any) -> Iterator[tuple[str, int, None]]:
    for key, value in said.items() if isinstance(said, Mapping) else ():
        if key.endswith("_token_id"):
            for number in value if isinstance(value, list | tuple) else [value]:
                if isinstance(number, int):
                    yield f"{at}{key}", number, None


@rule("HON021", Severity.ERROR, ("document",))
def ends_differ(package: Opened) -> Iterator[Found]:
    """A token that ends an answer is left out.

    Causes: only the tokenizer's own end token was listed; generation_config.json has more.
    Remedy: list the union of generation_config.json, config.json and the tokenizer.
    """
    known = ends(package)
    for at, stated in _stated_ends(package):
        if missing := sorted(known - stated):
            yield Found(at, f"nothing of {missing}", f"every id that ends an answer: {sorted(known)}")


def _stated_ends(package: Opened) -> Iterator[tuple[str, set[int]]]:
    """Where ids that end an answer are listed, and which."""
    for name, document in documents(package):
        tokenizer = document.package.tokenizer if document.package else None
        special = getattr(tokenizer, "special_tokens", None)
        at = f"{name}: package.tokenizer.special_tokens"
        if isinstance(special, Mapping):
            yield at, {token.id for token in special.values()}
        elif special is not None:
            yield at, set(special.model_dump(exclude_none=True).get("eos_token_id") or ())
    model = inside(package.json(GENAI), "model")
    if model is not None:
        said = inside(model, "eos_token_id")
        listed = said if isinstance(said, list) else [said]
        yield f"{GENAI}: model.eos_token_id", {each for each in listed if isinstance(each, int)}


def ends(package: Opened) -> set[int]:
    """The ids that end an answer, as generation_config.json and config.json state them."""
    found = set[int]()
    for config in configs(package):
        said = inside(config, "eos_token_id")
        found |= {n for n in (said if isinstance(said, list) else [said]) if isinstance(n, int)}
    return found


def configs(package: Opened) -> tuple[Any, ...]:
    """The objects that state ids of tokens: generation_config.json, config.json and its text_config."""
    config = package.json("config.json")
    return package.json("generation_config.json"), config, inside(config, "text_config")


def stated_as(package: Opened, role: str) -> set[int]:
    """The ids that the tokenizer, generation_config.json and config.json state for "bos" or "pad"; nothing where one of
    them names a text whose id is not known."""
    named = dict(special_names(package.json("tokenizer_config.json") or {})).get(f"{role}_token")
    ids = {number for number, content in tokens(package).added.items() if content == named}
    if named is not None and not ids:
        return set()
    stated = (inside(config, f"{role}_token_id") for config in configs(package))
    return ids | {number for number in stated if isinstance(number, int)}


@rule("HON022", Severity.ERROR, ("graphs",))
def tokenizer_too_large(package: Opened) -> Iterator[Found]:
    """The tokenizer has tokens that the model has no logits for.

    Causes: the tokenizer of another checkpoint; tokens were added to it after training.
    Remedy: take the tokenizer of the checkpoint.
    """
    highest = tokens(package).highest
    for found in facts(package):
        if highest is not None and found.vocabulary is not None and highest >= found.vocabulary:
            yield Found("tokenizer.json", f"a token with the id {highest}", f"ids below {found.vocabulary}")


@rule("HON023", Severity.ERROR, ("document",))
def tokenizer_size_differs(package: Opened) -> Iterator[Found]:
    """The document states another number of tokens than the tokenizer has.

    Causes: the model's padded vocabulary was taken for the tokenizer's; a placeholder.
    Remedy: count the tokens of tokenizer.json, the added ones included.
    """
    count = tokens(package).count
    for name, document in documents(package):
        tokenizer = document.package.tokenizer if document.package else None
        said = getattr(tokenizer, "vocab_size", None)
        if count is not None and said is not None and said != count:
            yield Found(f"{name}: package.tokenizer.vocab_size", str(said), f"{count} tokens")
