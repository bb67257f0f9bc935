"""The packages that can be built of a checkpoint: each kind with its config, its tensors, and why it is refused."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cabochon.checkpoint import Checkpoint, Tensor
from cabochon.errors import ConfigError, PackageError, SourceError, UnsupportedError
from cabochon.gemma4 import TextConfig
from cabochon.gemma4.layout import (
    Slot,
    full_geometry,
    is_drafter,
    text_geometry,
    text_layout,
    tower_layout,
)
from cabochon.gemma4.names import as_rows
from cabochon.package.fitting import require_fit
from cabochon.package.kinds import DRAFTER, FULL, TEXT, Kind
from cabochon.planning.opened import Opened

__all__ = ["Offer", "offers", "refusal"]

_LAYER = re.compile(r"(?<=layers\.)\d+")


@dataclass(frozen=True)
class Offer:
    """One kind of package. `config` and `tensors`, by canonical name, are those that `kind` takes: of what is not built
    as near as sizes ask for. `slots` are those of the checkpoint. `refused`: why it is not built, "" where it is;
    `remarks`: what a user should know."""

    kind: Kind
    config: Any
    slots: tuple[Slot, ...]
    tensors: Mapping[str, Tensor]
    checkpoint: Checkpoint | None
    refused: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def text(self) -> TextConfig:
        """The layers of the model."""
        return self.config if isinstance(self.config, TextConfig) else self.config.text

    @cached_property
    def alike(self) -> dict[str, str]:
        """By the name of each tensor that of the first that is like it in all but the number of its layer."""
        first: dict[object, str] = {}
        return {
            name: first.setdefault((_LAYER.sub("", name), tensor.shape, tensor.dtype), name)
            for name, tensor in self.tensors.items()
        }


def offers(opened: Opened) -> tuple[Offer, ...]:
    """What can be built, text before full.

    Raises ConfigError or UnsupportedError where config.json is that of no Gemma 4, TensorError for tensors of the text.
    """
    raw, text = opened.raw, text_layout(opened.raw)
    if is_drafter(raw):
        return (_offer(DRAFTER, DRAFTER.read(raw), text, opened),)
    first = _offer(TEXT, text_geometry(raw), text, opened)
    try:
        towers, geometry = tower_layout(raw), full_geometry(raw)
    except ConfigError as error:
        said = f"there is no full package: {error.at}: {error.message}"
        return (replace(first, remarks=(*first.remarks, said)),)
    return (first, _offer(FULL, geometry, text + towers, opened)) if towers else (first,)


def refusal(target: Offer, drafter: Offer | None) -> str:
    """Why the target is not built, or the pair where a drafter is given; "" where it is."""
    if target.refused or drafter is None:
        return target.refused
    try:
        require_fit(target.text, drafter.config)
    except PackageError as error:
        return error.message
    return ""


def _offer(kind: Kind, geometry: Any, slots: list[Slot], opened: Opened) -> Offer:
    offer = Offer(kind, geometry, tuple(slots), _declared(slots), opened.checkpoint)
    try:
        return _checked(offer, opened.raw)
    except UnsupportedError as error:
        return replace(offer, refused=f"{error.message}; {error.remedy}")
    except SourceError as error:
        if kind is not FULL:  # what is wrong with a tower does not concern the text
            raise
        return replace(offer, refused=f"{error.at}: {error.message}")


def _checked(offer: Offer, raw: Mapping[str, Any]) -> Offer:
    """The offer as a build would take it: with the tensors of the checkpoint, where it is at hand."""
    offer = replace(offer, config=offer.kind.read(raw))
    if offer.checkpoint is None:
        return replace(offer, remarks=offer.text.remarks)
    found = offer.kind.tensors(offer.checkpoint.tensors, offer.config)
    said = f"{len(found.unused)} tensors of the checkpoint are not part of the {offer.kind.name} model"
    remarks = (*offer.checkpoint.remarks, *offer.text.remarks, *((said,) if found.unused else ()))
    return replace(offer, tensors=found.used, remarks=remarks)


def _declared(slots: list[Slot]) -> dict[str, Tensor]:
    """The tensors as config.json has them: names and shapes, and no bytes."""
    return {name: as_rows(name, Tensor(name, _dtype(name), shape, Path(), 0, 0)) for _, name, shape in slots}


def _dtype(name: str) -> str:
    return "I64" if name.endswith("token_ordering") else "BF16"
