"""NF4: each block is divided by its largest size, and each number becomes the nearest entry of a table.

The table and the layout are those of onnxruntime's MatMulBnb4 (and bitsandbytes): quantiles of a normal
distribution, of two codes in a byte the first is the high half. QLoRA, arXiv 2305.14314, appendix E.
"""

import numpy as np

from .scheme import Packed, Scheme
from .search import divided

__all__ = ["BETWEEN", "TABLE", "nf4_codes", "nf4_values"]

TABLE = np.array(
    [
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
        -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
        0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ],
    np.float32,
)  # fmt: skip
BETWEEN = (TABLE[1:] + TABLE[:-1]) * np.float32(0.5)


def nf4_codes(x: np.ndarray, s: np.ndarray) -> np.ndarray:
    """uint8 [blocks, block / 2] of f32 [blocks, block] and f32 scales [blocks]."""
    ratio = divided(x, s[:, None])
    codes = np.zeros(x.shape, np.uint8)
    for limit in BETWEEN:
        codes += ratio > limit
    return codes[:, 0::2] << 4 | codes[:, 1::2]


def nf4_values(packed: Packed, scheme: Scheme) -> np.ndarray:
    """f32 [blocks * block]."""
    codes = np.stack([packed.codes >> 4, packed.codes & 15], axis=-1).reshape(-1, scheme.block)
    return (TABLE[codes] * packed.scales.astype(np.float32)[:, None]).reshape(-1)
