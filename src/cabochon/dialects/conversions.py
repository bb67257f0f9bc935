"""The table of targets whose packages are converted from those of another, as data."""

from dataclasses import dataclass, replace
from functools import cached_property

from cabochon.dialects.targets import TARGETS, Target

__all__ = ["CONVERSIONS", "Conversion"]


@dataclass(frozen=True)
class Conversion:
    """A target that no graph is traced for: a package of the target `of` is converted.

    `runtime` is what runs it; `tested` says that the tests run it there; `condition`: what must hold for it to run, ""
    where nothing must; `notes`: what to know.
    """

    name: str
    of: str
    runtime: str
    tested: bool
    condition: str = ""
    notes: tuple[str, ...] = ()

    @cached_property
    def target(self) -> Target:
        """What it carries: what the other does, and other things are to be known of it."""
        source = TARGETS[self.of]
        kept = {name: said for name, said in source.caveats.items() if name not in source.precisions}
        kept["bf16"] = "cabochon's own runtime cannot drive it: OpenVINO hands no bf16 arrays to Python"
        if self.condition:
            kept |= dict.fromkeys(sorted(source.precisions), self.condition)
        return replace(
            source,
            name=self.name,
            provider=self.runtime,
            kernels=source.precisions,
            tested=self.tested,
            caveats=kept,
            notes=self.notes,
            converted=True,
        )


CONVERSIONS = {
    conversion.name: conversion
    for conversion in (
        Conversion(
            "openvino-ir",
            "onnx-standard",
            "OpenVINO",
            True,
            notes=(
                "a processor that computes in bf16 does so, and activations are rounded to 8 bits where weights are in "
                "blocks, unless INFERENCE_PRECISION_HINT is f32 and DYNAMIC_QUANTIZATION_GROUP_SIZE 0",
            ),
        ),
        Conversion(
            "openvino-epcontext",
            "onnx-standard",
            "OpenVINOExecutionProvider",
            False,
            "needs a device that onnxruntime-ep-openvino lists, none of which is an AMD processor: no test has run it",
        ),
    )
}
