"""transformers' unified model with the masks of images that the family has.

transformers 5.24 draws them in two ways for `gemma4_unified`: in `create_masks_for_generate` of its class, which only a
static cache asks for, as for `gemma4` and as in Google's own implementation; and in its `forward` as they were before
https://github.com/huggingface/transformers/pull/46850, on all layers and beyond the window. Here both are the former.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

__all__ = ["MASKS", "masked"]

UNIFIED = "gemma4_unified"
MASKS = (
    "those that create_masks_for_generate of its class draws, in forward too: tokens of an image see each other on "
    "sliding layers, within the window; forward of transformers 5.24 has them do so on all layers and beyond the window"
)


@contextmanager
def masked(model: Any) -> Generator[dict[str, str]]:
    """The model drawing these masks, if it is a unified one; what an evidence file says of it."""
    module: Any = sys.modules[type(model).__module__]
    if model.config.model_type != UNIFIED or not hasattr(module, "create_masks_for_vision_model"):
        yield {}
        return
    drawn = module.create_masks_for_generate

    def draw(*, block_sequence_ids: Any = None, **said: Any) -> Any:
        if block_sequence_ids is None:
            return drawn(**said)
        return module.create_masks_for_vision_model(block_sequence_ids=block_sequence_ids, **said)

    module.create_masks_for_generate = draw
    try:
        yield {"masks": MASKS}
    finally:
        module.create_masks_for_generate = drawn
