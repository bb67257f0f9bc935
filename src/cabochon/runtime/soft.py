"""Tokens that are no words: each stands for one row of what an encoder made of an image, a frame or a clip of sound.

A soft token is the id of its placeholder, and so takes part in whatever is done with ids. But it equals another only
where both stand for the same row of the same picture or sound: a conversation goes on from the caches of the last turn
exactly as far as its words *and* its pictures are the same.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

VISION, AUDIO = "vision_encoder", "audio_encoder"


class Medium:
    """One image, frame of a video or clip of sound: what its encoder takes, and its features once they were made.

    `encoder` is the component that encodes it, `arrays` what this takes of it, by port and without the first axis;
    `tokens` counts its soft tokens. `features` [tokens, H], in the package's dtype, is None until it was encoded.
    `remarks`: what a user should know, such as that sound was cut. Two are equal where their arrays are.
    """

    def __init__(
        self,
        encoder: str,
        arrays: Mapping[str, np.ndarray],
        tokens: int,
        features: np.ndarray | None = None,
    ) -> None:
        self.encoder, self.arrays, self.tokens, self.features = encoder, arrays, tokens, features
        self.remarks: tuple[str, ...] = ()
        self.digest = _digest(encoder, arrays if features is None else {"features": features})

    @classmethod
    def encoded(cls, encoder: str, features: np.ndarray) -> "Medium":
        """What was encoded elsewhere: features [tokens, H]."""
        return cls(encoder, {}, len(features), features)

    def soft(self, kind: str, placeholder: int) -> list["SoftToken"]:
        """Its soft tokens in the place of `placeholder`, a token id; `kind` is "image", "video" or "audio"."""
        return [SoftToken(placeholder, kind, self, row) for row in range(self.tokens)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Medium) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


class SoftToken(int):
    """The id of a placeholder, and the row of the medium that stands in its place."""

    kind: str
    medium: Medium
    row: int

    def __new__(cls, placeholder: int, kind: str, medium: Medium, row: int) -> "SoftToken":
        """See the class."""
        token = super().__new__(cls, placeholder)
        token.kind, token.medium, token.row = kind, medium, row
        return token

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SoftToken)
            and int(self) == int(other)
            and (self.row, self.medium) == (other.row, other.medium)
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((int(self), self.row, self.medium))

    @property
    def features(self) -> np.ndarray:
        """Its row [H]; the medium is encoded."""
        assert self.medium.features is not None
        return self.medium.features[self.row]


def soft_tokens(rows: Iterable[Iterable[int]]) -> Iterator[SoftToken]:
    """The soft tokens of a batch in order, row by row."""
    return (token for row in rows for token in row if isinstance(token, SoftToken))


def counted(tokens: Iterable[int]) -> dict[str, int]:
    """How many soft tokens there are of each kind, of those that occur."""
    found: dict[str, int] = {}
    for token in soft_tokens([tokens]):
        found[token.kind] = found.get(token.kind, 0) + 1
    return found


def remarks(tokens: Iterable[int]) -> tuple[str, ...]:
    """What a user should know of the media among the tokens."""
    return tuple(dict.fromkeys(r for token in soft_tokens([tokens]) for r in token.medium.remarks))


def chunks(tokens: Sequence[int], most: int, whole_images: bool) -> Iterator[tuple[int, int]]:
    """(start, end) of the steps that feed `tokens`, of at most `most` each.

    With `whole_images` a run of vision tokens stays in one step: the step before ends where it begins. A run longer
    than `most` is a step of its own.
    """
    start = 0
    while start < len(tokens):
        end = min(start + most, len(tokens))
        if whole_images and (first := run_start(tokens, end)) < end:
            end = first if first > start else run_end(tokens, end)
        yield start, end
        start = end


def run_start(tokens: Sequence[int], place: int) -> int:
    """Where the run of vision tokens begins that a cut before `place` would split; `place` where it splits none."""
    if not 0 < place < len(tokens) or not is_vision(tokens[place]):
        return place
    while place and is_vision(tokens[place - 1]):
        place -= 1
    return place


def run_end(tokens: Sequence[int], place: int) -> int:
    """Where the run of vision tokens ends that `place` is in."""
    while place < len(tokens) and is_vision(tokens[place]):
        place += 1
    return place


def is_vision(token: int) -> bool:
    """True for a row of an image or a frame."""
    return isinstance(token, SoftToken) and token.medium.encoder == VISION


def _digest(encoder: str, arrays: Mapping[str, np.ndarray]) -> bytes:
    found = hashlib.blake2b(encoder.encode(), digest_size=20)
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).data)
    return found.digest()
