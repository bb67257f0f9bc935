"""transformers' image processor of the unified model, which is written for torchvision alone.

Where torchvision is not installed, its module is imported with a stand-in for torchvision's functions, of which it
calls one: the resize, whose kernel is torch's. How patches are cut and put together is transformers' code either way.
"""

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

__all__ = ["unified_images"]

MODULE = "transformers.models.gemma4_unified.image_processing_gemma4_unified"
NEEDED = ("torchvision", "torchvision.transforms", "torchvision.transforms.v2")


def unified_images(transformers: Any, source: Path) -> Any:
    """The image processor of a checkpoint. Raises what transformers raises where it finds none in `source`."""
    if find_spec("torchvision") is not None:
        return transformers.AutoImageProcessor.from_pretrained(source, local_files_only=True)
    import_module("transformers.image_processing_backends")  # it asks whether torchvision is there
    with _standing_in():
        theirs = import_module(MODULE).Gemma4UnifiedImageProcessor

    class Images(theirs):
        """Its pixels do not go through torchvision: they are RGB already."""

        def preprocess(self, images: Any, **said: Any) -> Any:
            """All images in one call, arrays uint8 [H, W, 3]."""
            import torch

            pixels = [torch.tensor(np.ascontiguousarray(x.transpose(2, 0, 1))) for x in _flat(images)]
            keys = ("do_resize", "resample", "do_rescale", "rescale_factor", "do_normalize", "image_mean",
                    "image_std", "patch_size", "max_soft_tokens", "pooling_kernel_size", "return_tensors")  # fmt: skip
            return self._preprocess(pixels, **{key: said.get(key, getattr(self, key, None)) for key in keys})

    return Images.from_pretrained(source, local_files_only=True)


def _flat(images: Any) -> Sequence[np.ndarray]:
    """One image, or those of one row, or of several."""
    if isinstance(images, np.ndarray):
        return [images]
    return [each for one in images for each in _flat(one)]


@contextmanager
def _standing_in() -> Generator[None]:
    modules = {name: ModuleType(name) for name in NEEDED}
    vars(modules[NEEDED[-1]])["functional"] = SimpleNamespace(resize=_resize, InterpolationMode=object)
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]


def _resize(image: Any, size: Sequence[int], **_: Any) -> Any:
    """uint8 [3, H, W], bicubic and antialiased."""
    import torch

    return torch.nn.functional.interpolate(image[None], tuple(size), mode="bicubic", antialias=True)[0]
