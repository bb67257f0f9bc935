"""What stands in the place of towers in the unified model, as config.json describes it.

The unified model (12B) has no encoders: patches of pixels and frames of samples are projected as they are. The rules
are those of transformers' Gemma4UnifiedVisionConfig and Gemma4UnifiedAudioConfig; sizes must be there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cabochon.gemma4.config_keys import ENCODER_KEYS, USED
from cabochon.section import Section

__all__ = ["AudioEmbedder", "VisionEmbedder", "read_audio_embedder", "read_vision_embedder"]

_WIDTH = "checked to be what is projected: nothing else can be"
VISION_EMBEDDER_KEYS: dict[str, str] = ENCODER_KEYS | {
    "model_type": "checked to be gemma4_unified_vision",
    "patch_size": USED,
    "pooling_kernel_size": USED,
    "model_patch_size": _WIDTH,
    "mm_embed_dim": USED,
    "mm_posemb_size": USED,
    "output_proj_dims": _WIDTH,
    "rms_norm_eps": USED,
}
AUDIO_EMBEDDER_KEYS: dict[str, str] = ENCODER_KEYS | {
    "model_type": "checked to be gemma4_unified_audio",
    "audio_embed_dim": USED,
    "hidden_size": _WIDTH,
    "output_proj_dims": _WIDTH,
    "audio_samples_per_token": _WIDTH,
    "rms_norm_eps": USED,
}
_MOST = 1 << 12  # pixels along a side: far beyond any model, and no overflow


@dataclass(frozen=True)
class VisionEmbedder:
    """Patches of pixels, each of them a soft token, projected to `hidden` and told their places.

    `patch_size` is the side of such a patch: that of config.json times its pooling_kernel_size, so that nothing is left
    to pool. `eps` is that of the norm before the projection into the text model.
    """

    hidden: int
    patch_size: int
    position_embedding_size: int
    eps: float
    pooling_kernel_size: int = 1


@dataclass(frozen=True)
class AudioEmbedder:
    """Frames of `features` raw samples, each of them a soft token. `reduction`: the frames that become one token."""

    features: int
    eps: float
    reduction: int = 1


def read_vision_embedder(raw: Mapping[str, Any]) -> VisionEmbedder | None:
    """The vision embedder in `raw`, a whole config.json of a unified model; None where vision_config is absent or null.

    Raises ConfigError for anything that is unknown, of the wrong type, or contradicts itself.
    """
    if raw.get("vision_config") is None:
        return None
    c = Section(raw, "config.json").section("vision_config")
    c.refuse_other("model_type", ("gemma4_unified_vision",), "the images of a gemma4_unified model")
    c.refuse_unknown(VISION_EMBEDDER_KEYS)
    c.refuse_other("is_encoder_decoder", (False,), "it projects and nothing else")
    hidden = c.integer("mm_embed_dim")
    c.refuse_other("output_proj_dims", (hidden,), "mm_embed_dim numbers of a patch are projected")
    side = c.integer("patch_size", maximum=_MOST) * c.integer("pooling_kernel_size", maximum=_MOST)
    c.refuse_other("model_patch_size", (side,), "patch_size times pooling_kernel_size")
    return VisionEmbedder(
        hidden=hidden,
        patch_size=side,
        position_embedding_size=c.integer("mm_posemb_size"),
        eps=c.positive("rms_norm_eps", 1e-6, maximum=1.0),
    )


def read_audio_embedder(raw: Mapping[str, Any]) -> AudioEmbedder | None:
    """The audio embedder in `raw`, as `read_vision_embedder` reads the other."""
    if raw.get("audio_config") is None:
        return None
    c = Section(raw, "config.json").section("audio_config")
    c.refuse_other("model_type", ("gemma4_unified_audio",), "the sound of a gemma4_unified model")
    c.refuse_unknown(AUDIO_EMBEDDER_KEYS)
    c.refuse_other("is_encoder_decoder", (False,), "it projects and nothing else")
    samples = c.integer("audio_embed_dim")
    for key in ("hidden_size", "output_proj_dims", "audio_samples_per_token"):
        c.refuse_other(key, (samples,), "audio_embed_dim samples of a frame are projected")
    return AudioEmbedder(samples, c.positive("rms_norm_eps", 1e-6, maximum=1.0))
