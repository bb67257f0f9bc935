"""A package judged by its files: every fault with a code, an address, what was found and what to do."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cabochon.validate.checking import Verdict, validate
    from cabochon.validate.findings import Finding, Severity

__all__ = ["Finding", "Severity", "Verdict", "validate"]

MODULES = {"Finding": "findings", "Severity": "findings", "Verdict": "checking", "validate": "checking"}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
