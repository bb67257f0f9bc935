"""The libraries that decode media. They are extras: without them everything else of cabochon works."""

from importlib import import_module
from typing import Any

from cabochon.errors import RequestError

__all__ = ["require"]


_NAMES = {"PIL.Image": "Pillow", "av": "PyAV"}


def require(module: str, what: str, extra: str = "media", at: str = "") -> Any:
    """The imported `module`. RequestError says that `what`, found `at` a place, needs it, and how to get it."""
    try:
        return import_module(module)
    except ImportError as error:
        missing = (
            "is not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be loaded: {error}"
        )
        why = f"{what} needs {_NAMES.get(module, module)}, which {missing}"
    except OSError as error:  # soundfile, where its C library is absent
        why = f"{what} needs {module}, which cannot be loaded: {error}"
    raise RequestError(why, at=at, remedy=f'pip install "cabochon[{extra}]"')
