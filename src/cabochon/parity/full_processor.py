"""transformers' processor of Gemma 4, asked for what a model with images and sound is fed.

Where torchvision is not installed it resizes with Pillow, which is off by one in some pixels, and prepares no video. So
images are resized here by the kernel of torch that torchvision calls, and frames go through the image processor, with
the budget of the video processor; which frames are taken our own says. Everything else is transformers', the text too.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from cabochon.errors import ParityError
from cabochon.media import read_processors
from cabochon.media.footage import sampled
from cabochon.parity.exhibits import SECONDS, Exhibits
from cabochon.parity.full_prompts import Asked
from cabochon.parity.passed import Prepared
from cabochon.parity.unified_processor import unified_images

__all__ = ["HOW", "FullProcessor"]

HOW = {
    "images": "transformers' image processor; resized not by Pillow, but by torch's antialiased bicubic kernel "
    "for uint8, which is the one that torchvision calls",
    "frames": "transformers' image processor with the budget of the video processor, which needs torchvision; which "
    "frames are taken, and their times, are cabochon's choice",
    "sound": "transformers' feature extractor",
    "text": "transformers' processor and tokenizer",
}
PORTS = {
    "pixel_values": ("pixel_values", "pixel_values_videos"),
    "pixel_position_ids": ("image_position_ids", "video_position_ids"),
    "input_features": ("input_features",),
    "input_features_mask": ("input_features_mask",),
}
"""Inputs of encoders, and what transformers calls them."""


class FullProcessor:
    """The processor of a checkpoint."""

    def __init__(
        self, transformers: Any, source: Path, bos: int | None, audio: bool, unified: bool = False
    ) -> None:
        """`audio`: it prepares sound; `unified`: for the model without encoders. Raises ParityError where transformers
        lacks something for it."""
        from transformers.processing_utils import VideosKwargs

        try:
            tokenizer, *sounds = (
                getattr(transformers, name).from_pretrained(source, local_files_only=True)
                for name in ("AutoTokenizer", *["AutoFeatureExtractor"] * audio)
            )
            if unified:
                images = unified_images(transformers, source)
            else:
                images = transformers.AutoImageProcessor.from_pretrained(source, local_files_only=True)
        except (ImportError, OSError, ValueError) as error:
            raise ParityError(
                f"transformers has no processor for it: {str(error).strip().splitlines()[0]}",
                at=str(source),
                remedy='pip install "cabochon[media,parity]"; the checkpoint needs its processor_config.json',
            ) from error
        self._pillow = _pillow(images)
        self._made: Any = _unchecked(unified)(
            feature_extractor=next(iter(sounds), None), image_processor=images, tokenizer=tokenizer,
            video_processor=_Films(source, images, VideosKwargs),
        )  # fmt: skip
        self._bos = "" if bos is None else tokenizer.convert_ids_to_tokens(bos)

    def __call__(self, asked: Asked) -> Prepared:
        """All rows together, as the model takes them."""
        if all(row.exhibits is None for row in asked.rows):
            ids = np.array([row.ids for row in asked.rows], np.int64)
            return Prepared(asked.name, asked.rows, ids, np.ones_like(ids), {}, 0)
        given = [row.exhibits or Exhibits() for row in asked.rows]
        images = [list(one.images) for one in given]
        made = self._made(
            text=[f"{self._bos}{row.text}" for row in asked.rows],
            images=images if any(images) else None,
            audio=[sound for one in given for sound in one.sounds] or None,
            videos=[list(frames) for one in given for frames in one.films] or None,
            add_special_tokens=False,
            return_tensors="np",
        )
        ids, mask = (np.asarray(made[key], np.int64) for key in ("input_ids", "attention_mask"))
        media = {
            port: np.concatenate([made[key] for key in keys if key in made])
            for port, keys in PORTS.items()
            if any(key in made for key in keys)
        }
        rows = tuple(
            replace(prompt, ids=tuple(row[real > 0].tolist()))
            for prompt, row, real in zip(asked.rows, ids, mask, strict=True)
        )
        count, pillow = sum(map(len, images)), None
        if count and self._pillow:
            made = self._pillow([x for row in images for x in row], return_tensors="np")
            pillow = np.asarray(made["pixel_values"])
        return Prepared(asked.name, rows, ids, mask, media, count, pillow)


def _unchecked(unified: bool) -> Any:
    """transformers' processor, whose parts are not checked: the check itself wants torchvision."""
    from importlib import import_module

    family, name = ("gemma4_unified", "Gemma4UnifiedProcessor") if unified else ("gemma4", "Gemma4Processor")
    module: Any = import_module(f"transformers.models.{family}.processing_{family}")
    theirs: Any = getattr(module, name)

    class Unchecked(theirs):  # pyright: ignore[reportUntypedBaseClass]
        """Parts of any class."""

        def check_argument_for_proper_class(self, *_: Any, **__: Any) -> None:
            return

    return Unchecked


def _pillow(images: Any) -> Any:
    """Lets an image processor that resizes with Pillow do it as torchvision does; a copy that does not, if it would."""
    if not type(images).__name__.endswith("Pil"):
        return None
    import torch
    from transformers.models.gemma4.image_processing_pil_gemma4 import get_aspect_ratio_preserving_size

    def resized(image: np.ndarray, resample: Any, **budget: int) -> np.ndarray:
        """uint8 [3, H, W]"""
        height, width = image.shape[-2:]
        size = get_aspect_ratio_preserving_size(height=height, width=width, **budget)
        if size == (height, width):
            return image
        pixels = torch.tensor(image)[None]
        return torch.nn.functional.interpolate(pixels, size, mode="bicubic", antialias=True)[0].numpy()

    copied = copy(images)
    images.aspect_ratio_preserving_resize = resized
    return copied


class _Films:
    """In the place of transformers' video processor."""

    model_input_names = ("pixel_values_videos", "video_position_ids", "num_frames_per_video")

    def __init__(self, source: Path, images: Any, valid_kwargs: Any) -> None:
        self._ours, self._images, self.valid_kwargs = read_processors(source).video, images, valid_kwargs

    def __call__(self, videos: Sequence[Sequence[np.ndarray]], **_: Any) -> dict[str, Any]:
        assert self._ours is not None
        taken = [sampled(len(frames), self._ours.num_frames) for frames in videos]
        made = [
            self._images(
                [frames[n] for n in numbers],
                max_soft_tokens=self._ours.patching.max_soft_tokens,
                return_tensors="np",
            )
            for frames, numbers in zip(videos, taken, strict=True)
        ]
        return {
            "pixel_values_videos": np.concatenate([one["pixel_values"] for one in made]),
            "video_position_ids": np.concatenate([one["image_position_ids"] for one in made]),
            "num_soft_tokens_per_video": [int(one["num_soft_tokens_per_image"][0]) for one in made],
            "video_metadata": [
                SimpleNamespace(fps=1 / SECONDS, timestamps=[n * SECONDS for n in numbers])
                for numbers in taken
            ],
        }
