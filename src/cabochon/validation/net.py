"""An OpenVINO IR file without OpenVINO: layers, ports, properties, and where in the .bin beside it constants lie."""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any
from xml.parsers import expat

from cabochon.errors import PackageError
from cabochon.metadata.ports import Port, Ports

__all__ = ["Constant", "Layer", "Net", "Slot", "read_net", "weights_of"]

BITS = {
    **{f"{kind}{bits}": bits for kind in "iu" for bits in (4, 8, 16, 32, 64)},
    **{f"f{bits}": bits for bits in (16, 32, 64)},
    **{"boolean": 8, "u1": 1, "bf16": 16, "nf4": 4, "f4e2m1": 4, "f8e4m3": 8, "f8e5m2": 8, "f8e8m0": 8},
}
_MOST = 128 << 20  # bytes; the decoder of E2B takes 5 MB
_DEEP = 100  # elements inside of each other; a Loop inside of a Loop takes 12
_SPELLED = {"boolean": "bool", "bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64"}
_KINDS = {"i": "int", "u": "uint", "f": "float"}
_OWN = ("Parameter", "Result")
REMEDY = "convert the graph again"


def spelled(dtype: str) -> str:
    """numpy's name of an element type: of "f32", and of "FP32" as ports have it. Unknown ones stay as they are."""
    name = dtype.lower()
    match = re.fullmatch(r"([iuf])(\d{1,2})", name)
    return f"{_KINDS[match[1]]}{match[2]}" if match else _SPELLED.get(name, name)


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


@dataclass
class Slot:
    """An end of a layer: its type by numpy's name, the names of the tensor there, its dimensions; -1 is any."""

    dtype: str
    names: tuple[str, ...] = ()
    dims: tuple[int, ...] = ()


@dataclass
class Layer:
    """A layer. `said`: the attributes of its data; `inner`: it belongs to the body of another one."""

    ident: str
    name: str
    type: str
    version: str
    inner: bool
    names: str  # output_names: those of an output of the model
    said: dict[str, str] = field(default_factory=dict)
    takes: dict[str, Slot] = field(default_factory=dict)
    gives: dict[str, Slot] = field(default_factory=dict)


@dataclass(frozen=True)
class Net:
    """An IR file of a package. `path` is its file; `rt_info` what it says of itself, as nested objects."""

    path: str
    layers: tuple[Layer, ...]
    edges: Mapping[tuple[str, str], tuple[str, str]]  # layer and end that take -> layer and end that give
    constants: tuple[Constant, ...]
    rt_info: Mapping[str, Any]

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """Those of cabochon, by the keys that graphs have."""
        said = self.rt_info.get("cabochon")
        found = said.items() if isinstance(said, Mapping) else ()
        return {f"cabochon.{key}": value for key, value in found if isinstance(value, str)}

    @property
    def version(self) -> str:
        """The version of OpenVINO that wrote it, such as 2026.4.1; "" where it does not say."""
        said = self.rt_info.get("OpenVINO Runtime")
        return said.partition("-")[0] if isinstance(said, str) else ""

    @cached_property
    def axes(self) -> Mapping[str, tuple[str, ...]]:
        """What the dimensions of each port are called, as the property `axes` says line by line."""
        lines = (line.partition(":") for line in self.properties.get("cabochon.axes", "").splitlines())
        return {
            name.strip(): tuple(d.strip() for d in said.split(",") if d.strip()) for name, _, said in lines
        }

    @cached_property
    def ports(self) -> Ports:
        """Inputs and outputs, in order. Dimensions of any size are called as `axes` says, "" where it does not."""
        outer = [layer for layer in self.layers if not layer.inner]
        inputs = [self._input(layer) for layer in outer if layer.type == "Parameter"]
        outputs = [self._output(layer) for layer in outer if layer.type == "Result"]
        return Ports({p.name: p for p in inputs}, {p.name: p for p in outputs})

    def _input(self, layer: Layer) -> Port:
        slot = next(iter(layer.gives.values()), Slot(""))
        name = layer.name if layer.name in slot.names else next(iter(slot.names), layer.name)
        return self._port(name, spelled(layer.said.get("element_type", slot.dtype)), slot.dims)

    def _output(self, layer: Layer) -> Port:
        slot = next(iter(layer.takes.values()), Slot(""))
        made = self.source(layer)
        names = _names(layer.names) or (made.names if made else ())
        return self._port(next(iter(names), layer.name), slot.dtype, slot.dims)

    def _port(self, name: str, dtype: str, dims: tuple[int, ...]) -> Port:
        axes = self.axes.get(name, ())
        said = axes if len(axes) == len(dims) else ("",) * len(dims)
        shape = tuple(("" if s.isdecimal() else s) if d < 0 else d for d, s in zip(dims, said, strict=True))
        return Port(name, dtype, shape)

    def source(self, layer: Layer) -> Slot | None:
        """The end that the first input of a layer is taken from; None where no edge leads there."""
        given = self.edges.get((layer.ident, next(iter(layer.takes), "")))
        maker = next((m for m in self.layers if not m.inner and m.ident == given[0]), None) if given else None
        return maker.gives.get(given[1]) if maker and given else None


def weights_of(name: str) -> str:
    """The file of weights that belongs to an IR file, relative to its folder."""
    return PurePosixPath(name).with_suffix(".bin").name


def read_net(root: Path, name: str) -> Net:
    """Read an IR file. Raises PackageError for what is none; entities are not expanded."""
    file = root / name
    if (size := file.stat().st_size) > _MOST:
        raise PackageError(f"it has {size} bytes; expected at most {_MOST}", at=name, remedy=REMEDY)
    return _Reader(name).read(file.read_bytes())


class _Reader:
    """The handlers of a parser, and what they gather. Dimensions are read of the model's own ports alone."""

    def __init__(self, at: str) -> None:
        self.at, self.path = at, list[str]()
        self.layers, self.open = list[Layer](), list[Layer]()
        self.edges = dict[tuple[str, str], tuple[str, str]]()
        self.constants = list[Constant]()
        self.info: list[dict[str, Any]] = [{}]
        self.telling = False  # inside of the model's rt_info
        self.slot: Slot | None = None
        self.number = ""
        self.parser = expat.ParserCreate()

    def read(self, text: bytes) -> Net:
        """The file. Raises PackageError for what is none."""
        parser = self.parser
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.StartDoctypeDeclHandler = self._doctype
        try:
            parser.Parse(text, True)
        except (expat.ExpatError, ValueError) as error:
            raise self._fault(f"it is no XML: {error}") from None
        outer = Counter(layer.ident for layer in self.layers if not layer.inner)
        if twice := [ident for ident, count in outer.items() if count > 1]:
            raise self._fault(f"{len(twice)} layers have the number of another, such as {twice[0]!r}")
        return Net(self.at, tuple(self.layers), self.edges, tuple(self.constants), self.info[0])

    def _fault(self, what: str) -> PackageError:
        return PackageError(what, at=self.at, remedy=REMEDY)

    def _doctype(self, *_: object) -> None:
        raise self._fault("it declares a document type; expected none")

    def _start(self, tag: str, said: dict[str, str]) -> None:
        path = self.path
        path.append(tag)
        if self.telling:
            self._tell(tag, said)
            return
        match tag:
            case "dim":
                if self.slot is not None:
                    self.number, self.parser.CharacterDataHandler = "", self._said
            case "port":
                self._port(said)
            case "edge":
                if len(path) == 3:
                    taken, given = said.get("to-layer", ""), said.get("from-layer", "")
                    self.edges[taken, said.get("to-port", "")] = given, said.get("from-port", "")
            case "layer":
                self._layer(said)
            case "data":
                self._data(said)
            case _:
                self._other(tag, said)

    def _other(self, tag: str, said: dict[str, str]) -> None:
        if len(self.path) == 1 and tag != "net":
            raise self._fault(f"its top is <{tag}>; expected <net>")
        self.telling = self.path == ["net", "rt_info"]
        self._deep()

    def _tell(self, tag: str, said: dict[str, str]) -> None:
        inner: dict[str, Any] = {}
        self.info[-1][said.get("name", tag) if tag == "info" else tag] = said.get("value", inner)
        self.info.append(inner)
        self._deep()

    def _deep(self) -> None:
        if len(self.path) > _DEEP:
            raise self._fault(f"elements are nested deeper than {_DEEP}")

    def _layer(self, said: dict[str, str]) -> None:
        ident, name = said.get("id", ""), said.get("name", said.get("id", ""))
        known = ident, name, said.get("type", ""), said.get("version", "")
        layer = Layer(*known, bool(self.open), said.get("output_names", ""))
        self.layers.append(layer)
        self.open.append(layer)

    def _data(self, said: dict[str, str]) -> None:
        layer = self.open[-1] if self.open else None
        if layer:
            layer.said |= said
        if "offset" in said or "size" in said:
            dtype, shape = said.get("element_type", ""), _shape(said.get("shape", ""))
            where = layer.name if layer else ""
            self.constants.append(Constant(where, said.get("offset"), said.get("size"), dtype, shape))

    def _port(self, said: dict[str, str]) -> None:
        layer = self.open[-1] if self.open else None
        if layer is None or layer.inner or (not (own := layer.type in _OWN) and "names" not in said):
            return
        slot = Slot(spelled(said.get("precision", "")), _names(said.get("names", "")))
        (layer.takes if self.path[-2] == "input" else layer.gives)[said.get("id", "")] = slot
        self.slot = slot if own else None

    def _end(self, tag: str) -> None:
        self.path.pop()
        if self.telling:
            self.telling = len(self.path) > 1
            if self.telling:
                self.info.pop()
        elif tag == "dim" and self.slot is not None:
            self.slot.dims = (*self.slot.dims, _dim(self.number))
            self.parser.CharacterDataHandler = None
        elif tag == "port":
            self.slot = None
        elif tag == "layer":
            layer = self.open.pop()
            if layer.type == "Const" and not layer.said.keys() & {"offset", "size"}:
                self.constants.append(Constant(layer.name, None, None, "", ()))

    def _said(self, text: str) -> None:
        if len(self.number) < 20:
            self.number += text


def _names(text: str) -> tuple[str, ...]:
    """The names of a tensor, which stand between commas; one inside of a name has a backslash before it."""
    parts = re.split(r"(?<!\\),", text)
    return tuple(part.replace("\\,", ",").strip() for part in parts if part.strip())


def _shape(text: str) -> tuple[int, ...]:
    """ "2,3" -> (2, 3); a dimension that is none is -1."""
    return tuple(_dim(part) for part in text.split(",") if part.strip())


def _dim(text: str) -> int:
    part = text.strip()
    return int(part) if part.isascii() and part.isdecimal() and len(part) < 20 else -1
