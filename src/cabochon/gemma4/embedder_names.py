"""The tensors of what the unified model has in the place of towers: the whole layout in one function."""

import re

from cabochon.gemma4.embedder_config import AudioEmbedder, VisionEmbedder
from cabochon.gemma4.names import Shape

__all__ = ["as_published", "audio_embedder_shapes", "vision_embedder_shapes"]

# transformers' classes have other names than the files that they read and write.
_IN_MEMORY = (
    (
        re.compile(r"\bembed_vision\.(patch_ln1|patch_dense|patch_ln2|pos_embedding|pos_norm)\b"),
        r"vision_embedder.\1",
    ),
    (re.compile(r"\bembed_vision\.multimodal_embedder\."), "embed_vision."),
)


def vision_embedder_shapes(config: VisionEmbedder, width: int) -> dict[str, Shape]:
    """Every tensor by canonical name, that of the published files; linear weights are [out, in].

    `width` is the hidden size of the text model, which the soft tokens are projected to.
    """
    at, hidden, pixels = "model.vision_embedder.", config.hidden, 3 * config.patch_size**2
    shapes: dict[str, Shape] = {
        f"{at}patch_ln1.weight": (pixels,),
        f"{at}patch_ln1.bias": (pixels,),
        f"{at}patch_dense.weight": (hidden, pixels),
        f"{at}patch_dense.bias": (hidden,),
        f"{at}patch_ln2.weight": (hidden,),
        f"{at}patch_ln2.bias": (hidden,),
        f"{at}pos_embedding": (config.position_embedding_size, 2, hidden),
        f"{at}pos_norm.weight": (hidden,),
        f"{at}pos_norm.bias": (hidden,),
    }
    return shapes | {"model.embed_vision.embedding_projection.weight": (width, hidden)}


def audio_embedder_shapes(config: AudioEmbedder, width: int) -> dict[str, Shape]:
    """The one tensor that sound needs; see `vision_embedder_shapes`."""
    return {"model.embed_audio.embedding_projection.weight": (width, config.features)}


def as_published(name: str) -> str:
    """The name that published files have for a tensor; transformers calls some otherwise in memory."""
    for spelled, published in _IN_MEMORY:
        name = spelled.sub(published, name)
    return name
