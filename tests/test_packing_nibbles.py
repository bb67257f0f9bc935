"""Codes in bytes."""

import numpy as np
import pytest

from cabochon.packing.nibbles import codes_in, in_bytes


@pytest.mark.parametrize(
    ("codes", "bits", "stored"),
    [
        ([1, 2, 3, 4], 4, [0x21, 0x43]),
        ([1, 2, 15], 4, [0x21, 0x8F]),
        ([7], 4, [0x87]),
        ([1, 200], 8, [1, 200]),
    ],
)
def test_the_first_is_the_low_half_and_what_is_missing_is_filled(
    codes: list[int], bits: int, stored: list[int]
) -> None:
    found = in_bytes(np.array([codes], np.uint8), bits, fill=8)
    assert found.tolist() == [stored]
    assert codes_in(found, bits, len(codes)).tolist() == [codes]
