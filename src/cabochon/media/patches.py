"""An image cut into the patches that the vision encoder takes: how large it becomes, where each patch stood.

Legend: `patch` side of a patch in pixels; `pool` patches along the side of a soft token; `side` = patch x pool.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from cabochon.errors import RequestError
from cabochon.media.resize import resized

__all__ = ["SOFT_TOKENS", "Normalization", "Patching", "stacked"]

SOFT_TOKENS = (
    70,
    140,
    280,
    560,
    1120,
)  # the budgets that Gemma 4 was trained with, as transformers lists them
PADDING = -1  # position of a patch that is none


@dataclass(frozen=True)
class Normalization:
    """Mean and standard deviation of each channel, of pixel values in [0, 1]."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


@dataclass(frozen=True)
class Patching:
    """Pixels to patches, as processor_config.json says it."""

    patch_size: int
    pooling_kernel_size: int
    max_soft_tokens: int
    rescale_factor: float = 1 / 255
    normalization: Normalization | None = None

    def with_budget(self, max_soft_tokens: int | None) -> Self:
        """The same with another budget of soft tokens per image, one of SOFT_TOKENS; None leaves it."""
        if max_soft_tokens is None:
            return self
        if type(max_soft_tokens) is not int or max_soft_tokens not in SOFT_TOKENS:
            what = f"{max_soft_tokens!r}; expected one of {', '.join(map(str, SOFT_TOKENS))}"
            raise RequestError(what, at="max_soft_tokens")
        return replace(self, max_soft_tokens=max_soft_tokens)

    def merged(self) -> Self:
        """The same image in patches that are soft tokens already: what an encoder pooled is one patch."""
        return replace(self, patch_size=self.side, pooling_kernel_size=1)

    @property
    def side(self) -> int:
        """Pixels along the side of a soft token; both sides of a resized image are multiples of it."""
        return self.patch_size * self.pooling_kernel_size

    @property
    def max_patches(self) -> int:
        """Patches of an image that uses up its budget."""
        return self.max_soft_tokens * self.pooling_kernel_size**2

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width after resizing: about the same shape, at most `max_soft_tokens` soft tokens.

        Small images grow. Where one side would vanish it becomes one soft token, and the other as many as the ratio of
        the sides, or the budget. The formula is transformers'. Raises RequestError where it has no answer.
        """
        if min(height, width) < 1:
            raise RequestError(f"{height} x {width} pixels; expected at least one", at="image")
        factor = math.sqrt(self.max_patches * self.patch_size**2 / (height * width))
        rows, columns = (math.floor(factor * length / self.side) for length in (height, width))
        if not rows:
            rows, columns = 1, min(width // height, self.max_soft_tokens)
        elif not columns:
            rows, columns = min(height // width, self.max_soft_tokens), 1
        if not 1 <= rows * columns <= self.max_soft_tokens:
            what = f"{height} x {width} pixels (height x width) would become {rows} x {columns} soft tokens; expected "
            raise RequestError(f"{what}1 to {self.max_soft_tokens}", at="image", remedy="crop it")
        return rows * self.side, columns * self.side

    def tokens(self, height: int, width: int) -> int:
        """Soft tokens of an image of this size before resizing."""
        rows, columns = self.size(height, width)
        return rows * columns // self.side**2

    def __call__(self, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """uint8 [H, W, 3] -> patches f32 [n, 3 x patch^2] (row, column, channel), positions i64 [n, 2] as (x, y)."""
        image = resized(image, *self.size(*image.shape[:2]))
        height, width = (length // self.patch_size for length in image.shape[:2])
        cut = self._values(image).reshape(height, self.patch_size, width, self.patch_size, 3)
        positions = np.stack(np.meshgrid(np.arange(width), np.arange(height)), -1).reshape(-1, 2)
        return cut.swapaxes(1, 2).reshape(height * width, -1), positions.astype(np.int64)

    def _values(self, image: np.ndarray) -> np.ndarray:
        """In f32, in the order of operations of transformers, on which the last bit depends."""
        if self.normalization is None:
            return image * np.float32(self.rescale_factor)
        unscale = np.float32(1.0 / self.rescale_factor)
        mean, std = (
            np.array(x, np.float32) * unscale for x in (self.normalization.mean, self.normalization.std)
        )
        return (image.astype(np.float32) - mean) / std


def stacked(cut: Sequence[tuple[np.ndarray, np.ndarray]], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Patches [n, length, 3 x patch^2] and positions [n, length, 2], padded with zeros and PADDING."""
    return tuple(
        np.stack([_padded(pair[i], length, fill) for pair in cut]) for i, fill in ((0, 0), (1, PADDING))
    )  # type: ignore[return-value]


def _padded(array: np.ndarray, length: int, fill: Any) -> np.ndarray:
    return np.pad(array, ((0, length - len(array)), (0, 0)), constant_values=fill)
