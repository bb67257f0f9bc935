"""OpenVINO, which is an extra: without it everything else of cabochon works."""

from importlib import import_module
from importlib.metadata import version
from typing import Any

from cabochon.errors import CabochonError

__all__ = ["library", "release"]


def library() -> Any:
    """The module `openvino`. CabochonError says how to get it where it is absent."""
    try:
        return import_module("openvino")
    except ImportError as error:
        raise CabochonError(
            f"OpenVINO cannot be loaded: {error}", at="openvino", remedy="pip install 'cabochon[openvino]'"
        ) from error


def release() -> str:
    """Its version as installed, such as 2026.4.1."""
    return version("openvino")
