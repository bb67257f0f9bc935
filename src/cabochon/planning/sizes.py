"""How many bytes a package takes on disk and in memory, from its layout alone."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cabochon.dialects import Target
from cabochon.gemma4.names import HEAD, LAYERS_TABLE, TABLE
from cabochon.package.kinds import DRAFTER, FULL
from cabochon.package.layout import lay_out, twins
from cabochon.package.side_files import media_files, travelling
from cabochon.planning.offers import Offer
from cabochon.recipes import Precision, Recipe

__all__ = [
    "BUILD_MEMORY",
    "MIB",
    "Component",
    "Weights",
    "components",
    "documents",
    "look_up",
    "pair_documents",
    "weights",
]

Weights = Mapping[str, tuple[Recipe, ...]]

MIB = 2**20
# Anonymous memory of a build stays below this, whatever the size of a tensor: see `make bench`.
BUILD_MEMORY = 300_000_000

_TOKENS, _PER_LAYER = (table.removesuffix("weight") for table in (TABLE, LAYERS_TABLE))
_CPU = "CPUExecutionProvider"

# Measured on packages of 10 layers, 5 or 6 of them owners, and of 2 layers in each encoder: nodes and provenance of a
# layer, what the contract says of an owner's cache, and the rest of a package's documents and the graphs of its loop.
_LAYER = re.compile(r"model\.layers\.\d+\.input_layernorm\.weight")
_OWNER = re.compile(r"model\.layers\.\d+\.self_attn\.k_norm\.weight")
_ENCODING = re.compile(
    r"model\.(vision|audio)_tower\.(encoder\.)?layers\.\d+\.(input_layernorm|norm_out)\.weight"
)
_LAYER_BYTES, _OWNER_BYTES, _ENCODING_BYTES = 12_500, 8_100, 30_000
_DOCUMENT_BYTES = {"text": 78_000, "full": 158_000, "drafter": 20_000}
_PAIR_BYTES = 50_000
# tokenizer.json of the published checkpoints: 32,169,626 bytes for 262,144 entries.
_TOKENIZER_BYTES_OF_AN_ENTRY = 32_169_626 / 262_144


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
    """What is stored, by component."""
    found = offer.kind.weights(offer.config, offer.tensors, target, precision)
    return {name or _alone(offer): recipes for name, recipes in found.items()}


def _alone(offer: Offer) -> str:
    """What the graph of a package with one graph is called here."""
    return "drafter" if offer.kind is DRAFTER else "decoder"


def components(offer: Offer, weights: Weights, provider: str) -> Iterator[Component]:
    """Each with the weights that it holds; what two hold is on disk for the last."""
    both = twins(weights)
    holders = {recipe.name: name for name, recipes in weights.items() for recipe in recipes}
    for name, recipes in weights.items():
        shared = sum(r.nbytes for r in recipes if r.name in both and holders[r.name] == name)
        looked_up = _looked_up(offer, name)
        yield Component(
            name,
            lay_out(recipes, twins=both).nbytes + shared,
            sum(_held(r, provider, r.name.startswith(looked_up)) for r in recipes),
        )


def _looked_up(offer: Offer, name: str) -> tuple[str, ...]:
    """How the tables are called that the component reads by rows alone. One that is a head too it multiplies with."""
    if offer.kind is DRAFTER:
        return (_TOKENS,) if offer.config.centroids else ()
    return (_TOKENS, _PER_LAYER) if name == "embedding" or HEAD in offer.tensors else (_PER_LAYER,)


def _held(recipe: Recipe, provider: str, looked_up: bool) -> int:
    """onnxruntime's CPU provider has no f16 matrix product: it keeps an f32 copy of every matrix it multiplies with, a
    tied head among them, and then needs but some rows of what is in the file."""
    widened = provider == _CPU and recipe.precision == "f16" and not looked_up
    return recipe.nbytes * (2 if widened else 1)


def look_up(weights: Weights) -> Component:
    """What looks tokens up for a drafter: a session of its own over the target's table, which it reads by rows."""
    holder = weights.get("embedding", weights["decoder"])
    return Component("token_embedding", 0, sum(r.nbytes for r in holder if r.name.startswith(_TOKENS)))


def documents(offer: Offer) -> Component:
    """Everything but weights: graphs, texts, and the files that travel along."""

    def count(pattern: re.Pattern[str]) -> int:
        return sum(pattern.fullmatch(name) is not None for name in offer.tensors)

    said = _LAYER_BYTES * count(_LAYER) + _OWNER_BYTES * count(_OWNER) + _ENCODING_BYTES * count(_ENCODING)
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
