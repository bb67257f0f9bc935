"""What full packages are asked: text, images, sound, video, and several rows at once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cabochon.parity.exhibits import Exhibits, film, picture, sound
from cabochon.parity.prompts import Prompt, prompts

__all__ = ["Asked", "everything"]

WIDE, TALL, SMALL = picture(30, 50), picture(90, 20, seed=1), picture(21, 23, seed=2)
SHORT, LONG = sound(5_000, seed=1), sound(11_300)


@dataclass(frozen=True)
class Asked:
    """Rows that are asked together; the text prompts are one row each."""

    name: str
    rows: tuple[Prompt, ...]


def everything(package: Path, config: Mapping[str, Any], window: int | None) -> list[Asked]:
    """What one package is asked: the text prompts, and whatever media its config has placeholders for.

    Texts have one placeholder for each image, sound and video, as the package's tokenizer.json spells it.
    """
    text = config.get("text_config", config)
    words = prompts(package, vocabulary=text["vocab_size"], window=window, first_id=text.get("bos_token_id"))
    return [*(Asked(prompt.name, (prompt,)) for prompt in words), *_with_media(_marks(package, config))]


def _with_media(marks: Mapping[str, str]) -> Iterator[Asked]:
    image, audio, video = (marks.get(kind) for kind in ("image", "audio", "video"))
    if image:
        yield _one("image", f"{image} Describe this image in one sentence.", Exhibits([WIDE]))
        yield _one(
            "two images",
            f"What changed between {image} and {image}, left to right?",
            Exhibits([TALL, WIDE]),
        )
    if audio:
        yield _one("audio", f"Write down what is said: {audio}", Exhibits(sounds=[LONG]))
        yield _one(
            "two sounds", f"First {audio} then {audio}. Which is longer?", Exhibits(sounds=[SHORT, LONG])
        )
    if image and audio:
        both = Exhibits([SMALL], [SHORT])
        yield _one("image and audio", f"Does {audio} belong to {image}?", both)
    if image:
        rows = (
            (f"{image} What is this?", Exhibits([SMALL])),
            ("No image at all, only words.", Exhibits()),
            (f"Compare: {image}{image}", Exhibits([WIDE, TALL])),
        )
        named = (
            Prompt(f"rows, {n} of {len(rows)}", (), text, exhibits=shown)
            for n, (text, shown) in enumerate(rows, 1)
        )
        yield Asked("rows", tuple(named))
    if video:
        yield _one("video", f"Tell what happens: {video}", Exhibits(films=[film(3, 24, 40)]))
    if video and image:
        yield _one("video and image", f"{video} Is {image} in it?", Exhibits([TALL], films=[film(2, 40, 24)]))


def _one(name: str, text: str, exhibits: Exhibits) -> Asked:
    return Asked(name, (Prompt(name, (), text, exhibits=exhibits),))


def _marks(package: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """The texts of the placeholders that config.json names and an encoder answers to."""
    from tokenizers import Tokenizer

    path = package / "tokenizer.json"
    if not path.is_file():
        return {}
    tokenizer = Tokenizer.from_file(str(path))
    encoders = {"image": "vision_config", "video": "vision_config", "audio": "audio_config"}
    ids = {kind: config.get(f"{kind}_token_id") for kind, key in encoders.items() if config.get(key)}
    texts = {kind: tokenizer.id_to_token(token) for kind, token in ids.items() if token is not None}
    return {kind: text for kind, text in texts.items() if text}
