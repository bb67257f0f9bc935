"""Numbers in blocks: to codes, scales and zero points, and back. Knows numpy alone; what is compiled is optional."""

from .blocks import compiled, nearest, pack, unpack
from .scheme import Packed, Scheme

__all__ = ["Packed", "Scheme", "compiled", "nearest", "pack", "unpack"]
