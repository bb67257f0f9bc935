"""The caches that an infer request of OpenVINO keeps between its runs, as values that can be handed back to it.

A run appends to them in the request. What a caller holds of a cache is its first columns, where they are, as long as
the request goes on from these; where it is made to go on from something else, the caller gets a copy of its own.
"""

from collections.abc import Sequence
from typing import Any
from weakref import WeakSet

import numpy as np

from cabochon.runtime.ports import Argument

__all__ = ["Remembered", "Variable"]


class Remembered:
    """The first columns of a cache [1, heads, columns, size]: a Value."""

    def __init__(self, variable: "Variable", columns: int) -> None:
        self.variable, self.columns = variable, columns
        self._own: np.ndarray | None = None

    @property
    def within(self) -> bool:
        """True where they still are in the request."""
        return self._own is None

    def shape(self) -> Sequence[int]:
        """[1, heads, columns, size]"""
        return self.variable.shape(self.columns)

    def numpy(self) -> np.ndarray:
        """A copy, as the next run may move what the request holds."""
        return self.variable.read(self.columns) if self._own is None else self._own

    def tensor_size_in_bytes(self) -> int:
        """Bytes."""
        return int(np.prod(self.shape())) * self.variable.dtype.itemsize

    def keep(self) -> None:
        """Take a copy before the request goes on from something else."""
        self._own = self.numpy()


class Variable:
    """One cache of a request: the ports it stands for, and what the request holds."""

    def __init__(self, state: Any, port: Argument, present: Argument, dtype: np.dtype, tensor: Any) -> None:
        """`state` is what the request calls one, `tensor` OpenVINO's class of that name."""
        self.port, self.present, self.dtype = port, present, dtype
        self._state, self._tensor = state, tensor
        self._columns: int | None = None  # that the request holds; None where it is not known
        self._given: np.ndarray | None = None
        self._seen: WeakSet[Remembered] = WeakSet()

    def shape(self, columns: int) -> Sequence[int]:
        """Of the cache with so many columns."""
        _, heads, _, size = self.port.shape
        return [1, int(heads or 0), columns, int(size or 0)]

    def read(self, columns: int) -> np.ndarray:
        """A copy of the first columns."""
        return np.array(self._state.state.data[:, :, :columns], self.dtype, order="C")

    def go_on_from(self, value: Any) -> None:
        """Make the next run append to `value`; nothing moves where the last one gave it."""
        ours = isinstance(value, Remembered) and value.variable is self and value.within
        if ours and value.columns == self._columns:
            return
        array = np.array(value.numpy(), self.dtype, order="C")
        for other in list(self._seen):
            if other is not value:
                other.keep()
                self._seen.discard(other)
        self._state.state = self._tensor(array, shared_memory=True)
        self._given, self._columns = array, array.shape[2]

    def appended(self, columns: int) -> Remembered:
        """What a run made of it, that appended so many columns."""
        self._given, self._columns = None, (self._columns or 0) + columns
        made = Remembered(self, self._columns)
        self._seen.add(made)
        return made

    def lost(self) -> None:
        """A run failed: whether it appended is not known. What it went on from is there in either case."""
        self._columns = None
