"""The rules on tokens: what documents and configs say of them, against the tokenizer and the logits."""

from collections.abc import Iterator, Mapping
from typing import Any

from cabochon.validate.findings import Severity
from cabochon.validate.opened import Opened
from cabochon.validate.rules import Found, rule
from cabochon.validate.statements import GENAI, NEEDS, documents, facts, inside

__all__: list[str] = []


@rule("HON020", Severity.ERROR, NEEDS)
def tokens_differ(package: Opened) -> Iterator[Found]:
    """A special token is not one of the tokenizer's, or not below the vocabulary.

    Causes: ids were copied from another tokenizer; placeholders of a template were left.
    Remedy: take ids and texts from tokenizer.json and generation_config.json.
    """
    for found in facts(package):
        contents = tokens(package)
        for at, number, content in stated_tokens(package):
            if found.vocabulary is not None and number >= found.vocabulary:
                yield Found(at, str(number), f"an id below {found.vocabulary}")
            elif content is not None and contents and contents.get(number, content) != content:
                yield Found(at, f"{number} for {content!r}", f"{contents[number]!r}, as in tokenizer.json")


def tokens(package: Opened) -> Mapping[int, str]:
    """The added tokens of tokenizer.json by id."""
    added = inside(package.json("tokenizer.json"), "added_tokens")
    found = [(inside(t, "id"), inside(t, "content")) for t in added] if isinstance(added, list) else []
    return {number: text for number, text in found if isinstance(number, int) and isinstance(text, str)}


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
    for name, keys in (("generation_config.json", ()), (GENAI, ("model",))):
        yield from _ids(
            ".".join((f"{name}:", *keys)), inside(package.json(name), *keys) if keys else package.json(name)
        )


def _ids(at: str, said: Any) -> Iterator[tuple[str, int, None]]:
    for key, value in said.items() if isinstance(said, Mapping) else ():
        if key.endswith("_token_id"):
            for number in value if isinstance(value, list | tuple) else [value]:
                if isinstance(number, int):
                    yield f"{at}{key}", number, None


@rule("HON021", Severity.ERROR, ("document",))
def ends_differ(package: Opened) -> Iterator[Found]:
    """The document leaves out a token that ends an answer, or adds one.

    Causes: only the tokenizer's own end token was listed; generation_config.json has more.
    Remedy: list the union of generation_config.json, config.json and the tokenizer.
    """
    known = ends(package)
    for name, document in documents(package):
        tokenizer = document.package.tokenizer if document.package else None
        special = getattr(tokenizer, "special_tokens", None)
        if not known or special is None:
            continue
        if isinstance(special, Mapping):
            stated = {token.id for token in special.values()}
        else:
            stated = set(special.model_dump(exclude_none=True).get("eos_token_id") or ())
        if missing := sorted(known - stated):
            at = f"{name}: package.tokenizer.special_tokens"
            yield Found(at, f"nothing of {missing}", f"every id that ends an answer: {sorted(known)}")


def ends(package: Opened) -> set[int]:
    """The ids that end an answer, as generation_config.json and config.json state them."""
    found = set[int]()
    for name in ("generation_config.json", "config.json"):
        said = inside(package.json(name), "eos_token_id")
        found |= {n for n in (said if isinstance(said, list) else [said]) if isinstance(n, int)}
    return found


@rule("HON022", Severity.ERROR, ("graphs",))
def tokenizer_too_large(package: Opened) -> Iterator[Found]:
    """The tokenizer has tokens that the model has no logits for.

    Causes: the tokenizer of another checkpoint; tokens were added to it after training.
    Remedy: take the tokenizer of the checkpoint.
    """
    highest = max((*tokens(package), *_vocabulary(package)), default=-1)
    for found in facts(package):
        if found.vocabulary is not None and highest >= found.vocabulary:
            yield Found("tokenizer.json", f"a token with the id {highest}", f"ids below {found.vocabulary}")


def _vocabulary(package: Opened) -> Iterator[int]:
    vocabulary = inside(package.json("tokenizer.json"), "model", "vocab")
    return (
        (n for n in vocabulary.values() if isinstance(n, int))
        if isinstance(vocabulary, Mapping)
        else iter(())
    )


@rule("HON023", Severity.ERROR, ("document",))
def tokenizer_size_differs(package: Opened) -> Iterator[Found]:
    """The document states another number of tokens than the tokenizer has.

    Causes: the model's padded vocabulary was taken for the tokenizer's; a placeholder.
    Remedy: count the tokens of tokenizer.json, the added ones included.
    """
    numbers = {*tokens(package), *_vocabulary(package)}
    for name, document in documents(package):
        tokenizer = document.package.tokenizer if document.package else None
        said = getattr(tokenizer, "vocab_size", None)
        if numbers and said is not None and said != len(numbers):
            yield Found(f"{name}: package.tokenizer.vocab_size", str(said), f"{len(numbers)} tokens")
