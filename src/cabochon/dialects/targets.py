"""The table of targets, as data."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

from cabochon.errors import TargetError
from cabochon.packing.storage import Storage

if TYPE_CHECKING:
    from cabochon.dialects.standard import Standard

__all__ = [
    "TARGETS",
    "WEBGPU_BINDING",
    "WEBGPU_FILE",
    "Target",
    "layer_table",
    "row_tables",
    "whole_name",
]

WEBGPU_BINDING = 128 << 20  # maxStorageBufferBindingSize of the WebGPU specification, in bytes
# Most bytes of a file there: onnxruntime-web takes it as one ArrayBuffer, and Chromium's end here, 2 MiB before 2 GiB
# (onnxruntime.ai/docs/tutorials/web/large-models.html).
WEBGPU_FILE = 0x7FE0_0000


def layer_table(name: str, layer: int) -> str:
    """The name of one layer's share of the per-layer table `name`: `...{layer}.weight` for `...weight`."""
    return f"{name.removesuffix('weight')}{layer}.weight"


def row_tables(name: str, rows: int, row_bytes: int, binding: int | None) -> dict[str, slice]:
    """The tables in which the table `name` is stored, and the rows of each: as few as fit a binding.

    `...rows{first}.weight` for `...weight`, `...rows{first}` for a name of another end; the table itself where it fits.
    `binding`: bytes, None for any number.
    """
    if binding is None or rows * row_bytes <= binding:
        return {name: slice(0, rows)}
    step = max(binding // row_bytes, 1)
    stem = name.removesuffix("weight")  # which is all of it where a layer asks for its own
    stem, end = (stem, ".weight") if stem != name else (f"{name}.", "")
    return {f"{stem}rows{a}{end}": slice(a, min(a + step, rows)) for a in range(0, rows, step)}


def whole_name(part: str) -> str:
    """The name of the table that `row_tables` calls a part so; any other name as it is."""
    return re.sub(r"\.rows\d+(?=\.weight$|$)", "", part)


@dataclass(frozen=True)
class Target:
    """Where a package runs: the dialect its graph is written in, the execution provider, and what that can carry.

    `spelling` names the dialect's module and class, `drafting` those of the dialect of drafters and encoders where it
    is another.
    `table_per_layer` says whether the per-layer table is stored as one table for each layer.
    `precisions` are those that can be built, `kernels` those for which the provider has the kernels that do the work,
    and `tested` says that the tests run them there. `caveats` says, by precision, what to know before running one;
    `notes` hold for all of them. `binding` is the most bytes of one tensor that every adapter of the provider grants:
    larger tables are stored as several, by rows. `file_bytes` is the most bytes of one file of weights: what is more
    goes into further files, and an index beside the graph says where each weight lies.
    `head_multiple`: head sizes must be multiples of it. `mask` is the dialect's: where zeros may stand in it.
    `storage`: how it wants weights in blocks; `caveats` has what to know of a method under the method's name.
    `attention_caveats`: the precisions whose caveat speaks of the kernel of attention, which drafters do without.
    `converted`: it is what packages of another target are converted to, and each of its graphs has weights of its own.
    """

    name: str
    spelling: str
    provider: str
    precisions: frozenset[str]
    kernels: frozenset[str]
    tested: bool
    storage: Storage
    caveats: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    binding: int | None = None
    file_bytes: int | None = None
    head_multiple: int = 1
    table_per_layer: bool = False
    drafting: str = ""
    mask: str = "anywhere"
    attention_caveats: frozenset[str] = frozenset()
    converted: bool = False

    @property
    def dialect(self) -> "type[Standard]":
        """The class that traces graphs. It brings onnx_ir with it, which takes a second to import."""
        return _named(self.spelling)

    @property
    def drafter_dialect(self) -> "type[Standard]":
        """The class that traces drafters, and encoders: what attends to more than a causal kernel lets it."""
        return _named(self.drafting or self.spelling)

    def caveat(self, precision: str, *, drafter: bool = False, methods: Iterable[str] = ()) -> str | None:
        """What to know before running a package with activations in this precision, and weights in blocks."""
        known = () if drafter and precision in self.attention_caveats else (precision,)
        said = [self.caveats[name] for name in (*known, *sorted(methods)) if name in self.caveats]
        return "; ".join(said) or None

    def refusal(self, precision: str, head_sizes: Iterable[int], methods: Iterable[str] = ()) -> str:
        """Why the target cannot carry a model with these head sizes, activations in this precision, and weights put
        into blocks by these methods; "" where it can."""
        if precision not in self.precisions:
            return f"target {self.name!r} cannot carry {precision!r}: {self.caveats[precision]}"
        if odd := sorted(set(methods) - self.storage.methods):
            return f"target {self.name!r} cannot carry weights in {odd[0]!r}: {self.caveats[odd[0]]}"
        odd = sorted({size for size in head_sizes if size % self.head_multiple})
        if odd:
            return (
                f"target {self.name!r} takes head sizes that are multiples of {self.head_multiple}; this model has "
                + ", ".join(map(str, odd))
            )
        return ""

    def require(self, precision: str, head_sizes: Iterable[int] = (), methods: Iterable[str] = ()) -> None:
        """Raise TargetError unless the target can carry all of this; see `refusal`."""
        if reason := self.refusal(precision, head_sizes, methods):
            can = ", ".join([*sorted(self.precisions), *sorted(self.storage.methods)])
            raise TargetError(reason, remedy=f"choose another target; this one carries {can}")


def _named(spelling: str) -> "type[Standard]":
    module, name = spelling.split(".")
    return getattr(import_module(f"cabochon.dialects.{module}"), name)


_EMPTY_KEYS = (
    "GroupQueryAttention takes the empty keys of a layer that borrows its cache since onnxruntime 1.27; earlier "
    "releases refuse the graph"
)
_NO_BF16_CPU = (
    "no released onnxruntime has bf16 kernels for the CPU (MatMul, Mul, Attention and RMSNormalization are missing): "
    "the package is right but cannot be run there"
)

_NF4 = frozenset({"nf4"})
_SLOW_NF4 = "MatMulBnb4, the only kernel for NF4, takes over 15 times as long on the CPU as weights in blocks of 4 bits"
_NO_NF4 = "ai.onnx has no operator for it but a look-up that expands the weight in every run"
_BLOCKS = frozenset({"k-quant", "round"})

TARGETS = {
    target.name: target
    for target in (
        Target(
            "default",
            "default.Default",
            "CPUExecutionProvider",
            frozenset({"f32", "f16", "bf16"}),
            frozenset({"f32", "f16"}),
            True,
            # One row through 4 bits is a seventh faster without zero points (docs/recipes.md).
            Storage("f32", symmetric=True, methods=_BLOCKS | _NF4, symmetric_heads=True),
            {
                "bf16": _NO_BF16_CPU + "; for bf16 on a CPU build onnx-standard and run it with OpenVINO",
                "nf4": _SLOW_NF4,
            },
        ),
        Target(
            "onnx-standard",
            "standard.Standard",
            "CPUExecutionProvider",
            frozenset({"f32", "f16", "bf16"}),
            frozenset({"f32", "f16"}),
            True,
            Storage("f32", across=True, methods=_BLOCKS),
            {"bf16": _NO_BF16_CPU + "; OpenVINO's CPU plugin runs it", "nf4": _NO_NF4},
        ),
        Target(
            "cuda",
            "group_query.GroupQuery",
            "CUDAExecutionProvider",
            frozenset({"f32", "f16", "bf16"}),
            frozenset({"f16", "bf16"}),
            False,
            Storage("f16", symmetric=True, methods=_BLOCKS | _NF4),
            {
                "f32": "GroupQueryAttention has no f32 kernel for CUDA: this graph runs on the CPU provider only",
                "bf16": "onnxruntime hands no bf16 arrays to Python, so that cabochon's own runtime cannot drive it",
            },
            notes=(_EMPTY_KEYS,),
            head_multiple=8,
            mask="left-justified",
            table_per_layer=True,
            drafting="written_out.WrittenOut",
            attention_caveats=frozenset({"f32"}),
        ),
        Target(
            "webgpu",
            "group_query.WebGpu",
            "WebGpuExecutionProvider",
            frozenset({"f32", "f16"}),
            frozenset({"f32", "f16"}),
            False,
            Storage("f16", methods=_BLOCKS, half_tables=False),  # any f16 asks for the feature shader-f16
            {
                "nf4": "not carried: onnxruntime-web 1.30 has a kernel of MatMulBnb4, with which no package was tried",
                "bf16": "WebGPU has no bf16 type",
                "f16": "the adapter must offer the feature shader-f16",
            },
            notes=(_EMPTY_KEYS,),
            head_multiple=8,
            mask="left-justified",
            table_per_layer=True,
            drafting="written_out.WebGpuWrittenOut",
            binding=WEBGPU_BINDING,
            file_bytes=WEBGPU_FILE,
        ),
    )
}
