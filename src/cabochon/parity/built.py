"""How a package computes: in which type, on which weights in blocks, and with which rounding of its kernels."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cabochon.errors import ParityError
from cabochon.evidence import activations
from cabochon.parity.dequantized import Dequantized, read_dequantized
from cabochon.parity.reference import FLOATS
from cabochon.parity.replaced import INT8

__all__ = ["Built", "built"]

DIRECT = "the {what} itself on onnxruntime CPU"
TWIN = (
    "f32 twin of the {what} on onnxruntime CPU: its own graphs and bytes, every {halves} value widened to f32 "
    "(exact){nowhere}; reference in f32 arithmetic on the weights {weights}"
)
NOWHERE = ", and kernels of weights in blocks asked to round nothing to int8"
LOADED, STANDING = "it loaded in {floats}", "that the codes, scales and zero points of the package stand for"
BESIDE = (
    "f32 twin of the {what} on onnxruntime CPU; reference in bf16 arithmetic: mostly the reference's own rounding, "
    "reported and not judged"
)


@dataclass(frozen=True)
class Built:
    """floats: the type of activations and of weights that are not in blocks. what: what it is called in evidence."""

    floats: str
    weights: Dequantized
    what: str = "package"
    runtime: str | None = None  # "OpenVINO" for its IR; None for ONNX graphs, which onnxruntime runs

    @property
    def quantized(self) -> bool:
        """True where any weight is in blocks."""
        return bool(self.weights.weights)

    @property
    def own(self) -> str:
        """The arithmetic of the package itself on a CPU: its type, and whether kernels round to int8."""
        return f"{self.floats}{INT8}" if self.weights.rounds else self.floats

    @property
    def arithmetics(self) -> tuple[str, ...]:
        """Those of the reference: the package's own and f32, last."""
        return tuple(dict.fromkeys((self.own, "f32")))

    @property
    def runs(self) -> bool:
        """True where onnxruntime runs it on a CPU."""
        return self.floats != "bf16"

    @property
    def rough(self) -> bool:
        """True where a package in f32 has rows in blocks, whose scales, and what is looked up by them, are f16: its
        own figures are reported, and its twin's are judged."""
        return self.own == "f32" and any(not weight.multiplied for weight in self.weights.weights)

    @property
    def direct(self) -> str:
        """How the package itself is run."""
        if self.runtime:
            from cabochon.runtime.openvino_graph import EXACT, library, named

            asked = ", ".join(f"{name} {value}" for name, value in EXACT.items())
            return f"the {self.what} itself on {named(library())}, asked for {asked}"
        return DIRECT.format(what=self.what)

    @property
    def twin(self) -> str:
        """How its f32 twin is run."""
        weights = STANDING if self.quantized else LOADED.format(floats=self.floats)
        nowhere = NOWHERE if self.weights.rounds else ""
        halves = "half-precision" if self.floats == "f32" else self.floats
        return TWIN.format(what=self.what, halves=halves, nowhere=nowhere, weights=weights)

    @property
    def beside(self) -> str:
        """How a twin is compared with the reference in halves."""
        return BESIDE.format(what=self.what)


def built(metadata: Mapping[str, str], *graphs: Path, what: str = "package") -> Built:
    """From the metadata of a package's decoder and all its graphs.

    Raises ParityError where no type is named, or weights lie in blocks of a form that is not known.
    """
    floats = activations(metadata)
    if floats not in FLOATS:
        raise ParityError(
            "names no precision that can be compared; expected a package of cabochon in f32, f16 or bf16, or with "
            "weights in blocks and activations in one of these",
            at=str(graphs[0]),
        )
    return Built(floats, read_dequantized(*graphs), what)
