"""A plan: parts, largest tensors, caches, and a verdict for each target and precision."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from cabochon.checkpoint import Checkpoint, open_checkpoint
from cabochon.checkpoint.source import hub_id_of
from cabochon.errors import ConfigError, SourceError, UnsupportedError
from cabochon.gemma4 import TextConfig, read_text_config, text_tensors
from cabochon.gemma4.layout import Slot, layout, text_geometry
from cabochon.planning.sizes import BUILD_MEMORY, slot_bytes
from cabochon.planning.verdicts import Verdict, verdicts

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
    """What a build would take. `refused` is why this checkpoint is not built yet; "" where it is."""

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
    verdicts: tuple[Verdict, ...]
    remarks: tuple[str, ...]


def plan(
    source: str | Path | None = None, *, config: str | Path | None = None, revision: str | None = None
) -> Plan:
    """Plan from a checkpoint (a folder or a hub id), or from a config.json alone.

    The tensors of a folder are checked against its config, and the files that travel along are counted. Of a hub id
    only the small files are fetched. Raises SourceError (and its kinds) where there is nothing to plan.
    """
    if (source is None) == (config is None):
        raise SourceError(
            "give a checkpoint or a config, one of them", remedy="cabochon plan SOURCE, or --config FILE"
        )
    if source is None:
        return _plan(str(config), _read(Path(config or "")), None)
    if hub_id_of(source) is not None:
        return _plan(str(source), _config_of(source, revision), None)
    checkpoint = open_checkpoint(source, revision=revision)
    return _plan(checkpoint.source, checkpoint.config, checkpoint)


class _Enough(Exception):  # noqa: N818  (nothing is wrong)
    """Stops the opening of a checkpoint before its weights are fetched."""


def _config_of(source: str | Path, revision: str | None) -> Mapping[str, Any]:
    found: dict[str, Any] = {}

    def enough(config: Mapping[str, Any]) -> None:
        found.update(config)
        raise _Enough

    with suppress(_Enough):
        open_checkpoint(source, revision=revision, check=enough)
    return found


def _read(file: Path) -> dict[str, Any]:
    file = file / "config.json" if file.is_dir() else file
    try:
        raw = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise SourceError(
            f"cannot be read: {error.strerror}", at=str(file), remedy="check the path"
        ) from None
    except ValueError as error:
        raise ConfigError(f"is not JSON: {error}", at=str(file), remedy="download the file again") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"holds {type(raw).__name__}; expected an object", at=str(file))
    return raw


def _plan(source: str, raw: Mapping[str, Any], checkpoint: Checkpoint | None) -> Plan:
    slots, geometry = layout(raw), text_geometry(raw)
    refused, remarks = _refusal(raw, checkpoint)
    width = _element_bytes(raw, checkpoint)
    parts = tuple(_parts(slots, width))
    return Plan(
        source=source,
        model_type=str(raw["model_type"]),
        refused=refused,
        parts=parts,
        tensors=len(slots),
        parameters=sum(part.parameters for part in parts),
        nbytes=sum(part.nbytes for part in parts),
        largest=tuple(_largest(slots, width)),
        cache=_cache(raw, geometry),
        build_memory=BUILD_MEMORY,
        verdicts=verdicts(slots, geometry, refused, checkpoint),
        remarks=remarks,
    )


def _refusal(raw: Mapping[str, Any], checkpoint: Checkpoint | None) -> tuple[str, tuple[str, ...]]:
    """Why the checkpoint is not built yet, and what a user should know otherwise."""
    try:
        config = read_text_config(raw)
    except UnsupportedError as error:
        return f"{error.message}; {error.remedy}", ()
    if checkpoint is None:
        return "", config.remarks
    unused = text_tensors(checkpoint.tensors, config).unused
    said = (f"{len(unused)} tensors of the checkpoint are not part of the text model",) if unused else ()
    return "", (*checkpoint.remarks, *config.remarks, *said)


def _element_bytes(raw: Mapping[str, Any], checkpoint: Checkpoint | None) -> int:
    """Bytes of an element in the checkpoint. Its largest tensor says it; config.json alone may be wrong (transformers
    writes float32 beside bf16 tensors), and says nothing where it is bf16 as published."""
    if checkpoint is not None:
        largest = max(checkpoint.tensors.values(), key=lambda tensor: tensor.nbytes)
        return largest.nbytes // prod(largest.shape)
    return 4 if (raw.get("dtype") or raw.get("torch_dtype")) == "float32" else 2


def _parts(slots: Iterable[Slot], width: int) -> Iterable[Part]:
    groups: dict[str, list[Slot]] = {}
    for slot in slots:
        groups.setdefault(slot.part, []).append(slot)
    for name, group in sorted(groups.items(), key=lambda item: -sum(slot.elements for slot in item[1])):
        numbers = sum(slot.elements for slot in group)
        yield Part(name, len(group), numbers, sum(slot_bytes(slot, width) for slot in group))


def _largest(slots: list[Slot], width: int) -> Iterable[Large]:
    """The five largest; of equal ones the first."""
    for slot in sorted(slots, key=lambda slot: -slot.elements)[:5]:
        yield Large(slot.name, slot.shape, slot.elements, slot_bytes(slot, width), slot.elements < 2**31)


def _cache(raw: Mapping[str, Any], geometry: TextConfig) -> Cache:
    drafter = "backbone_hidden_size" in raw
    per_kind = {"full_attention": 0, "sliding_attention": 0}
    for i in () if drafter else geometry.owners:
        layer = geometry.layers[i]
        per_kind[layer.kind] += 2 * layer.kv_heads * layer.head_dim * 2
    full, sliding = per_kind["full_attention"], per_kind["sliding_attention"]
    longest, window = geometry.max_positions, geometry.window
    kept = min(longest, window or longest)
    return Cache(full, sliding, window, longest, full * longest + sliding * kept, (full + sliding) * longest)
