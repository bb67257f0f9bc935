"""The variants as data: where each stands, and what it is made of."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from cabochon.errors import PackageError

__all__ = ["EPCONTEXT", "IR", "VARIANTS", "Variant", "chosen"]

IR, EPCONTEXT = "openvino-ir", "openvino-epcontext"


@dataclass(frozen=True)
class Variant:
    """One package. `folder`: where it stands below OUT, its name. `target`: a row of `dialects.TARGETS`, or what
    `cabochon.openvino.convert` makes of the package `needs`.

    `default`: whether it is built unless asked for, which are the 13 that are published and what they need.
    """

    folder: str
    precision: str
    target: str
    needs: str | None = None
    default: bool = False
    stateful: bool = False

    @property
    def converted(self) -> bool:
        """Whether it is made of another package, not of the checkpoint."""
        return self.needs is not None


def _of(precision: str, *targets: str, default: bool = False) -> list[Variant]:
    return [Variant(f"{precision}/{target}", precision, target, default=default) for target in targets]


# In the order in which they are built: first what others share files with. Beside the published ones there are
# f32 (what others are measured against; and for adapters without shader-f16), Q8 (nearest to f16 at half its size) and
# Q4_K_M for the other two targets (the smallest for a browser; the form that OpenVINO's are made of).
# Not among them: f32/cuda, bf16/webgpu, NF4/onnx-standard and NF4/webgpu, which their providers do not run, and
# Q4_K_M-uniform and Q4_K_M-mixed, which are there to be compared with.
VARIANTS = {
    variant.folder: variant
    for variant in (
        *_of("f16", "default", "onnx-standard", "cuda", "webgpu", default=True),
        *_of("bf16", "default", "onnx-standard", "cuda", default=True),
        *_of("Q4_K_M", "default", "cuda", default=True),
        *_of("NF4", "default", "cuda", default=True),
        *_of("Q4_K_M", "onnx-standard", default=True),  # only because IR is made of it
        Variant(IR, "Q4_K_M", IR, "Q4_K_M/onnx-standard", default=True),
        Variant(EPCONTEXT, "Q4_K_M", EPCONTEXT, IR, default=True),
        *_of("Q4_K_M", "webgpu"),
        *_of("Q8", "default", "onnx-standard", "cuda", "webgpu"),
        *_of("f32", "default", "onnx-standard", "webgpu"),
        Variant(f"{IR}-stateful", "Q4_K_M", IR, "Q4_K_M/onnx-standard", stateful=True),
    )
}


def chosen(only: Iterable[str] = (), *, every: bool = False) -> tuple[Variant, ...]:
    """The variants whose folders fit one of the patterns `only`, of all there are; without any the default ones, or
    `every` one; and what they need. In the order in which they are built.

    Raises PackageError for a pattern that fits none.
    """
    patterns = [pattern.rstrip("/") for pattern in only]
    for pattern in patterns:
        if not any(fnmatchcase(folder, pattern) for folder in VARIANTS):
            raise PackageError(
                f"{pattern!r} fits no variant; there are {', '.join(VARIANTS)}",
                remedy="* and ? stand for letters",
            )
    found = {
        folder
        for folder, variant in VARIANTS.items()
        if (any(fnmatchcase(folder, p) for p in patterns) if patterns else every or variant.default)
    }
    while needed := {variant.needs for f in found if (variant := VARIANTS[f]).needs} - found:
        found |= {name for name in needed if name}
    return tuple(variant for folder, variant in VARIANTS.items() if folder in found)
