"""Modules that others import at their top and hardly ever use: loaded when first looked into.

onnx_ir imports sympy, to compute with symbolic dimensions. Nothing here does, and of the 0.73 s of CPU that importing
onnx_ir took, sympy took 0.64 (AMD EPYC, 2026-11).
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

__all__ = ["defer"]


def defer(*names: str) -> None:
    """From now on `import` of these modules gives one that loads itself at the first look for something in it.

    What is imported already, or found in another way than by path, is as ever; and so is a module that is missing.
    """
    sys.meta_path.insert(0, _Deferring(frozenset(names)))


class _Deferring:
    """Finds the modules of these names as Python does, and puts their loading off."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's specification; None for other modules, and for those that are not found by path."""
        if fullname not in self._names:
            return None
        found = PathFinder.find_spec(fullname, path, target)
        if found is not None and found.loader is not None:
            from importlib.util import LazyLoader  # as light as cabochon is to import

            found.loader = LazyLoader(found.loader)
        return found
