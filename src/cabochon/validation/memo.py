"""Values worked out once for an opened package, a graph or an IR file."""

from collections.abc import Callable
from typing import TypeVar, cast

from cabochon.validation.graph import Graph
from cabochon.validation.net import Net
from cabochon.validation.opened import Opened

__all__ = ["once"]

T = TypeVar("T")


def once(owner: Opened | Graph | Net, make: Callable[..., T]) -> T:
    """make(owner), kept with the owner from then on: as cached_property does, for what other modules work out."""
    kept, name = vars(owner), f"once {make.__module__}.{make.__qualname__}"
    if name not in kept:
        kept[name] = make(owner)
    return cast(T, kept[name])
