"""How many bytes a package takes on disk and in memory, from its layout alone."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from cabochon.checkpoint import Tensor
from cabochon.dialects import Target
from cabochon.dialects.targets import whole_name
from cabochon.gemma4.names import EXPERTS, HEAD, LAYERS_TABLE, TABLE
from cabochon.package.kinds import DRAFTER, FULL
from cabochon.package.layout import data_bytes
from cabochon.package.side_files import media_files, travelling
from cabochon.planning.offers import Offer
from cabochon.recipes import Part, Precision, Weight

__all__ = [
    "BUILD_MEMORY",
    "MIB",
    "PACKING_MEMORY",
    "Component",
    "Sized",
    "Weights",
    "components",
    "described",
    "documents",
    "look_up",
    "pair_documents",
    "weights",
]

MIB = 2**20
# Anonymous memory of a build stays below this, whatever the size of a tensor: see `make bench`.
BUILD_MEMORY = 300_000_000
# And this where weights go into blocks: measured with heads of 262,144 x 1536 and x 5376 that onnx-standard stores
# across, 31B's in 428 MB.
PACKING_MEMORY = 500_000_000

_TOKENS, _PER_LAYER = (table.removesuffix("weight") for table in (TABLE, LAYERS_TABLE))
_CPU = "CPUExecutionProvider"

# Measured on the tiny packages of the family: nodes and provenance of a layer, what the contract says of an owner's
# cache and of sound, and the rest of a package's documents and the graphs of its loop.
_LAYER = re.compile(r"model\.layers\.\d+\.input_layernorm\.weight")
_ENCODING = re.compile(
    r"model\.(vision|audio)_tower\.(encoder\.)?layers\.\d+\.(input_layernorm|norm_out)\.weight"
)
_BYTES_FOR = {
    _LAYER: 12_500,
    re.compile(r"model\.layers\.\d+\.self_attn\.k_norm\.weight"): 8_100,
    re.compile(r"model\.layers\.\d+\.router\.scale"): 11_000,
    _ENCODING: 30_000,
    re.compile(r"model\.audio_tower\.layers\.\d+\.norm_out\.weight"): 25_000,
    re.compile(r"model\.embed_audio\.embedding_projection\.weight"): 45_000,
}
_DOCUMENT_BYTES = {"text": 78_000, "full": 92_000, "drafter": 20_000}
_PAIR_BYTES = 50_000
# The XML of a layer in OpenVINO's form, measured on packages of 10 and of 35 layers, and of what is around the layers.
_CONVERTED_LAYER_BYTES, _CONVERTED_BYTES = 120_000, 100_000
# What graph and documents say of the scales or the zero points of one weight.
_BESIDE_BYTES = 340
# tokenizer.json of the published checkpoints: 32,169,626 bytes for 262,144 entries.
_TOKENIZER_BYTES_OF_AN_ENTRY = 32_169_626 / 262_144


class Sized(NamedTuple):
    """What is stored of a weight, as far as sizes go: its bytes, their type, and the tensor it comes from.

    `numbers`: how many of the tensor's it holds, 0 where it holds what belongs to them, scales or zero points.
    """

    name: str
    nbytes: int
    precision: str
    tensor: Tensor
    numbers: int


Weights = Mapping[str, tuple[Sized, ...]]


@dataclass(frozen=True)
class Component:
    """A part of a package, in bytes: its weights on disk, and in memory as the provider computes with them.

    The table of a tied head, which a full package needs in two graphs, is one file with two names: on disk it counts
    for the embedding alone, in memory for both. "documents" is everything but weights: graphs, tokenizer, texts.
    """

    name: str
    disk: int
    memory: int


def weights(offer: Offer, target: Target, precision: Precision) -> Weights:
    """What is stored, by component, in the order of its file. Layers are alike: what one stores is reckoned, and stands
    for all that are like it."""
    distinct = {name: offer.tensors[name] for name in dict.fromkeys(offer.alike.values())}
    found = offer.kind.weights(offer.config, distinct, target, precision)
    return {name or offer.kind.component: tuple(_of_all(offer, stored)) for name, stored in found.items()}


def _of_all(offer: Offer, stored: Iterable[Weight]) -> Iterator[Sized]:
    held: dict[str, list[Sized]] = {}
    for weight in stored:
        sized = Sized(weight.name, weight.nbytes, weight.precision, weight.tensor, _numbers(weight))
        held.setdefault(_whole(weight), []).append(sized)
    for name in offer.tensors:
        yield from held.get(offer.alike[name], ())
    if HEAD not in offer.tensors:  # a tied head that is stored otherwise than the table
        yield from held.get(HEAD, ())


def _whole(weight: Weight) -> str:
    """The canonical name of what this is all or a part of."""
    for table in (TABLE, LAYERS_TABLE, HEAD):  # which may be stored as several
        if weight.name.startswith(table.removesuffix("weight")):
            return table
    name = weight.name
    if isinstance(weight, Part) and weight.what != "codes":
        name = name.removesuffix(f"_{weight.what}")
    return whole_name(name)


def _numbers(weight: Weight) -> int:
    if isinstance(weight, Part):
        return prod(weight.packing.shape) if weight.what == "codes" else 0
    return prod(weight.shape)


def components(offer: Offer, weights: Weights, target: Target) -> Iterator[Component]:
    """Each with the weights that it holds; what two hold is on disk for the last, but where each has its own."""
    holders = {part.name: name for name, parts in weights.items() for part in parts}
    both = {part.name for name, parts in weights.items() for part in parts if holders[part.name] != name}
    both = set[str]() if target.converted else both
    for name, parts in weights.items():
        shared = sum(part.nbytes for part in parts if part.name in both and holders[part.name] == name)
        looked_up = _looked_up(offer, name)
        yield Component(
            name,
            data_bytes((part.nbytes for part in parts if part.name not in both), target.file_bytes) + shared,
            sum(_held(part, target, any(mark in part.name for mark in looked_up)) for part in parts),
        )


def _looked_up(offer: Offer, name: str) -> tuple[str, ...]:
    """What marks the names of the tables that the component reads by rows alone. One that is a head too it multiplies
    with. Experts are such tables: one by one they are copied, to be multiplied with, and let go."""
    if offer.kind is DRAFTER:
        return (_TOKENS,) if offer.config.centroids else ()
    if name == "embedding" or HEAD in offer.tensors:
        return (_TOKENS, _PER_LAYER, EXPERTS)
    return (_PER_LAYER, EXPERTS)


def _held(part: Sized, target: Target, looked_up: bool) -> int:
    """onnxruntime's CPU provider has no f16 matrix product: it keeps an f32 copy of every matrix it multiplies with, a
    tied head among them, and then needs but some rows of what is in the file. Weights in blocks it packs again, in
    about as many bytes, and widens their scales. OpenVINO widens everything that is f16, and packs the matrices again:
    6.1 GiB were measured where 1.7 are stored, and 0.6 of weights in blocks where 0.5 are."""
    if part.precision != "f16":
        return part.nbytes
    if target.converted:
        return part.nbytes * (2 if looked_up else 4)
    return part.nbytes * (2 if target.provider == _CPU and not looked_up else 1)


def described(weights: Weights) -> int:
    """The bytes that documents and graphs take more where weights are in blocks."""
    return _BESIDE_BYTES * sum(not part.numbers for parts in weights.values() for part in parts)


def look_up(weights: Weights, target: Target) -> Component:
    """What looks tokens up for a drafter: a session of its own over the target's table, which it reads by rows."""
    holder = weights.get("embedding", weights["decoder"])
    table = sum(r.nbytes for r in holder if r.name.startswith(_TOKENS))
    return Component("token_embedding", table if target.converted else 0, table)


def converted_graphs(offer: Offer) -> int:
    """The bytes that graphs in OpenVINO's form take beyond those of ONNX."""
    layers = sum(bool(_LAYER.fullmatch(name) or _ENCODING.fullmatch(name)) for name in offer.tensors)
    return _CONVERTED_BYTES + _CONVERTED_LAYER_BYTES * layers


def documents(offer: Offer) -> Component:
    """Everything but weights: graphs, texts, and the files that travel along."""

    said = sum(
        nbytes * sum(pattern.fullmatch(name) is not None for name in offer.tensors)
        for pattern, nbytes in _BYTES_FOR.items()
    )
    return Component("documents", said + _DOCUMENT_BYTES[offer.kind.name] + _travelling_bytes(offer), 0)


def pair_documents(target: Offer, drafter: Offer) -> Component:
    """Those of both, and what a pair says of them. The target's tokenizer is there twice, the drafter's is not."""
    own = documents(drafter).disk - _travelling_bytes(drafter) + _travelling_bytes(target)
    return Component("documents", documents(target).disk + own + _PAIR_BYTES, 0)


def _travelling_bytes(offer: Offer) -> int:
    """The files that travel along where they are at hand; else what a published tokenizer takes for as many entries."""
    if offer.checkpoint is None:
        return round(offer.text.vocab * _TOKENIZER_BYTES_OF_AN_ENTRY)
    files = offer.checkpoint.files
    names = travelling(files) | (media_files(files) if offer.kind is FULL else {})
    return sum(files[name].stat().st_size for name in names)
