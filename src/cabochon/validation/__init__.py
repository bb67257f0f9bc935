"""A package judged by its files: every fault with a code, an address, what was found and what to do."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cabochon.validation.checking import Verdict, validate
    from cabochon.validation.findings import Finding, Severity
    from cabochon.validation.inspection import Inspection, inspect

__all__ = ["Finding", "Inspection", "Severity", "Verdict", "inspect", "validate"]

MODULES = {
    "Finding": "findings",
    "Inspection": "inspection",
    "Severity": "findings",
    "Verdict": "checking",
    "inspect": "inspection",
    "validate": "checking",
}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
