"""In which precisions a graph holds its weights, and what the document's `quantization` says of that.

Read off the graph: from the operators that read weights in blocks, and the types of all others.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import onnx_ir as ir

from cabochon.metadata.document import Quantization, QuantizationOverride

__all__ = ["Weights", "quantization", "quantization_note", "read_weights", "rows", "whole"]

# What belongs to a weight in blocks is called after it. The weights of experts have no `.weight` behind their names.
_PART = re.compile(r"(.+(?:\.weight|\.experts\.\w+_proj(?:\.rows\d+)?))_(\w+)")
_LAYER = re.compile(r"\blayers\.(\d+)\.")
_SPELLED = {
    "com.microsoft::MatMulNBits": 4,
    "com.microsoft::GatherBlockQuantized": 4,
}  # and their default of `bits`
_APART = {"BitwiseAnd", "BitShift"}  # what parts the two numbers of a byte


@dataclass(frozen=True)
class Weights:
    """How many numbers of a graph's weights have which precision, in the words of the document: "int4", "float16".

    By layer; None are those of no layer. "nf4" is no word of the format's own list, which is open: its numbers are no
    integers. `names`: of the weights.
    """

    layers: Mapping[int | None, Mapping[str, int]] = field(
        default_factory=dict[int | None, Mapping[str, int]]
    )
    names: frozenset[str] = frozenset()

    @property
    def quantized(self) -> bool:
        """Whether any weight is in blocks."""
        return any(not name.endswith(("float16", "float32")) for name in _sum(self.layers.values()))


class Holder(Protocol):
    """A graph under the name of its component."""

    @property
    def name(self) -> str:
        """Of the component."""
        ...

    @property
    def weights(self) -> Weights:
        """What it holds."""
        ...


def read_weights(model: ir.Model) -> Weights:
    """The weights of a traced or loaded graph: what it holds outside of itself. Ids are none."""
    initializers = model.graph.initializers
    found: dict[int | None, Counter[str]] = {}
    seen, parts = set[str](), dict[str, list[ir.Value]]()
    for name, value in initializers.items():
        parts.setdefault(whole(name), []).append(value)
    for name, value in initializers.items():
        tensor, weight = value.const_value, whole(name)
        if weight in seen or not weight or not isinstance(tensor, ir.ExternalTensor | ir.LazyTensor):
            continue
        if f"{weight}_scales" in initializers:
            precision, bits = _blocks(parts[weight])
            count = tensor.nbytes * 8 // bits
        elif tensor.dtype.is_floating_point():
            precision, count = tensor.dtype.numpy().name, tensor.size
        else:
            continue
        seen.add(weight)
        layer = _LAYER.search(weight)
        found.setdefault(int(layer[1]) if layer else None, Counter())[precision] += count
    return Weights(found, frozenset(seen))


def whole(initializer: str) -> str:
    """The weight whose numbers, or whose codes, an initializer is another sight of; "" for scales and zero points."""
    part = _PART.fullmatch(initializer)
    if part is None:
        return initializer
    return "" if part[2].startswith(("scales", "zero_points")) else part[1]


def rows(weight: ir.Value) -> int:
    """How many rows the weight of a product has, [out, in], however it is stored."""
    assert weight.shape is not None
    shape = [int(str(size)) for size in weight.shape]
    for node, _ in weight.uses():
        if "N" in node.attributes:  # of products with blocks, which may lie flat
            return node.attributes["N"].as_int()
        if node.op_type == "DequantizeLinear":  # whose result is multiplied as it is: [in, out]
            return shape[-1]
    return shape[0]


def quantization(graphs: Iterable[Holder]) -> Quantization | None:
    """The precision of most weights of all `graphs`, and those of components and layers whose most differ.

    None where no weight is in blocks.
    """
    held = {graph.name: graph.weights for graph in graphs}
    if not any(weights.quantized for weights in held.values()):
        return None
    default = _most(_sum(layer for weights in held.values() for layer in weights.layers.values()))
    overrides = tuple(
        override for name, weights in held.items() for override in _overrides(name, weights, default)
    )
    return Quantization(default=default, overrides=overrides or None)


def quantization_note(said: Quantization) -> tuple[str, ...]:
    """The comment above `quantization` in an annotated copy."""
    others = (
        " Overrides: components, and layers of one, most of whose weights differ." if said.overrides else ""
    )
    return (
        f"{said.default}: what most weights are stored as, counted in the graphs.{others}",
        "It has no keys for blocks, zero points, scales and roles: README.md and build.recipe of provenance.json say",
        "them, and the operators of the graphs hold them. Types of ports are those of activations.",
    )


def _overrides(name: str, weights: Weights, default: str) -> Iterator[QuantizationOverride]:
    total = _sum(weights.layers.values())
    if not total:
        return
    if (most := _most(total)) != default:
        yield QuantizationOverride(component=name, precision=most)
    others: dict[str, list[int]] = {}
    for layer, counts in weights.layers.items():
        if layer is not None and _most(counts) != most:
            others.setdefault(_most(counts), []).append(layer)
    for precision, layers in others.items():
        yield QuantizationOverride(layers=tuple(sorted(layers)), component=name, precision=precision)


def _most(counts: Mapping[str, int]) -> str:
    return max(counts, key=lambda precision: counts[precision])


def _sum(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total = Counter[str]()
    for each in counts:
        total.update(each)
    return total


def _blocks(sights: Iterable[ir.Value]) -> tuple[str, int]:
    """The precision of a weight in blocks and the bits of a number, by the operators that read any sight of it."""
    for value in sights:
        for node, _ in value.uses():
            if node.op_type == "MatMulBnb4":
                return "nf4", 4
            if (default := _SPELLED.get(f"{node.domain}::{node.op_type}")) is not None:
                bits = node.attributes.get("bits")
                return _integers(default if bits is None else bits.as_int())
            if node.op_type == "DequantizeLinear" and value.dtype is not None:
                return _integers(int(value.dtype.bitwidth))
            if node.op_type == "Gather" and any(user.op_type in _APART for user, _ in node.outputs[0].uses()):
                return _integers(4)
    return _integers(8)


def _integers(bits: int) -> tuple[str, int]:
    return f"int{bits}", bits
