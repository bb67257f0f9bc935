"""Codes in bytes: two of 4 bits share one, the first of them the low half."""

import numpy as np

__all__ = ["codes_in", "in_bytes"]


def in_bytes(codes: np.ndarray, bits: int, fill: int = 0) -> np.ndarray:
    """uint8 [..., n] of codes as uint8 [..., ceil(n * bits / 8)]; `fill` is the code that an odd n lacks."""
    if bits == 8:
        return codes
    if codes.shape[-1] % 2:
        codes = np.concatenate([codes, np.full_like(codes[..., :1], fill)], axis=-1)
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def codes_in(stored: np.ndarray, bits: int, count: int) -> np.ndarray:
    """The first `count` codes of the last axis, uint8 [..., count]: the inverse of `in_bytes`."""
    if bits == 8:
        return stored[..., :count]
    codes = np.stack([stored & 15, stored >> 4], axis=-1)
    return codes.reshape(*stored.shape[:-1], -1)[..., :count]
