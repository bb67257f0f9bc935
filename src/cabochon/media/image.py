"""Images for the vision encoder, as transformers' Gemma4ImageProcessor prepares them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cabochon.errors import RequestError
from cabochon.media.image_file import Image, load_image
from cabochon.media.patches import Patching, stacked

__all__ = ["Image", "ImageProcessor", "Images", "load_image"]


@dataclass(frozen=True)
class Images:
    """What the vision encoder takes, and how many rows it gives for each image.

    `pixel_values` f32 [images, patches, 3 x patch_size^2] in [0, 1], (row, column, channel) within a patch, padded
    with zeros; `pixel_position_ids` i64 [images, patches, 2] as (x, y), (-1, -1) for padding; `tokens` soft tokens of
    each image.
    """

    pixel_values: np.ndarray
    pixel_position_ids: np.ndarray
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class ImageProcessor:
    """The image_processor of processor_config.json."""

    patching: Patching

    def __call__(
        self, images: Image | Sequence[Image], *, max_soft_tokens: int | None = None, padded: bool = True
    ) -> Images:
        """Prepare images of any sizes; each is what `load_image` takes.

        `max_soft_tokens`: another budget for this call, one of SOFT_TOKENS. `padded`: to the budget, as transformers
        does; without it to the largest image of the call, which changes no result of the encoder and spares it work.
        Values are transformers' to the bit for 8-bit images. Raises RequestError with the number of the image.
        """
        patching = self.patching.with_budget(max_soft_tokens)
        items = list(images) if isinstance(images, list | tuple) else [images]
        if not items:
            raise RequestError("no image; expected at least one", at="images")
        cut = [_cut(patching, item, number) for number, item in enumerate(items)]
        length = patching.max_patches if padded else max(len(patches) for patches, _ in cut)
        values, positions = stacked(cut, length)
        cell = patching.pooling_kernel_size**2
        return Images(values, positions, tuple(len(patches) // cell for patches, _ in cut))


def _cut(patching: Patching, item: Any, number: int) -> tuple[np.ndarray, np.ndarray]:
    try:
        return patching(load_image(item))
    except RequestError as error:
        where = error.at if error.at not in ("", "image") else ""
        raise RequestError(
            error.message, at=f"images[{number}] {where}".strip(), remedy=error.remedy
        ) from error
