"""The table of targets, as data."""

from dataclasses import dataclass, field

from cabochon.dialects.default import Default
from cabochon.dialects.group_query import GroupQuery, WebGpu
from cabochon.dialects.standard import Standard
from cabochon.errors import TargetError

__all__ = ["TARGETS", "Target"]


@dataclass(frozen=True)
class Target:
    """Where a package runs: the dialect its graph is written in, the execution provider, and what that can carry.

    `precisions` are those that can be built; `caveats` says, by precision, what a user must know before running one.
    `notes` hold for all of them. `binding` is the most bytes of one tensor that every adapter of the provider grants.
    """

    name: str
    dialect: type[Standard]
    provider: str
    precisions: frozenset[str]
    caveats: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    binding: int | None = None

    def require(self, precision: str) -> None:
        """Raise TargetError unless the target can carry the precision."""
        if precision not in self.precisions:
            can = ", ".join(sorted(self.precisions))
            raise TargetError(
                f"target {self.name!r} cannot carry {precision!r}: {self.caveats[precision]}",
                remedy=f"choose one of {can} for this target",
            )


_EMPTY_KEYS = (
    "GroupQueryAttention takes the empty keys of a layer that borrows its cache since onnxruntime 1.27; earlier "
    "releases refuse the graph"
)
_NO_BF16_CPU = (
    "no released onnxruntime has bf16 kernels for the CPU (MatMul, Mul, Attention and RMSNormalization are missing): "
    "the package is right but cannot be run there"
)

TARGETS = {
    target.name: target
    for target in (
        Target(
            "default",
            Default,
            "CPUExecutionProvider",
            frozenset({"f32", "f16", "bf16"}),
            {"bf16": _NO_BF16_CPU + "; for bf16 on a CPU build onnx-standard and run it with OpenVINO"},
        ),
        Target(
            "onnx-standard",
            Standard,
            "CPUExecutionProvider",
            frozenset({"f32", "f16", "bf16"}),
            {"bf16": _NO_BF16_CPU + "; OpenVINO's CPU plugin runs it"},
        ),
        Target(
            "cuda",
            GroupQuery,
            "CUDAExecutionProvider",
            frozenset({"f16", "bf16", "f32"}),
            {
                "f32": "GroupQueryAttention has no f32 kernel for CUDA: this graph runs on the CPU provider only"
            },
            notes=(_EMPTY_KEYS,),
        ),
        Target(
            "webgpu",
            WebGpu,
            "WebGpuExecutionProvider",
            frozenset({"f32", "f16"}),
            {
                "bf16": "WebGPU has no bf16 type",
                "f16": "the adapter must offer the feature shader-f16",
            },
            notes=(_EMPTY_KEYS,),
            binding=128 << 20,  # maxStorageBufferBindingSize of the WebGPU specification
        ),
    )
}
