"""Packages as OpenVINO takes them: its intermediate representation (IR), and an EPContext node around one."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cabochon.openvino.building import build_converted
    from cabochon.openvino.conversion import convert

__all__ = ["build_converted", "convert"]

MODULES = {"build_converted": "building", "convert": "conversion"}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
