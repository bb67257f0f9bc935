"""Bicubic resizing of 8-bit images, antialiased, to the very bit that transformers' image processor gives.

That processor resizes with torchvision, which means ATen's separable kernel for uint8: Keys' cubic with a = -0.5,
stretched by the scale where the image shrinks; weights in 16-bit integers; columns first, then rows, each rounded to 8
bits. Pillow spells the same filter with 22-bit weights and does not always go columns first: on noise it is off by one
in half a percent of the values, and where it goes rows first by up to 12 of 255 in a third of them. So this is not
left to Pillow.
"""

import numpy as np

__all__ = ["resized"]

_REACH = 2.0  # of the cubic, in pixels of the smaller of the two images
_BLOCK = 32  # outputs computed by one product; more waste zeros, fewer waste calls


def resized(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """uint8 [H, W, C] -> uint8 [height, width, C]."""
    planes = np.ascontiguousarray(image.transpose(2, 0, 1))  # [C, H, W]
    planes = _resampled(planes, width)
    planes = _resampled(np.ascontiguousarray(planes.swapaxes(1, 2)), height)  # [C, width, height]
    return np.ascontiguousarray(planes.transpose(2, 1, 0))


def _resampled(x: np.ndarray, count: int) -> np.ndarray:
    """The last axis of uint8 [C, R, n] brought to `count`. Products are exact: integers below 2^53 in float64."""
    size = x.shape[-1]
    if size == count:
        return x
    first, weights, bits = _weights(size, count)
    rows = x.reshape(-1, size)
    result = np.empty((len(rows), count), np.uint8)
    for start in range(0, count, _BLOCK):
        block = slice(start, min(start + _BLOCK, count))
        low, band = _band(first[block], weights[block], size)
        sums = rows[:, low : low + len(band)].astype(np.float64) @ band
        result[:, block] = np.clip(np.floor((sums + 2.0 ** (bits - 1)) / 2.0**bits), 0, 255)
    return result.reshape(*x.shape[:-1], count)


def _band(first: np.ndarray, weights: np.ndarray, size: int) -> tuple[int, np.ndarray]:
    """Where the inputs of these outputs begin, and [inputs, outputs] of weights, zero where an output has none."""
    low = int(first[0])
    dense = np.zeros((int(first[-1]) - low + weights.shape[1], len(first)))
    dense[first - low + np.arange(weights.shape[1])[:, None], np.arange(len(first))] = weights.T
    return low, dense[: size - low]


def _weights(size: int, count: int) -> tuple[np.ndarray, np.ndarray, int]:
    """First input of each of `count` outputs, integer weights [count, taps], and the bits that they are shifted by."""
    scale = size / count
    stretch = max(scale, 1.0)
    reach = _REACH * stretch
    centre = scale * (np.arange(count) + 0.5)
    first = np.maximum((centre - reach + 0.5).astype(np.int64), 0)
    last = np.minimum((centre + reach + 0.5).astype(np.int64), size)  # exclusive
    taps = first[:, None] + np.arange((last - first).max())
    cubic = np.where(taps < last[:, None], _cubic((taps - centre[:, None] + 0.5) / stretch), 0.0)
    weights, bits = _integers(cubic / cubic.sum(1, keepdims=True))
    return first, weights, bits


def _cubic(x: np.ndarray) -> np.ndarray:
    """Keys' cubic convolution kernel with a = -0.5."""
    x = np.abs(x)
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


def _integers(weights: np.ndarray) -> tuple[np.ndarray, int]:
    """Weights times 2^bits, rounded half away from zero; bits as many as keep the largest in 16 bits, at most 22."""
    largest = weights.max()
    bits = next((n for n in range(22) if int(0.5 + largest * 2.0 ** (n + 1)) >= 2**15), 22)
    return np.trunc(weights * 2.0**bits + np.copysign(0.5, weights)), bits
