"""What the table of targets says of kernels, held to the tables of kernels."""

import pytest

from cabochon.dialects import TARGETS
from cabochon.kernels import PROVIDERS, QUIRKS

MICROSOFT = "com.microsoft"
ATTENTION = {"default": ("", "Attention", 23), "onnx-standard": ("", "Attention", 23)}
GROUPED = (MICROSOFT, "GroupQueryAttention", 1)
KINDS = {"f32": "float", "f16": "float16", "bf16": "bfloat16"}


@pytest.mark.parametrize("precision", KINDS)
@pytest.mark.parametrize("target", ["default", "onnx-standard", "cuda", "webgpu"])
def test_precisions_with_kernels_are_those_whose_attention_has_one(target: str, precision: str) -> None:
    row, (domain, name, since) = TARGETS[target], ATTENTION.get(target, GROUPED)
    kind = frozenset({KINDS[precision]})
    given = {"T": kind, "T_CACHE": kind, "T1": kind, "T2": kind, "U": frozenset({"bool"})}
    assert PROVIDERS[row.provider].has((domain, name), since, given) is (precision in row.kernels)


def test_methods_have_the_kernels_they_need() -> None:
    for target in ("default", "cuda", "webgpu"):
        row = TARGETS[target]
        for method, name in (("k-quant", "MatMulNBits"), ("nf4", "MatMulBnb4")):
            there = (MICROSOFT, name) in PROVIDERS[row.provider].kernels
            assert there or method not in row.storage.methods, (target, method)


def test_what_webgpu_computes_wrongly_is_known_of_no_other_provider_of_onnxruntime() -> None:
    names = {
        quirk.name for quirk in QUIRKS if quirk.rule == "RUN011" and quirk.kind == "wrong" and quirk.measured
    }
    assert names == {"borrowed-cache-with-window", "soft-cap-not-applied"}
    for provider in ("CPUExecutionProvider", "CUDAExecutionProvider", "wasm"):
        assert not names & {quirk.name for quirk in QUIRKS.of(provider)}
