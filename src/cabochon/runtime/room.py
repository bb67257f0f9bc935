"""Memory for caches that grow: two sides by turns, each enlarged now and then."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

from cabochon.runtime.host import held


class Room:
    """Where a step writes the caches in host memory: never over the past it reads, seldom into new memory.

    The past lies on one side, or elsewhere; the other side is free. Left to itself onnxruntime allocates every step's
    present anew, one column larger than any block it has free: at 32k tokens its arena was measured at 4.3 times the
    caches, two sides at 2.1 times.
    """

    def __init__(self, dtype: np.dtype, caches: int) -> None:
        """Nothing is allocated yet."""
        self._dtype = dtype
        self._sides = [[np.empty(0, dtype)] * caches for _ in range(2)]

    def on(self, side: int, shapes: Iterable[Sequence[int]]) -> list[ort.OrtValue]:
        """A value of each cache's shape on side 0 or 1; its memory is an eighth larger when it must be new."""
        stretches, made = self._sides[side], list[ort.OrtValue]()
        for i, shape in enumerate(shapes):
            count = math.prod(shape)
            if stretches[i].size < count:
                stretches[i] = np.empty(count + count // 8, self._dtype)
            made.append(held(np.ndarray(shape, self._dtype, stretches[i])))
        return made

    def shortened(self, i: int, value: Any, columns: int) -> ort.OrtValue:
        """The first columns of cache `i`, [1, 1, columns, size], where it lies; copied where that is on no side."""
        shape = (1, 1, columns, value.shape()[3])
        for stretches in self._sides:
            if stretches[i].ctypes.data == value.data_ptr():
                return held(np.ndarray(shape, self._dtype, stretches[i]))
        return held(value.numpy()[:, :, :columns].copy())
