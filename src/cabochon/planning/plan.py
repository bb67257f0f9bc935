"""A plan: parts, largest tensors, caches, and a verdict for each target, precision and kind of package."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path

from cabochon.errors import SourceError
from cabochon.gemma4.layout import Slot
from cabochon.package.kinds import DRAFTER
from cabochon.planning.offers import Offer, offers, refusal
from cabochon.planning.opened import Opened, open_config, open_source
from cabochon.planning.sizes import BUILD_MEMORY, PACKING_MEMORY
from cabochon.planning.verdicts import Verdict, verdicts
from cabochon.recipes import PRECISIONS, Precision
from cabochon.recipes.recipe_file import find_precision

__all__ = ["Cache", "Large", "Part", "Plan", "plan"]


@dataclass(frozen=True)
class Part:
    """A part of the model as the checkpoint stores it."""

    name: str
    tensors: int
    parameters: int
    nbytes: int


@dataclass(frozen=True)
class Large:
    """One of the largest tensors of the checkpoint. `int32` says that an int32 can count its elements."""

    name: str
    shape: tuple[int, ...]
    elements: int
    nbytes: int
    int32: bool


@dataclass(frozen=True)
class Cache:
    """Keys and values in bytes at 2 bytes an element (f16, bf16); f32 takes twice as much.

    Full-attention layers grow by `full` a token. Sliding layers grow by `sliding`, and stop at `window` tokens where
    the caller evicts, as cabochon's runtime does. `longest` is the whole context of `max_positions` tokens, evicted.
    """

    full: int
    sliding: int
    window: int | None
    max_positions: int
    longest: int
    longest_unevicted: int


@dataclass(frozen=True)
class Plan:
    """What a build would take. `refused` is why this checkpoint is not built, "" where it is. Where its text is, and a
    full package is not, the verdicts say why. A build takes less than `build_memory` bytes of memory, or
    `packing_memory` where weights go into blocks.

    With an assistant `verdicts` are those of a pair, and `assistant` is the plan of the drafter by itself.
    """

    source: str
    model_type: str
    refused: str
    parts: tuple[Part, ...]
    tensors: int
    parameters: int
    nbytes: int
    largest: tuple[Large, ...]
    cache: Cache
    build_memory: int
    packing_memory: int
    verdicts: tuple[Verdict, ...]
    remarks: tuple[str, ...]
    assistant: "Plan | None" = None


def plan(
    source: str | Path | None = None,
    *,
    config: str | Path | None = None,
    assistant: str | Path | None = None,
    precision: str | Path | None = None,
    revision: str | None = None,
    assistant_revision: str | None = None,
) -> Plan:
    """Plan from a checkpoint (a folder or a hub id), or from a config.json alone.

    `precision` is one of the table, or the path of a recipe: verdicts are of that alone. By default they are of the
    whole table.

    The tensors of a folder are checked against its config, and the files that travel along are counted. Of a hub id
    only the small files are fetched. `assistant`, a checkpoint or a config.json too, makes it the plan of a pair.
    Raises SourceError (and its kinds) where there is nothing to plan.
    """
    if (source is None) == (config is None):
        raise SourceError(
            "give a checkpoint or a config, one of them", remedy="cabochon plan SOURCE, or --config FILE"
        )
    chosen = tuple(PRECISIONS.values()) if precision is None else (find_precision(precision),)
    opened = open_config(config or "") if source is None else open_source(source, revision)
    if assistant is None:
        return _plan(opened, offers(opened), chosen)
    beside = (
        open_config(assistant) if Path(assistant).is_file() else open_source(assistant, assistant_revision)
    )
    return _pair(opened, beside, chosen)


def _pair(opened: Opened, assistant: Opened, chosen: tuple[Precision, ...]) -> Plan:
    DRAFTER.read(assistant.raw)  # or it says that it is none
    found, (drafter,) = offers(opened), offers(assistant)
    if found[0].kind is DRAFTER:
        raise SourceError(
            "an assistant is given for a drafter; expected a target to draft for", at=opened.source,
            remedy="give the target's checkpoint first",
        )  # fmt: skip
    return _plan(opened, found, chosen, drafter, _plan(assistant, (drafter,), chosen))


def _plan(
    opened: Opened,
    found: tuple[Offer, ...],
    chosen: tuple[Precision, ...],
    drafter: Offer | None = None,
    assistant: Plan | None = None,
) -> Plan:
    slots, width = found[-1].slots, _element_bytes(opened)
    parts = tuple(_parts(slots, width))
    return Plan(
        source=opened.source,
        model_type=str(opened.raw["model_type"]),
        refused=refusal(found[0], drafter),
        parts=parts,
        tensors=len(slots),
        parameters=sum(part.parameters for part in parts),
        nbytes=sum(part.nbytes for part in parts),
        largest=tuple(_largest(slots, width)),
        cache=_cache(found[0]),
        build_memory=BUILD_MEMORY,
        packing_memory=PACKING_MEMORY,
        verdicts=tuple(verdict for offer in found for verdict in verdicts(offer, drafter, chosen)),
        remarks=tuple(dict.fromkeys(line for offer in found for line in offer.remarks)),
        assistant=assistant,
    )


def _element_bytes(opened: Opened) -> int:
    """Bytes of an element in the checkpoint. Its largest tensor says it; config.json alone may be wrong (transformers
    writes float32 beside bf16 tensors), and says nothing where it is bf16 as published."""
    if opened.checkpoint is not None:
        largest = max(opened.checkpoint.tensors.values(), key=lambda tensor: tensor.nbytes)
        return largest.nbytes // prod(largest.shape)
    return 4 if (opened.raw.get("dtype") or opened.raw.get("torch_dtype")) == "float32" else 2


def _slot_bytes(slot: Slot, width: int) -> int:
    """The ordering of a drafter's tokens is int64."""
    return slot.elements * (8 if slot.name.endswith("token_ordering") else width)


def _parts(slots: Iterable[Slot], width: int) -> Iterable[Part]:
    groups: dict[str, list[Slot]] = {}
    for slot in slots:
        groups.setdefault(slot.part, []).append(slot)
    for name, group in sorted(groups.items(), key=lambda item: -sum(slot.elements for slot in item[1])):
        numbers = sum(slot.elements for slot in group)
        yield Part(name, len(group), numbers, sum(_slot_bytes(slot, width) for slot in group))


def _largest(slots: Iterable[Slot], width: int) -> Iterable[Large]:
    """The five largest; of equal ones the first."""
    for slot in sorted(slots, key=lambda slot: -slot.elements)[:5]:
        yield Large(slot.name, slot.shape, slot.elements, _slot_bytes(slot, width), slot.elements < 2**31)


def _cache(offer: Offer) -> Cache:
    text = offer.text
    per_kind = {"full_attention": 0, "sliding_attention": 0}
    for i in text.owners:
        layer = text.layers[i]
        per_kind[layer.kind] += 2 * layer.kv_heads * layer.head_dim * 2
    full, sliding = per_kind["full_attention"], per_kind["sliding_attention"]
    longest, window = text.max_positions, text.window
    kept = min(longest, window or longest)
    return Cache(full, sliding, window, longest, full * longest + sliding * kept, (full + sliding) * longest)
