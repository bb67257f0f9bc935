"""The constants of an OpenVINO IR file, without OpenVINO: where in the .bin beside it each is said to lie."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from xml.parsers import expat

from cabochon.errors import PackageError

__all__ = ["Constant", "constants", "weights_of"]

BITS = {
    **{f"{kind}{bits}": bits for kind in "iu" for bits in (4, 8, 16, 32, 64)},
    **{f"f{bits}": bits for bits in (16, 32, 64)},
    **{"boolean": 8, "u1": 1, "bf16": 16, "nf4": 4, "f4e2m1": 4, "f8e4m3": 8, "f8e5m2": 8, "f8e8m0": 8},
}


@dataclass(frozen=True)
class Constant:
    """A constant: its layer's name; offset and size as they are written; type, shape, bits of an element."""

    layer: str
    offset: str | None
    size: str | None
    dtype: str
    shape: tuple[int, ...]

    @property
    def bits(self) -> int:
        """Bits of one element, 0 for a type that is not known."""
        return BITS.get(self.dtype, 0)

    @property
    def nbytes(self) -> int:
        """The bytes that shape and type take; -1 where they say nothing."""
        if not self.bits or min(self.shape, default=0) < 0:
            return -1
        return -(-math.prod(self.shape) * self.bits // 8)


def weights_of(name: str) -> str:
    """The file of weights that belongs to an IR file, relative to its folder."""
    return PurePosixPath(name).with_suffix(".bin").name


def constants(text: bytes, at: str) -> Iterator[Constant]:
    """Every constant of an IR file. Raises PackageError for what is none; entities are not expanded."""
    found, layers, top = list[Constant](), list[str](), list[str]()

    def start(tag: str, said: dict[str, str]) -> None:
        top.append(tag) if not top else None
        if tag == "layer":
            layers.append(said.get("name", said.get("id", "")))
        elif tag == "data" and ("offset" in said or "size" in said):
            dtype, shape = said.get("element_type", ""), _shape(said.get("shape", ""))
            layer = layers[-1] if layers else ""
            found.append(Constant(layer, said.get("offset"), said.get("size"), dtype, shape))

    def refuse(*_: object) -> None:
        raise PackageError("it declares a document type; expected none", at=at)

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.StartDoctypeDeclHandler = start, refuse
    try:
        parser.Parse(text, True)
    except (expat.ExpatError, ValueError) as error:
        raise PackageError(f"it is no XML: {error}", at=at) from None
    if top != ["net"]:
        raise PackageError(f"its top is <{top[0]}>; expected <net>", at=at)
    return iter(found)


def _shape(text: str) -> tuple[int, ...]:
    """ "2,3" -> (2, 3); a dimension that is none is -1."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(
        int(part) if part.isascii() and part.isdecimal() and len(part) < 20 else -1 for part in parts
    )
