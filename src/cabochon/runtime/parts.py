"""The parts of messages that are no text, as transformers' chat templates take them."""

from collections.abc import Mapping, Sequence
from typing import Any

from cabochon.errors import RequestError

Message = Mapping[str, Any]
SOURCES = ("path", "url", "base64")  # beside a key that is called as the kind itself


def check(message: Any, at: str, kinds: Sequence[str]) -> None:
    """Raise RequestError for what is no message, or has a part of another kind than text and `kinds`."""
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise RequestError(f"{shown(message)}; expected an object with 'role' and 'content'", at=at)
    content = message.get("content")
    if not isinstance(content, str | list | tuple | None):
        raise RequestError(f"content is {type(content).__name__}; expected text or a list of parts", at=at)
    for part in content if isinstance(content, list | tuple) else ():
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind not in ("text", *kinds) or (kind == "text" and not isinstance(part.get("text"), str)):
            raise RequestError(
                f"part {shown(part)}; this package takes parts of type {_either(kinds)}",
                at=at,
                remedy="" if kinds else "build the whole model with `cabochon build SOURCE OUT --model full`",
            )


def shown(part: Any) -> str:
    """What was given, for an error, without what fills a screen."""
    text = repr(part)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _either(kinds: Sequence[str]) -> str:
    return "'text' only" if not kinds else ", ".join(map(repr, ("text", *kinds)))


def separated(
    messages: Sequence[Message], given: Mapping[str, Sequence[Any]]
) -> tuple[list[Message], dict[str, list[Any]]]:
    """Messages whose parts say their kind alone, and the media they held, by kind and in order.

    A part without a source takes the next of `given`; raise RequestError where that holds more or fewer than parts ask.
    """
    taken: dict[str, list[Any]] = {}
    left = {kind: list(sources) for kind, sources in given.items()}

    def bare(part: Any, at: str) -> Any:
        kind = part["type"]
        if kind == "text":
            return part
        taken.setdefault(kind, []).append(_source(part, kind, left, at))
        return {"type": kind}

    apart = list[Message]()
    for n, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, list | tuple):
            parts = [bare(part, f"messages[{n}].content[{i}]") for i, part in enumerate(content)]
            message = {**message, "content": parts}
        apart.append(message)
    for kind, sources in left.items():
        if sources:
            raise RequestError(
                f"{len(given[kind])} of kind {kind} and {len(given[kind]) - len(sources)} parts that ask for one",
                at="messages",
                remedy=f'add a part {{"type": "{kind}"}} where each belongs',
            )
    return apart, taken


def _source(part: Mapping[str, Any], kind: str, left: dict[str, list[Any]], at: str) -> Any:
    """What a part shows or plays."""
    said = [part[key] for key in (kind, *SOURCES) if part.get(key) is not None]
    if not said and left.get(kind):
        return left[kind].pop(0)
    if len(said) != 1:
        raise RequestError(
            f"{shown(part)}; expected one of {', '.join(map(repr, (kind, *SOURCES)))}",
            at=at,
            remedy=f"say which {kind} is meant",
        )
    if part.get("base64") is not None:
        return f"data:;base64,{said[0]}"
    return said[0]
