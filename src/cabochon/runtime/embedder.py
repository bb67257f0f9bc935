"""What makes of tokens that which a decoder is fed."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from cabochon.errors import RequestError
from cabochon.runtime.graph import Value
from cabochon.runtime.host import held
from cabochon.runtime.soft import Medium, soft_tokens

MADE = frozenset({"inputs_embeds", "per_layer_inputs"})


class Embedder(Protocol):
    """From the tokens of a batch to the ports of a decoder that take them.

    `placeholders`: the token ids that stand for a row of features, by "image", "video" and "audio"; {} where the
    package takes text alone.
    """

    @property
    def placeholders(self) -> Mapping[str, int]:
        """See the class."""
        ...

    def feeds(self, rows: Sequence[Sequence[int]], ids: np.ndarray) -> Mapping[str, Value]:
        """Ports of the decoder by name, for `ids` i64 [B, S]; `rows` are the same tokens, soft ones as such."""
        ...

    def images(self, pixel_values: np.ndarray, pixel_position_ids: np.ndarray) -> list[Medium]:
        """Images or frames from what a processor made of them; see `Model.encode_images`."""
        ...

    def clips(self, input_features: np.ndarray, input_features_mask: np.ndarray) -> list[Medium]:
        """Clips of sound; see `Model.encode_audio`."""
        ...

    def encode(self, media: Sequence[Medium]) -> None:
        """Make the features that media lack."""
        ...


class Lookup:
    """The decoder looks its tokens up itself: a text package."""

    placeholders: Mapping[str, int] = {}

    def feeds(self, rows: Sequence[Sequence[int]], ids: np.ndarray) -> Mapping[str, Value]:
        """See Embedder. Raises RequestError for a soft token."""
        if list(soft_tokens(rows)):
            raise text_alone("prompt")
        return {"input_ids": held(np.ascontiguousarray(ids))}

    def images(self, pixel_values: np.ndarray, pixel_position_ids: np.ndarray) -> list[Medium]:
        """Raises RequestError."""
        raise text_alone("pixel_values")

    def clips(self, input_features: np.ndarray, input_features_mask: np.ndarray) -> list[Medium]:
        """Raises RequestError."""
        raise text_alone("input_features")

    def encode(self, media: Sequence[Medium]) -> None:
        """There are none."""


def text_alone(at: str) -> RequestError:
    """The error for an image or a sound that a text package is given."""
    return RequestError(
        "this is a text package, it takes neither images nor sound",
        at=at,
        remedy="build the whole model with `cabochon build SOURCE OUT --model full`",
    )
