"""The encoders of a full package: opened when the first picture or sound comes, and asked for so much at once."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from cabochon.errors import PackageError, RequestError
from cabochon.runtime.components import component_file, number, open_component, width
from cabochon.runtime.folder import Folder
from cabochon.runtime.graph import Graph
from cabochon.runtime.ports import REBUILD
from cabochon.runtime.properties import peek
from cabochon.runtime.soft import AUDIO, VISION, Medium

PORTS = {VISION: "image_features", AUDIO: "audio_features"}
INPUTS = {
    VISION: ("pixel_values", "pixel_position_ids"),
    AUDIO: ("input_features", "input_features_mask"),
}
KINDS = {"f": "f", "i": "iu", "b": "biu"}  # of numbers that stand for such of a port
UNIFIED = "gemma4_unified"  # model_type of a model without encoders: a frame of sound is a token
HALVED_TWICE = 4  # frames that become a token where there is an encoder of sound
AT_ONCE = 4096  # patches or frames of one call, where a medium alone has no more


class Encoders:
    """Turns media into features, each once: an image that comes again, while it is still in a cache, is the same."""

    def __init__(
        self, folder: Folder, names: Iterable[str], built: tuple[str, str], hidden: int, **options: Any
    ) -> None:
        """`names` of the encoders that the package has, `hidden` the size of a row, `options` those of `Graph`.

        Raises PackageError where the file of one is missing.
        """
        self._package, self._built, self._hidden, self._options = folder.path, built, hidden, options
        self._reduction = 1 if folder.config.get("model_type") == UNIFIED else HALVED_TWICE
        self.files: Mapping[str, Path] = {name: component_file(folder.path, name) for name in names}
        self._graphs: dict[str, Graph] = {}
        self._known: WeakValueDictionary[bytes, Medium] = WeakValueDictionary()

    def images(self, pixel_values: Any, pixel_position_ids: Any) -> list[Medium]:
        """Media of pixel_values [images, patches, 3 p²] and pixel_position_ids [images, patches, 2]."""
        pixels = _array(pixel_values, np.float32, 3, "pixel_values")
        places = _array(pixel_position_ids, np.int64, 3, "pixel_position_ids")
        _same((*pixels.shape[:2], 2), places.shape, "pixel_position_ids")
        k = self._pooled()
        return [self._image(p, at, k, n) for n, (p, at) in enumerate(zip(pixels, places, strict=True))]

    def clips(self, input_features: Any, input_features_mask: Any) -> list[Medium]:
        """Media of input_features [clips, time, width] and input_features_mask [clips, time]."""
        sounds = _array(input_features, np.float32, 3, "input_features")
        masks = _array(input_features_mask, np.bool_, 2, "input_features_mask")
        _same(sounds.shape[:2], masks.shape, "input_features_mask")
        self._require(AUDIO)
        return [self._clip(s, m, n) for n, (s, m) in enumerate(zip(sounds, masks, strict=True))]

    def encode(self, media: Iterable[Medium]) -> None:
        """Make the features that lack. Raises PackageError where an encoder makes another number of them."""
        lacking = dict.fromkeys(medium for medium in media if medium.features is None)
        for group in groups(list(lacking)):
            self._encode(group)

    def _encode(self, group: Sequence[Medium]) -> None:
        encoder, port = group[0].encoder, PORTS[group[0].encoder]
        arrays = {name: np.stack([m.arrays[name] for m in group]) for name in INPUTS[encoder]}
        made = self._run(encoder, arrays, port)
        features, ends = made[port], np.cumsum([m.tokens for m in group])
        if len(features) != ends[-1]:
            raise PackageError(
                f"{len(features)} rows of features; expected {ends[-1]}, as the inputs have so many soft tokens",
                at=f"{encoder}/{self.files[encoder].name}: {port}",
                remedy=REBUILD,
            )
        for medium, rows in zip(group, np.split(features, ends[:-1]), strict=True):
            medium.features = rows.copy()  # what a run gave back may be the session's own memory

    def _run(self, encoder: str, arrays: Mapping[str, np.ndarray], port: str) -> Mapping[str, np.ndarray]:
        graph = self._graph(encoder)
        try:
            return graph.run(arrays, {}, [port], {})[0]
        except RequestError as error:
            raise RequestError(
                error.message,
                at=", ".join(arrays),
                remedy="give what this package's processor made, of whole images and clips, or less at once",
            ) from error

    def _graph(self, encoder: str) -> Graph:
        if encoder not in self._graphs:
            graph = open_component(self._package, encoder, self._built, **self._options)
            made = width(graph.outputs[PORTS[encoder]])
            if made != self._hidden:
                raise PackageError(
                    f"{PORTS[encoder]} is {made} wide; expected {self._hidden}, as inputs_embeds",
                    at=f"{encoder}/{self.files[encoder].name}",
                    remedy=REBUILD,
                )
            self._graphs[encoder] = graph
        return self._graphs[encoder]

    def _image(self, pixels: np.ndarray, places: np.ndarray, k: int, n: int) -> Medium:
        """Without its padding, which costs as much as patches do."""
        real = (places >= 0).all(1)
        if ((places >= 0).any(1) != real).any():
            raise RequestError(
                "one of x and y is below 0, the other is not; expected both for padding, or neither",
                at=f"pixel_position_ids[{n}]",
                remedy="give what the processor made",
            )
        if not real.any():
            raise RequestError("an image of padding alone", at=f"pixel_position_ids[{n}]")
        _finite(pixels[real], f"pixel_values[{n}]")
        count = int(real.sum())
        tokens = count if k == 1 else len(np.unique(places[real] // k, axis=0))
        if count == tokens * k * k:
            pixels, places = pixels[real], places[real]
        return self._kept(VISION, (pixels, places), tokens)

    def _clip(self, sound: np.ndarray, mask: np.ndarray, n: int) -> Medium:
        """The encoder keeps the mask of the first of those frames that become one token."""
        if not mask.any():
            raise RequestError("a clip of padding alone", at=f"input_features_mask[{n}]")
        _finite(sound[mask], f"input_features[{n}]")
        return self._kept(AUDIO, (sound, mask), int(mask[:: self._reduction].sum()))

    def _kept(self, encoder: str, arrays: Sequence[np.ndarray], tokens: int) -> Medium:
        made = Medium(encoder, dict(zip(INPUTS[encoder], arrays, strict=True)), tokens)
        return self._known.setdefault(made.digest, made)

    def _pooled(self) -> int:
        """Patches to a side of what becomes one soft token."""
        self._require(VISION)
        if VISION in self._graphs:
            return number(self._graphs[VISION], "pooling_kernel_size") or 1
        return int(peek(self.files[VISION], "pooling_kernel_size") or 1)

    def _require(self, encoder: str) -> None:
        if encoder not in self.files:
            raise RequestError(
                f"this package has no {encoder}",
                at=INPUTS[encoder][0],
                remedy="its model takes none of that kind",
            )


def groups(media: Sequence[Medium]) -> Iterator[list[Medium]]:
    """Neighbours of one shape together, as long as they have no more than `AT_ONCE` patches or frames."""
    held: list[Medium] = []
    for medium in media:
        if held and (_shape(medium) != _shape(held[0]) or (len(held) + 1) * _shape(medium)[1] > AT_ONCE):
            yield held
            held = []
        held.append(medium)
    if held:
        yield held


def _shape(medium: Medium) -> tuple[str, int]:
    return medium.encoder, len(medium.arrays[INPUTS[medium.encoder][0]])


def _array(given: Any, dtype: type[np.generic], rank: int, at: str) -> np.ndarray:
    array = np.asarray(given)
    if array.ndim != rank or array.dtype.kind not in KINDS[np.dtype(dtype).kind] or not array.size:
        raise RequestError(
            f"{array.dtype} {array.shape}; expected {np.dtype(dtype)} of {rank} dimensions, none of them empty",
            at=at,
            remedy="give what the processor made",
        )
    return array.astype(dtype, copy=False)


def _finite(array: np.ndarray, at: str) -> None:
    """What stands in padding may be anything."""
    if not np.isfinite(array).all():
        raise RequestError(
            "holds NaN or infinities; expected numbers", at=at, remedy="give what the processor made"
        )


def _same(expected: tuple[int, ...], found: tuple[int, ...], at: str) -> None:
    if expected != found:
        raise RequestError(f"{found}; expected {expected}", at=at, remedy="give what the processor made")
