"""A scheme says what it stores, and refuses what it is not."""

import pytest

from cabochon.errors import PackingError
from cabochon.packing import Scheme


@pytest.mark.parametrize(
    ("scheme", "bits", "said"),
    [
        (Scheme("k-quant", 4, 32, False), 4.625, "4 bits in blocks of 32, asymmetric, k-quant"),
        (Scheme("k-quant", 4, 32, True), 4.5, "4 bits in blocks of 32, symmetric, k-quant"),
        (Scheme("round", 8, 128, False, "f32"), 8.3125, "8 bits in blocks of 128, asymmetric, round"),
        (Scheme("nf4", 4, 64, True, "f32"), 4.5, "NF4 in blocks of 64"),
    ],
)
def test_it_says_what_it_stores(scheme: Scheme, bits: float, said: str) -> None:
    assert scheme.bits_per_weight == bits
    assert str(scheme) == said


@pytest.mark.parametrize(("columns", "blocks"), [(1, 1), (32, 1), (33, 2), (1536, 48)])
def test_a_row_has_whole_blocks(columns: int, blocks: int) -> None:
    assert Scheme("round", 4, 32, False).blocks(columns) == blocks


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("gptq", 4, 32, False), "method 'gptq'; expected 'k-quant' or 'round' or 'nf4'"),
        (("round", 3, 32, False), "bits 3; expected 4 or 8"),
        (("round", 4, 48, False), "block 48; expected 16 or 32 or 64 or 128"),
        (("nf4", 8, 64, True), "method 'nf4' has bits 8; expected 4"),
        (("nf4", 4, 64, False), "method 'nf4' has symmetric False; expected True"),
        (("round", 4, 32, False, "bf16"), "scales 'bf16'; expected 'f16' or 'f32'"),
    ],
)
def test_what_is_no_scheme_is_refused(wrong: tuple, said: str) -> None:
    with pytest.raises(PackingError, match=said):
        Scheme(*wrong)
