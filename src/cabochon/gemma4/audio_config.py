"""The audio encoder as config.json describes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cabochon.gemma4.config_keys import ENCODER_KEYS, USED
from cabochon.section import Section

__all__ = ["AUDIO_KEYS", "AudioConfig", "read_audio_config"]

AUDIO_KEYS: dict[str, str] = ENCODER_KEYS | {
    "model_type": "checked to be gemma4_audio",
    "hidden_size": USED,
    "num_hidden_layers": USED,
    "num_attention_heads": USED,
    "hidden_act": "checked to be silu",
    "subsampling_conv_channels": USED,
    "conv_kernel_size": USED,
    "residual_weight": USED,
    "attention_chunk_size": USED,
    "attention_context_left": USED,
    "attention_context_right": USED,
    "attention_logit_cap": USED,
    "attention_invalid_logits_value": USED,
    "use_clipped_linears": USED,
    "rms_norm_eps": USED,
    "gradient_clipping": USED,
    "output_proj_dims": USED,
}

_FIXED = {
    "model_type": ("gemma4_audio", "no other encoder is built"),
    "hidden_act": ("silu", "the feed-forwards of the conformer have no other activation"),
    "is_encoder_decoder": (False, "it encodes and nothing else"),
}
_LONGEST = 1 << 12  # frames: the windows of a block are constants of the graph
_VANISHING = 104.0  # exp(-104) is 0 in float32


@dataclass(frozen=True)
class AudioConfig:
    """The audio encoder: a conformer over log-mel frames.

    Frames are attended to in blocks of `chunk` queries. `context_left` counts the frame itself and one that is never
    seen: a query sees itself and the `context_left` - 2 frames before it, and `context_right` - 1 after it, as in
    transformers. Scores are capped at `logit_cap`, those out of sight are `invalid_logit`. `channels` are those of the
    two convolutions that halve time and mels. `clipped` says whether the checkpoint holds bounds of linear maps.
    `output` is the size of what the encoder gives to the projection into the text model.
    """

    hidden: int
    heads: int
    layers: int
    channels: tuple[int, int]
    conv_kernel: int
    residual_weight: float
    chunk: int
    context_left: int
    context_right: int
    logit_cap: float
    invalid_logit: float
    gradient_clipping: float
    eps: float
    clipped: bool
    output: int

    @property
    def head_dim(self) -> int:
        """The size of a head."""
        return self.hidden // self.heads

    @property
    def past(self) -> int:
        """The frames before a block that its queries' windows span."""
        return self.context_left - 1

    @property
    def context(self) -> int:
        """The frames that the windows of a block span: those before it, its own, and those after it."""
        return self.past + self.chunk + self.context_right

    @property
    def subsampled_mels(self) -> int:
        """The mels that two halvings leave: as many as the projection behind them takes, whatever the features."""
        return self.channels[0] // 4

    @property
    def features(self) -> int:
        """The mels of a frame; the config of the encoder does not say it, the width of its projection does."""
        return self.reduction * self.subsampled_mels

    @property
    def reduction(self) -> int:
        """The frames that become one token: each convolution halves them."""
        return 4


def read_audio_config(raw: Mapping[str, Any]) -> AudioConfig | None:
    """The audio encoder in `raw`, a whole config.json; None where audio_config is absent or null.

    Raises ConfigError for a key that is unknown, and for a value of the wrong type or that contradicts another. Keys
    that say neither width nor depth may be absent: they mean what they mean in transformers.
    """
    if raw.get("audio_config") is None:
        return None
    audio = Section(raw, "config.json").section("audio_config")
    for key, (expected, why) in _FIXED.items():  # the model_type first: another family has other keys
        audio.refuse_other(key, (expected,), why)
    audio.refuse_unknown(AUDIO_KEYS)
    return _read(audio)


def _read(audio: Section) -> AudioConfig:
    cap = audio.positive("attention_logit_cap", 50.0)
    return AudioConfig(
        hidden=(hidden := audio.integer("hidden_size")),
        heads=_heads(audio, hidden),
        layers=audio.integer("num_hidden_layers"),
        channels=_channels(audio),
        conv_kernel=audio.integer("conv_kernel_size", 5),
        residual_weight=audio.positive("residual_weight", 0.5),
        chunk=audio.integer("attention_chunk_size", 12, maximum=_LONGEST),
        context_left=audio.integer("attention_context_left", 13, minimum=2, maximum=_LONGEST),
        context_right=audio.integer("attention_context_right", 0, minimum=0, maximum=_LONGEST),
        logit_cap=cap,
        invalid_logit=_invalid_logit(audio, cap),
        gradient_clipping=audio.positive("gradient_clipping", 1e10),
        eps=audio.positive("rms_norm_eps", 1e-6, maximum=1.0),
        clipped=audio.flag("use_clipped_linears", True),
        output=audio.integer("output_proj_dims"),
    )


def _heads(audio: Section, hidden: int) -> int:
    heads = audio.integer("num_attention_heads")
    if hidden % heads:
        raise audio.error("num_attention_heads", f"is {heads}, which does not divide hidden_size, {hidden}")
    if hidden % 2:
        raise audio.error("hidden_size", f"is {hidden}; sines and cosines of positions fill half of it each")
    return heads


def _channels(audio: Section) -> tuple[int, int]:
    """Of both convolutions; the first says how many mels are left behind the second."""
    value = audio.values.get("subsampling_conv_channels", [128, 32])
    if not (isinstance(value, list) and len(value) == 2 and all(type(n) is int and n > 0 for n in value)):
        raise audio.error(
            "subsampling_conv_channels", f"is {value!r:.100}; expected two positive whole numbers"
        )
    if value[0] < 4:
        raise audio.error("subsampling_conv_channels", f"is {value!r:.100}; the first must be 4 or more")
    return value[0], value[1]


def _invalid_logit(audio: Section, cap: float) -> float:
    """The score of a frame out of sight. It must be so low that a frame out of sight weighs nothing at all."""
    return audio.number(
        "attention_invalid_logits_value",
        -1e9,
        minimum=float(np.finfo(np.float32).min),
        maximum=-cap - _VANISHING,
        why=f"{_VANISHING:g} below the least score that attention_logit_cap leaves",
    )
