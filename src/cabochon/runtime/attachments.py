"""Images, sound and video beside the words of a prompt: read, counted, and put where their placeholders stand.

A template or a caller writes one placeholder for each. In its place comes what transformers' Gemma4Processor writes:
begin, a soft token for each row of features, end; for a video the time of each frame before it, and spaces between.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cabochon.errors import PackageError, RequestError
from cabochon.runtime.embedder import Embedder, text_alone
from cabochon.runtime.folder import Folder
from cabochon.runtime.soft import AUDIO, Medium, SoftToken
from cabochon.runtime.tokens import Tokens

if TYPE_CHECKING:
    from cabochon.media import Processors

OPTIONS = {"image": "images", "audio": "audio", "video": "videos"}
"""The option of `generate` that takes each kind."""
AFFIXES = {"image": ("boi", "eoi"), "video": ("boi", "eoi"), "audio": ("boa", "eoa")}
FRAMES_PER_SECOND = 24  # transformers' for frames without a time
Given = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Attached:
    """What one placeholder stands for: media in order, and for the frames of a video their times, "mm:ss"."""

    media: tuple[Medium, ...]
    times: tuple[str, ...] | None = None


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


class Attachments:
    """The media of prompts for one package. One that takes text alone has no placeholders, and refuses all media."""

    def __init__(self, folder: Folder, embedder: Embedder, tokens: Tokens | None) -> None:
        """Nothing is read before the first attachment comes."""
        self._folder, self._embedder, self._tokens = folder, embedder, tokens
        self.placeholders = embedder.placeholders
        self.kinds = tuple(self.placeholders)

    def refuse_others(self, given: Given) -> None:
        """Raise RequestError for media of a kind that this package does not take."""
        for kind in (kind for kind, sources in given.items() if sources and kind not in self.kinds):
            if not self.kinds:
                raise text_alone(OPTIONS[kind])
            raise RequestError(
                f"this package takes no {kind}; it takes {' and '.join(self.kinds)}", at=OPTIONS[kind]
            )

    def written(self, text: str, given: Given) -> tuple[str, dict[str, list[Attached]]]:
        """`text` with what is written for each placeholder in it, and what was attached.

        Raises RequestError where there are more or fewer of a kind than placeholders, before any is read.
        """
        self.refuse_others(given)
        found = self._pattern.findall(text)
        for kind in self.kinds:
            if marks := self.marks.get(kind):
                _require_as_many(marks.token, found.count(marks.token), kind, len(given.get(kind, ())))
            elif given.get(kind):
                raise RequestError(
                    f"the tokenizer has no token {self.placeholders[kind]}, which stands for {kind}",
                    at=OPTIONS[kind],
                    remedy="give the prompt as token ids",
                )
        attached = self.read(given)
        kind_of = {marks.token: kind for kind, marks in self.marks.items()}
        left = {kind: iter(those) for kind, those in attached.items()}

        def written(match: re.Match[str]) -> str:
            kind = kind_of[match.group()]
            return self.marks[kind].text(next(left[kind]))

        return self._pattern.sub(written, text), attached

    def with_placeholders(self, text: str, given: Given) -> str:
        """`text` behind the placeholders of what is given, unless it has placeholders of its own."""
        self.refuse_others(given)
        if self._tokens is None or self._pattern.search(text):
            return text
        return (
            "".join(self.marks[kind].token for kind in given if kind in self.marks for _ in given[kind])
            + text
        )

    def apart(self, text: str, guarded: Callable[[str], str]) -> str:
        """`text` with everything `guarded` but its placeholders."""
        ends = 0
        pieces = list[str]()
        for found in self._pattern.finditer(text):
            pieces += guarded(text[ends : found.start()]), found.group()
            ends = found.end()
        return "".join([*pieces, guarded(text[ends:])])

    def filled(self, ids: Sequence[int], attached: Mapping[str, Sequence[Attached]]) -> list[int]:
        """The ids with soft tokens in the place of placeholders, in order; raise RequestError for another number."""
        kind_of = {token: kind for kind, token in self.placeholders.items()}
        soft = {kind: list(self._soft(kind, attached.get(kind, ()))) for kind in self.kinds}
        bare = [i for i in ids if not isinstance(i, SoftToken)]
        for kind, token in self.placeholders.items():
            found, needed, count = bare.count(token), len(soft[kind]), len(attached.get(kind, ()))
            if found != needed:
                raise RequestError(
                    f"{found} placeholders {token} and {needed} soft tokens of {count} {OPTIONS[kind]}; "
                    "expected as many",
                    at="prompt",
                    remedy=f"give what they stand for with {OPTIONS[kind]}=[...]; each soft token has a placeholder",
                )
        left = {kind: iter(tokens) for kind, tokens in soft.items()}
        return [i if isinstance(i, SoftToken) or i not in kind_of else next(left[kind_of[i]]) for i in ids]

    def _soft(self, kind: str, attached: Sequence[Attached]) -> Iterator[SoftToken]:
        return (
            t for one in attached for medium in one.media for t in medium.soft(kind, self.placeholders[kind])
        )

    def read(self, given: Given) -> dict[str, list[Attached]]:
        """Everything that was given, as the encoders take it."""
        self.refuse_others(given)
        return {
            kind: [self._one(kind, source, f"{OPTIONS[kind]}[{n}]") for n, source in enumerate(sources)]
            for kind, sources in given.items()
            if sources
        }

    def _one(self, kind: str, source: Any, at: str) -> Attached:
        if encoded := _encoded(source, kind):
            times = _times(encoded) if kind == "video" else None
            return Attached(tuple(_fitting(one, kind, at) for one in encoded), times)
        try:
            return getattr(self, f"_{kind}")(_opened(source))
        except RequestError as error:
            inner = re.sub(r"^(images|audio|videos?)(\[0\])? ?", "", error.at)
            where = f"{at} {inner}".strip()
            raise RequestError(error.message, at=where, remedy=error.remedy) from error

    def _image(self, source: Any) -> Attached:
        made = self._needed("image")(source, padded=False)
        return Attached(tuple(self._embedder.images(made.pixel_values, made.pixel_position_ids)))

    def _audio(self, source: Any) -> Attached:
        made = self._needed("audio")(source)
        clips = self._embedder.clips(made.input_features, made.input_features_mask)
        for clip in clips:
            clip.remarks = made.remarks
        return Attached(tuple(clips))

    def _video(self, source: Any) -> Attached:
        made = self._needed("video")(source, padded=False)
        frames = self._embedder.images(made.pixel_values, made.pixel_position_ids)
        for frame in frames:
            frame.remarks = made.remarks
        return Attached(tuple(frames), made.timestamps)

    def _needed(self, kind: str) -> Any:
        processor = getattr(self._processors, kind)
        if processor is None:
            raise PackageError(
                f"it has no processor for {kind}",
                at=str(self._folder.path / "processor_config.json"),
                remedy="give what a processor made (Model.encode_images, Model.encode_audio), or build it again",
            )
        return processor

    @cached_property
    def _processors(self) -> "Processors":
        from cabochon.media import read_processors

        return read_processors(self._folder.path)

    @cached_property
    def marks(self) -> dict[str, Marks]:
        """The texts of the placeholders, of each kind that the tokenizer has a placeholder for.

        Raises PackageError where it lacks a token around it.
        """
        texts = {kind: self._text(token) for kind, token in self.placeholders.items()}
        return {
            kind: Marks(text, *(self._affix(name) for name in AFFIXES[kind]))
            for kind, text in texts.items()
            if text
        }

    def _affix(self, name: str) -> str:
        """The text of a token around: as tokenizer_config.json names it, else by its id in config.json."""
        assert self._tokens is not None
        key = f"{name}_token_id"
        said = self._tokens.named.get(f"{name}_token") or self._text(self._folder.config.get(key))
        if said is None:
            raise PackageError(
                f"{self._folder.config.get(key)!r}; expected a control token of tokenizer.json",
                at=f"{self._folder.path / 'config.json'}: {key}",
                remedy="correct the file, or build the package again from a source that has it right",
            )
        return said

    def _text(self, token: Any) -> str | None:
        assert self._tokens is not None
        return next((text for text, number in self._tokens.controls.items() if number == token), None)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile("|".join(re.escape(marks.token) for marks in self.marks.values()) or r"(?!)")


def _require_as_many(token: str, found: int, kind: str, given: int) -> None:
    if found != given:
        raise RequestError(
            f"{found} placeholders {token} and {given} {OPTIONS[kind]}; expected as many",
            at="prompt",
            remedy=f"write {token} where each belongs, and give each with {OPTIONS[kind]}=[...]",
        )


def _encoded(source: Any, kind: str) -> list[Medium]:
    """What was encoded before: one, or the frames of a video; [] for anything else."""
    given: list[Any] = list(source) if kind == "video" and isinstance(source, list | tuple) else [source]
    return given if given and all(isinstance(one, Medium) for one in given) else []


def _times(frames: Sequence[Medium]) -> tuple[str, ...]:
    from cabochon.media.video import clock

    return tuple(clock(n / FRAMES_PER_SECOND) for n in range(len(frames)))


def _fitting(medium: Medium, kind: str, at: str) -> Medium:
    if (medium.encoder == AUDIO) != (kind == "audio"):
        raise RequestError(f"features of the {medium.encoder}; expected {kind}", at=at)
    return medium


def _opened(source: Any) -> Any:
    """What a data: address holds; anything else as it is."""
    if not isinstance(source, str) or not source.startswith("data:"):
        return source
    head, _, body = source.partition(",")
    try:
        if not head.endswith(";base64"):
            raise ValueError
        return base64.b64decode(body, validate=True)
    except (ValueError, binascii.Error) as error:
        raise RequestError(
            f"{head[:60]!r}; expected data:...;base64,...", remedy="give a path or bytes"
        ) from error
