"""A package judged by its files: every fault with a code, an address, what was found and what to do.

The room has the name of its one function. Whichever of the two `cabochon.validate` is, it can be called: importing a
module of this room puts the room in the place of the function.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cabochon.validate.checking import Verdict, validate
    from cabochon.validate.findings import Finding, Severity

__all__ = ["Finding", "Severity", "Verdict", "validate"]

MODULES = {"Finding": "findings", "Severity": "findings", "Verdict": "checking", "validate": "checking"}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)


class Room(ModuleType):
    """This module, which may be called as its function."""

    def __call__(self, *arguments: Any, **options: Any) -> "Verdict":
        """See `cabochon.validate.checking.validate`."""
        return import_module(f"{__name__}.checking").validate(*arguments, **options)


sys.modules[__name__].__class__ = Room
