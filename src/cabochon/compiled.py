"""C functions that are built with the package where there is a C compiler. They run outside of Python's lock."""

import ctypes
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["library"]


def library(source: Path, functions: Mapping[str, Sequence[type]]) -> ctypes.CDLL | None:
    """What was built of `source`, a C file, and lies beside it; None where it was not built, or not from this source.

    `functions`: the types of their arguments by name; all give an int32. A name ends with a number that changes with
    the arguments, so that what was built from another source is not found.
    """
    built = source.with_name(f"{source.stem}_c{sysconfig.get_config_var('EXT_SUFFIX')}")
    try:
        found = ctypes.CDLL(str(built))
        for name, arguments in functions.items():
            getattr(found, name).argtypes = arguments
            getattr(found, name).restype = ctypes.c_int32
    except (OSError, AttributeError):
        return None
    return found
