"""Weights to blocks and back."""

import numpy as np

from cabochon.errors import PackingError

from .bytes import codes_in, in_bytes
from .nf4 import pack_nf4, unpack_nf4
from .scheme import Packed, Scheme
from .search import fit

__all__ = ["compiled", "pack", "unpack"]

_PIECE = 1 << 18  # numbers at a time


def compiled() -> bool:
    """Whether the compiled path is used."""
    return False


def pack(values: np.ndarray, scheme: Scheme, importance: np.ndarray | None = None) -> Packed:
    """`values` bf16, f16 or f32 [rows, columns] in blocks.

    importance: f32 [columns], mean squares of what each column is multiplied with; the search then weighs errors by
    them. Rows are independent of each other (NF4: blocks are), and the bytes are the same wherever this runs.
    Raises PackingError for NaN, infinity, and numbers that no scale of the scheme's type can hold.
    """
    weights = _importance(importance, values.shape[1])
    if scheme.method == "nf4":
        x = np.ascontiguousarray(values, np.float32)
        _require(x, scheme)
        return pack_nf4(x, scheme)
    rows, columns = values.shape
    step = max(1, _PIECE // max(1, columns))
    pieces = [_piece(values[start : start + step], scheme, weights) for start in range(0, rows, step)]
    codes, scales, zero_points = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    return Packed(codes, scales, None if scheme.symmetric else zero_points)


def unpack(packed: Packed, scheme: Scheme, columns: int) -> np.ndarray:
    """f32 [rows, columns]: (code - zero point) * scale, each one product in f32. `packed` may be rows of a weight."""
    if scheme.method == "nf4":
        return unpack_nf4(packed, scheme, columns)
    rows, blocks = packed.scales.shape
    codes = codes_in(packed.codes, scheme.bits, scheme.block).astype(np.int16)
    zero = np.int16(scheme.middle)
    if packed.zero_points is not None:
        zero = codes_in(packed.zero_points, scheme.bits, blocks).astype(np.int16)[..., None]
    values = (codes - zero).astype(np.float32) * packed.scales.astype(np.float32)[..., None]
    return values.reshape(rows, -1)[:, :columns]


def _piece(
    values: np.ndarray, scheme: Scheme, importance: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x = np.asarray(values, np.float32)
    _require(x, scheme)
    rows, blocks = len(x), scheme.blocks(x.shape[1])
    weights = None if importance is None else _lanes(np.broadcast_to(importance, x.shape), scheme)
    found = fit(_lanes(x, scheme), scheme, weights)
    codes = (found.d + found.z).astype(np.uint8).T.reshape(rows, blocks, scheme.block)
    scales = found.s.astype(scheme.scale_type).reshape(rows, blocks)
    zero_points = found.z.astype(np.uint8).reshape(rows, blocks)
    return (
        in_bytes(np.ascontiguousarray(codes), scheme.bits),
        scales,
        in_bytes(zero_points, scheme.bits, scheme.middle),
    )


def _lanes(x: np.ndarray, scheme: Scheme) -> np.ndarray:
    """[rows, columns] as [block, rows * blocks], filled up with zeros."""
    rows, columns = x.shape
    padded = np.zeros((rows, scheme.blocks(columns) * scheme.block), np.float32)
    padded[:, :columns] = x
    return np.ascontiguousarray(padded.reshape(-1, scheme.block).T)


def _importance(importance: np.ndarray | None, columns: int) -> np.ndarray | None:
    """Divided by its mean, so that no product leaves f32."""
    if importance is None:
        return None
    found = np.asarray(importance, np.float64)
    if found.shape != (columns,) or not np.isfinite(found).all() or (found < 0).any():
        raise PackingError(
            f"importance of shape {list(found.shape)}; expected {columns} finite mean squares",
            remedy="measure it for this weight's input",
        )
    return (found / (found.mean() or 1)).astype(np.float32)


def _require(x: np.ndarray, scheme: Scheme) -> None:
    if not np.isfinite(x).all():
        raise PackingError(
            "a number is NaN or infinite; expected finite numbers", remedy="keep this weight float"
        )
    limit = _limit(scheme)
    if x.size and (largest := np.abs(x).max()) >= limit:
        raise PackingError(
            f"a number has the size {largest:.4g}; scales of type {scheme.scales} hold less than {limit:.4g}",
            remedy="store scales as f32, or keep this weight float",
        )


def _limit(scheme: Scheme) -> float:
    """Sizes from here on are refused: an f16 scale ends at 65504, and numbers unpacked may not leave f32."""
    if scheme.scales == "f32":
        return 2.0**127
    return 65504.0 * (1 if scheme.method == "nf4" else scheme.middle)
