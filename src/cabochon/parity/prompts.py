"""The prompts packages are compared on: many scripts, code, emoji, lengths around and beyond the window."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.parity.exhibits import Exhibits

__all__ = ["Prompt", "prompts"]

TEXTS = {
    "english": "A lighthouse keeper writes one letter each winter and never sends it. This year she wrote",
    "russian": "На старой мельнице за рекой по вечерам собирались соседи, и каждый рассказывал",
    "arabic": "في السوق القديم بائع كتب يعرف كل زبون باسمه، وعندما دخل الغريب قال له",
    "hindi": "पहाड़ की तलहटी में एक छोटा सा गाँव था जहाँ बारिश से पहले लोग",
    "chinese": "雨停之后，木匠把窗户打开，发现院子里多了一棵树。他想",
    "japanese": "駅前の時計は三年前から止まっているのに、毎朝ネジを巻く人がいる。",
    "emoji": "Trip notes: 🏔️🚠 day one, 👩🏽‍🚀👨‍👩‍👧‍👦 day two, 🇳🇵🇮🇸 flags, then ☕️➡️🛌",
    "code": 'def merge(a: list[int], b: list[int]) -> list[int]:\n\t"""Two sorted lists, one."""\n'
    "    out = []\n    while a and b:\n        out.append((a if a[0] <= b[0] else b).pop(0))\n    return",
    "numbers": "| item | 2019 | 2020 |\n|---|---:|---:|\n| nails | 1,204.50 | -3e-7 |\n| rope |\t 0x1F |",
}
LOG = "Line {n}: at mile {m} the train waited for the {thing}, and the guard wrote down {k} names. "
THINGS = ("herd", "postman", "fog", "second engine", "children", "tide")


@dataclass(frozen=True)
class Prompt:
    """Token ids, the text they came from (None where ids were drawn), and whether L5 uses it too.

    exhibits: what the placeholders in the text stand for, once for each image, sound and video; its ids are then those
    that the reference's processor makes of it.
    """

    name: str
    ids: tuple[int, ...]
    text: str | None = None
    generates: bool = True
    exhibits: Exhibits | None = None

    def described(self) -> dict[str, Any]:
        """What an evidence file says about it: the text where there is one, the ids where there is none."""
        what = {"text": self.text} if self.text is not None else {"ids": list(self.ids)}
        shown = {"exhibits": self.exhibits.described()} if self.exhibits else {}
        return {"name": self.name, "tokens": len(self.ids), **what, **shown}


def prompts(package: Path, *, vocabulary: int, window: int | None, first_id: int | None) -> list[Prompt]:
    """The prompts for one package, tokenized by its own tokenizer.json, `first_id` (BOS) in front of each.

    Without a tokenizer only drawn ids remain. `window` is the number of keys a sliding layer sees.
    """
    encode = _encoder(package / "tokenizer.json", first_id)
    found = [Prompt(name, encode(text), text) for name, text in TEXTS.items()] if encode else []
    drawn = Prompt("drawn ids", tuple(_draw(vocabulary, 24)))
    return [*found, drawn, *_around_the_window(encode, vocabulary, window or 16)]


def _around_the_window(encode: Any, vocabulary: int, window: int) -> Iterator[Prompt]:
    """One prompt beyond the window (2 W + 3 tokens) and its beginnings of W - 1, W and W + 1 tokens."""
    length = 2 * window + 3
    ids = encode(_log(length))[:length] if encode else tuple(_draw(vocabulary, length))
    text = f"the first {length} tokens of: {LOG}" if encode else None
    long = Prompt("beyond the window", ids, text)
    for n in (window - 1, window, window + 1):
        if 0 < n < length:
            name = f"window {n - window:+d}" if n != window else "window"
            yield replace(
                long,
                name=name,
                ids=ids[:n],
                text=text and text.replace(str(length), str(n), 1),
                generates=False,
            )
    yield long


def _log(length: int) -> str:
    lines = (
        LOG.format(n=n, m=n * 7 % 101, thing=THINGS[n % len(THINGS)], k=n * n % 13)
        for n in range(length // 8 + 1)
    )
    return "".join(lines)


def _draw(vocabulary: int, n: int) -> list[int]:
    """Ids spread over the whole vocabulary, the same on every machine."""
    return np.random.default_rng(20).integers(0, vocabulary, n).tolist()


def _encoder(path: Path, first_id: int | None) -> Any:
    if not path.is_file():
        return None
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))

    def encode(text: str) -> tuple[int, ...]:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        return tuple(ids if first_id is None else [first_id, *ids])

    return encode
