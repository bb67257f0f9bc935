"""Which target can carry a checkpoint in which precision, what it takes, and why not."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cabochon.checkpoint import Checkpoint
from cabochon.dialects import TARGETS, Target
from cabochon.dialects.targets import layer_table
from cabochon.gemma4 import Layer, TextConfig
from cabochon.gemma4.layout import Slot
from cabochon.planning.sizes import ELEMENT_BYTES, MIB, package_bytes, run_memory, slot_bytes, text_slots
from cabochon.recipes import PRECISIONS

__all__ = ["INT32", "Verdict", "verdicts"]

INT32 = 2**31 - 1


@dataclass(frozen=True)
class Verdict:
    """One target in one precision.

    `status` is "runs": the tests run it on this provider; "has kernels": the provider has them, and the tests run the
    graph on the CPU; "conditional": so, where `reason` holds; "builds": the package is right, but its provider lacks
    kernels; "refused": it is not built. `disk` and `memory` (to run, without caches) are in bytes.
    """

    target: str
    precision: str
    status: str
    reason: str
    disk: int
    memory: int
    warnings: tuple[str, ...]


def verdicts(
    slots: list[Slot], geometry: TextConfig, refused: str, checkpoint: Checkpoint | None
) -> tuple[Verdict, ...]:
    """All targets in all precisions. `refused` is why the checkpoint as a whole is not built, "" where it is."""
    text = text_slots(slots)
    return tuple(
        _verdict(
            target,
            precision,
            _as_written(text, target, len(geometry.layers)),
            text,
            geometry.layers,
            refused,
            checkpoint,
        )
        for target in TARGETS.values()
        for precision in PRECISIONS
    )


def _verdict(
    target: Target,
    precision: str,
    written: list[Slot],
    text: list[Slot],
    layers: tuple[Layer, ...],
    refused: str,
    checkpoint: Checkpoint | None,
) -> Verdict:
    status, reason = _status(target, precision, refused, [layer.head_dim for layer in layers])
    large = "" if status == "refused" else _buffers(target, precision, written)
    if large:
        status = "conditional"
    return Verdict(
        target.name,
        precision,
        status,
        "; ".join(filter(None, (reason, large))),
        package_bytes(written, precision, checkpoint),
        run_memory(written, precision, target.provider),
        tuple(_int32(target, text, written)),
    )


def _status(target: Target, precision: str, refused: str, head_sizes: list[int]) -> tuple[str, str]:
    if reason := refused or target.refusal(precision, head_sizes):
        return "refused", reason
    caveat = target.caveats.get(precision, "")
    if precision not in target.kernels:
        return "builds", caveat
    if caveat:
        return "conditional", caveat
    return ("runs" if target.tested else "has kernels"), ""


def _as_written(text: list[Slot], target: Target, layers: int) -> list[Slot]:
    """The tensors as the target's graph holds them: where elements are counted in int32, one table per layer."""
    if not target.table_per_layer:
        return text
    return [
        part
        for slot in text
        for part in (_tables(slot, layers) if slot.part == "per-layer table" else [slot])
    ]


def _tables(slot: Slot, layers: int) -> list[Slot]:
    rows, columns = slot.shape
    return [Slot(slot.part, layer_table(slot.name, i), (rows, columns // layers)) for i in range(layers)]


def _int32(target: Target, text: Iterable[Slot], written: list[Slot]) -> Iterator[str]:
    """What an int32 cannot count, and what becomes of it."""
    if not target.table_per_layer:
        return
    for slot in text:
        if slot.elements > INT32:
            tables = [part for part in written if part.part == slot.part]
            yield (
                f"{slot.name} has {slot.elements:,} elements, more than an int32 counts ({INT32:,}): "
                f"it is split into {len(tables)} tables, one per layer, of {tables[0].elements:,} each"
            )


def _buffers(target: Target, precision: str, written: list[Slot]) -> str:
    """What an adapter must grant beyond what every one does."""
    if target.binding is None:
        return ""
    binding = target.binding
    sizes = [slot_bytes(slot, ELEMENT_BYTES[precision]) for slot in written]
    large = [size for size in sizes if size > binding]
    if not large:
        return ""
    count = "1 tensor is" if len(large) == 1 else f"{len(large)} tensors are"
    return (
        f"{count} beyond the {binding // MIB} MiB that every adapter binds: the adapter must grant "
        f"{-(-max(large) // MIB):,} MiB for buffers and bindings"
    )
