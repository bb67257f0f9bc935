"""Weights to blocks and back, piece by piece on all processors."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np

from cabochon.errors import PackingError

from . import kernel
from .nf4 import nf4_codes, nf4_values
from .nibbles import codes_in, in_bytes
from .scheme import Packed, Scheme
from .search import deviations, fit, stored

__all__ = ["compiled", "nearest", "pack", "unpack"]

_PIECE = 1 << 18  # numbers at a time
_Out = tuple[np.ndarray, ...]


def compiled() -> bool:
    """Whether the compiled path is used. It gives the same bytes, faster."""
    return kernel.loaded() is not None


def pack(values: np.ndarray, scheme: Scheme, importance: np.ndarray | None = None) -> Packed:
    """`values` bf16, f16 or f32 [rows, columns] in blocks.

    importance: f32 [columns], mean squares of what each column is multiplied with: the search then has the least
    Σ importance (unpacked - value)² of a block, else of Σ (√(mean value²) + |value|) (unpacked - value)². Rows
    are independent of each other (NF4: flat blocks are), and the bytes are the same wherever this runs.
    Every code is the nearest one for the scale and zero point that are stored, ties to even.
    Raises PackingError for NaN, infinity, and numbers that no scale of the scheme's type can hold.
    """
    if scheme.method == "nf4":
        x = _flat_blocks(values, scheme)
        out = np.empty((len(x), scheme.block // 2), np.uint8), np.empty(len(x), scheme.scale_type)
        _each(x, scheme, None, out)
        return Packed(out[0].reshape(-1), out[1], None)
    shape = (len(values), scheme.blocks(values.shape[1]))
    codes = np.empty((*shape, scheme.block * scheme.bits // 8), np.uint8)
    scales, zero_points = np.empty(shape, scheme.scale_type), np.empty(shape, np.uint8)
    _each(values, scheme, _importance(importance, values.shape[1]), (codes, scales, zero_points))
    return Packed(
        codes, scales, None if scheme.symmetric else in_bytes(zero_points, scheme.bits, scheme.middle)
    )


def unpack(packed: Packed, scheme: Scheme, columns: int) -> np.ndarray:
    """f32 [rows, columns]: (code - zero point) * scale, each one product in f32. `packed` may be rows of a weight."""
    if scheme.method == "nf4":
        values = nf4_values(packed, scheme)
        return values[: len(values) // columns * columns].reshape(-1, columns)
    codes = codes_in(packed.codes, scheme.bits, scheme.block).astype(np.int16)
    values = (codes - _zero_points(packed, scheme)).astype(np.float32)
    values *= packed.scales.astype(np.float32)[..., None]
    return values.reshape(len(values), -1)[:, :columns]


def nearest(values: np.ndarray, packed: Packed, scheme: Scheme) -> np.ndarray:
    """The codes that `values` have with the scales and zero points of `packed`: equal to `packed.codes`."""
    if scheme.method == "nf4":
        x = np.asarray(_flat_blocks(values, scheme), np.float32)
        return nf4_codes(x, packed.scales.astype(np.float32)).reshape(-1)
    z = np.broadcast_to(_zero_points(packed, scheme), (*packed.scales.shape, 1)).reshape(-1)
    s, z = packed.scales.astype(np.float32).reshape(-1), z.astype(np.float32)
    codes = (deviations(_lanes(values, scheme), s, z, scheme) + z).astype(np.uint8)
    return in_bytes(codes.T.reshape(*packed.scales.shape, scheme.block), scheme.bits)


def _zero_points(packed: Packed, scheme: Scheme) -> np.ndarray:
    """int16 [rows, blocks, 1]."""
    if packed.zero_points is None:
        return np.full((1, 1, 1), scheme.middle, np.int16)
    return codes_in(packed.zero_points, scheme.bits, packed.scales.shape[1]).astype(np.int16)[..., None]


def _each(values: np.ndarray, scheme: Scheme, importance: np.ndarray | None, out: _Out) -> None:
    """Packs rows into `out`, in pieces on all processors."""
    step = max(1, _PIECE // max(1, values.shape[1]))
    cuts = [slice(start, start + step) for start in range(0, len(values), step)]
    pieces = [(values[cut], scheme, importance, tuple(array[cut] for array in out)) for cut in cuts]
    if len(pieces) == 1:
        _piece(*pieces[0])
    else:
        for done in [_pool().submit(_piece, *piece) for piece in pieces]:
            done.result()


@cache
def _pool() -> ThreadPoolExecutor:
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return ThreadPoolExecutor(len(usable), thread_name_prefix="cabochon-packing")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive it


def _piece(values: np.ndarray, scheme: Scheme, importance: np.ndarray | None, out: _Out) -> None:
    library, limit = kernel.loaded(), _limit(scheme)
    if library is None or values.dtype.name not in kernel.TYPES:
        x = np.asarray(values, np.float32)
        _require(x, scheme)
        (_nf4_piece if scheme.method == "nf4" else _numpy_piece)(x, scheme, importance, out)
        return
    x = np.ascontiguousarray(values)
    if scheme.method == "nf4":
        good = kernel.nf4(library, x, scheme, limit, out)
    else:
        good = kernel.blocks(library, x, scheme, limit, importance, out)
    if not good:
        _require(np.asarray(values, np.float32), scheme)


def _numpy_piece(x: np.ndarray, scheme: Scheme, importance: np.ndarray | None, out: _Out) -> None:
    weights = None if importance is None else _lanes(np.broadcast_to(importance, x.shape), scheme)
    found = fit(_lanes(x, scheme), scheme, weights)
    codes, scales, zero_points = out
    shape = (*scales.shape, scheme.block)
    codes[:] = in_bytes((found.d + found.z).astype(np.uint8).T.reshape(shape), scheme.bits)
    scales[:] = found.s.reshape(scales.shape)
    zero_points[:] = found.z.reshape(scales.shape)


def _nf4_piece(x: np.ndarray, scheme: Scheme, _: np.ndarray | None, out: _Out) -> None:
    s = stored(np.abs(x).max(axis=1), scheme)
    out[0][:], out[1][:] = nf4_codes(x, s), s


def _flat_blocks(values: np.ndarray, scheme: Scheme) -> np.ndarray:
    """[blocks, block], filled up with zeros."""
    flat = values.reshape(-1)
    missing = -len(flat) % scheme.block
    if missing:
        flat = np.concatenate([flat, np.zeros(missing, flat.dtype)])
    return flat.reshape(-1, scheme.block)


def _lanes(x: np.ndarray, scheme: Scheme) -> np.ndarray:
    """f32 [block, rows * blocks] of [rows, columns], filled up with zeros."""
    rows, columns = x.shape
    padded = np.zeros((rows, scheme.blocks(columns) * scheme.block), np.float32)
    padded[:, :columns] = x
    return np.ascontiguousarray(padded.reshape(-1, scheme.block).T)


def _importance(importance: np.ndarray | None, columns: int) -> np.ndarray | None:
    """Brought to about 1 by a power of two: no product leaves f32, and no digit changes, whatever columns are cut."""
    if importance is None:
        return None
    found = np.asarray(importance, np.float64)
    if found.shape != (columns,) or not np.isfinite(found).all() or (found < 0).any():
        raise PackingError(
            f"importance of shape {list(found.shape)}; expected {columns} finite mean squares",
            remedy="measure it for this weight's input",
        )
    return np.ldexp(found, -np.frexp(found.max(initial=0))[1]).astype(np.float32)


def _require(x: np.ndarray, scheme: Scheme) -> None:
    if not np.isfinite(x).all():
        raise PackingError(
            "a number is NaN or infinite; expected finite numbers",
            remedy="download the file again, or ask who made the checkpoint: no model computes with it",
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
