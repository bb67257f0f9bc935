"""The vision tower as config.json describes it: frozen facts, decided once.

The rules are those of transformers' Gemma4VisionConfig. Sizes must be there; other absent keys take its defaults.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cabochon.gemma4.config_keys import ENCODER_KEYS, TRAINING, USED
from cabochon.section import Section

__all__ = ["VISION_KEYS", "VisionConfig", "read_vision_config"]

# Every key that vision_config may hold, and what becomes of it.
VISION_KEYS: dict[str, str] = ENCODER_KEYS | {
    "model_type": "checked to be gemma4_vision",
    "hidden_size": USED,
    "intermediate_size": USED,
    "num_hidden_layers": USED,
    "num_attention_heads": USED,
    "num_key_value_heads": USED,
    "head_dim": USED,
    "global_head_dim": "nothing reads it: all layers have heads of head_dim",
    "patch_size": USED,
    "pooling_kernel_size": USED,
    "position_embedding_size": USED,
    "rms_norm_eps": USED,
    "rope_parameters": USED,
    "use_clipped_linears": USED,
    "standardize": USED,
    "hidden_activation": "checked to be gelu_pytorch_tanh",
    "attention_bias": "checked to be false",
    "max_position_embeddings": "positions are limited by position_embedding_size",
    "default_output_length": "how many soft tokens an image gets is said by processor_config.json",
    "attention_dropout": TRAINING,
}

_FIXED: dict[str, tuple[tuple[Any, ...], str]] = {
    "model_type": (("gemma4_vision",), "the tower of a gemma4 model"),
    "hidden_activation": (("gelu_pytorch_tanh",), "the feed-forward is gated by gelu_pytorch_tanh"),
    "attention_bias": ((False, None), "the projections have no bias"),
    "is_encoder_decoder": ((False,), "the tower is an encoder"),
}
_MOST_LAYERS = 10_000  # the largest of the family has 27; more is a typing error that would take all memory


@dataclass(frozen=True)
class VisionConfig:
    """The vision tower. `layers` is their number; `theta` the base of the rotation of both axes.

    `clipped`: every linear of a layer clamps its input and output. `standardize`: soft tokens are shifted and scaled.
    """

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    layers: int
    patch_size: int
    pooling_kernel_size: int
    position_embedding_size: int
    theta: float
    eps: float
    clipped: bool
    standardize: bool


def read_vision_config(raw: Mapping[str, Any]) -> VisionConfig | None:
    """The vision tower in `raw`, a whole config.json; None where vision_config is absent or null.

    Raises ConfigError for anything that is unknown, of the wrong type, or contradicts itself.
    """
    if raw.get("vision_config") is None:
        return None
    c = Section(raw, "config.json").section("vision_config")
    for key, (allowed, why) in _FIXED.items():  # the model_type first: another family has other keys
        c.refuse_other(key, allowed, why)
    c.refuse_unknown(VISION_KEYS)
    config = VisionConfig(
        hidden=c.integer("hidden_size"),
        heads=c.integer("num_attention_heads"),
        kv_heads=c.integer("num_key_value_heads"),
        head_dim=c.integer("head_dim"),
        intermediate=c.integer("intermediate_size"),
        layers=c.integer("num_hidden_layers", maximum=_MOST_LAYERS),
        patch_size=c.integer("patch_size"),
        # With 1 transformers pools nothing, and returns the padding instead of the patches.
        pooling_kernel_size=c.integer("pooling_kernel_size", minimum=2),
        position_embedding_size=c.integer("position_embedding_size"),
        theta=_theta(c),
        eps=c.positive("rms_norm_eps", 1e-6, maximum=1.0),
        clipped=c.flag("use_clipped_linears", False),
        standardize=c.flag("standardize", False),
    )
    _check_heads(c, config)
    return config


def _theta(c: Section) -> float:
    """Both axes turn alike. Published files call that "default", transformers saves it as "axial"."""
    if c.values.get("rope_parameters") is None:
        return 100.0
    rope = c.section("rope_parameters")
    rope.refuse_unknown(("rope_type", "rope_theta"))
    rope.refuse_other("rope_type", ("axial", "default"), "both axes turn alike")
    return rope.positive("rope_theta", 100.0, minimum=1.0)


def _check_heads(c: Section, config: VisionConfig) -> None:
    if config.head_dim % 4:
        what = f"is {config.head_dim}; expected a multiple of 4: each half of a head is rotated by one axis, in pairs"
        raise c.error("head_dim", what)
    if config.heads % config.kv_heads:
        what = f"is {config.kv_heads}, which does not divide num_attention_heads, {config.heads}"
        raise c.error("num_key_value_heads", what)
