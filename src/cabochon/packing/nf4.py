"""NF4: each flat block is divided by its largest size, and each number becomes the nearest entry of a table.

The table and the layout are those of onnxruntime's MatMulBnb4 (and bitsandbytes): quantiles of a normal
distribution, of two codes in a byte the first is the high half. QLoRA, arXiv 2305.14314, appendix E.
"""

import numpy as np

from .scheme import Packed, Scheme

__all__ = ["TABLE", "pack_nf4", "unpack_nf4"]

TABLE = np.array(
    [
        -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
        -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0,
        0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
        0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
    ],
    np.float32,
)  # fmt: skip
_BETWEEN = (TABLE[1:] + TABLE[:-1]) * np.float32(0.5)


def pack_nf4(values: np.ndarray, scheme: Scheme) -> Packed:
    """`values` f32, any shape; its last block is filled up with zeros."""
    count = scheme.blocks(values.size)
    x = np.zeros((count, scheme.block), np.float32)
    x.reshape(-1)[: values.size] = values.reshape(-1)
    scales = np.abs(x).max(axis=1).astype(scheme.scale_type)
    size = scales.astype(np.float32)[:, None]
    ratio = x / np.where(size == 0, np.float32(1), size)
    codes = np.zeros(x.shape, np.uint8)
    for middle in _BETWEEN:
        codes += ratio > middle
    codes[size[:, 0] == 0] = 7
    flat = codes.reshape(-1)
    return Packed((flat[0::2] << 4) | flat[1::2], scales, None)


def unpack_nf4(packed: Packed, scheme: Scheme, columns: int) -> np.ndarray:
    """f32 [rows, columns]."""
    codes = np.stack([packed.codes >> 4, packed.codes & 15], axis=-1).reshape(-1, scheme.block)
    values = (TABLE[codes] * packed.scales.astype(np.float32)[:, None]).reshape(-1)
    return values[: len(values) // columns * columns].reshape(-1, columns)
