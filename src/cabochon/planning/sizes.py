"""How many bytes a package takes on disk and in memory, from the layout alone."""

from collections.abc import Iterable

from cabochon.checkpoint import Checkpoint
from cabochon.gemma4.layout import Slot
from cabochon.package.layout import data_bytes
from cabochon.package.side_files import travelling

__all__ = ["BUILD_MEMORY", "ELEMENT_BYTES", "MIB", "package_bytes", "run_memory", "slot_bytes", "text_slots"]

MIB = 2**20
# Anonymous memory of a build stays below this, whatever the size of a tensor: see `make bench`.
BUILD_MEMORY = 300_000_000
ELEMENT_BYTES = {"f32": 4, "f16": 2, "bf16": 2}

_MEDIA = ("vision tower", "audio tower", "vision embedder", "audio embedder")
_GATHERED = ("token embedding", "per-layer table")  # read row by row, never multiplied as a whole

# Measured on packages of 10 layers, 5 or 6 of them owners: nodes and provenance of a layer, what the contract says of
# an owner's cache, the rest of a package's documents and the graphs of its loop.
_LAYER_BYTES, _OWNER_BYTES, _DOCUMENT_BYTES = 12_500, 8_100, 78_000
# tokenizer.json of the published checkpoints: 32,169,626 bytes for 262,144 entries.
_TOKENIZER_BYTES_OF_AN_ENTRY = 32_169_626 / 262_144


def slot_bytes(slot: Slot, width: int) -> int:
    """Bytes of a tensor at `width` bytes an element; the ordering of a drafter's tokens stays int64."""
    return slot.elements * (8 if slot.name.endswith("token_ordering") else width)


def text_slots(slots: Iterable[Slot]) -> list[Slot]:
    """The tensors of a text package: all but those of images and sound."""
    return [slot for slot in slots if slot.part not in _MEDIA]


def package_bytes(slots: list[Slot], precision: str, checkpoint: Checkpoint | None) -> int:
    """Bytes of a package on disk; a build needs them free, once. `slots` as the target's graph holds them."""
    data = data_bytes(slot_bytes(slot, ELEMENT_BYTES[precision]) for slot in slots)
    layers = sum(slot.name.endswith("input_layernorm.weight") for slot in slots)
    owners = sum(slot.name.endswith("self_attn.k_norm.weight") for slot in slots)
    said = layers * _LAYER_BYTES + owners * _OWNER_BYTES + _DOCUMENT_BYTES
    return data + said + _travelling_bytes(slots, checkpoint)


def _travelling_bytes(slots: Iterable[Slot], checkpoint: Checkpoint | None) -> int:
    """The files that travel along where they are at hand; else what a published tokenizer takes for as many entries."""
    if checkpoint is not None:
        return sum(checkpoint.files[name].stat().st_size for name in travelling(checkpoint.files))
    table = next(slot for slot in slots if slot.part == "token embedding")
    return round(table.shape[0] * _TOKENIZER_BYTES_OF_AN_ENTRY)


def run_memory(slots: Iterable[Slot], precision: str, provider: str) -> int:
    """Bytes of the weights as the provider computes with them, caches and activations aside.

    onnxruntime's CPU provider has no f16 matrix product: it keeps an f32 copy of every matrix it multiplies with.
    """
    widened = provider == "CPUExecutionProvider" and precision == "f16"
    return sum(
        slot_bytes(slot, 4 if widened and slot.part not in _GATHERED else ELEMENT_BYTES[precision])
        for slot in slots
    )
