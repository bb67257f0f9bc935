"""The whole model as config.json describes it: text, the towers, and the tokens that stand for what towers see."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cabochon.errors import UnsupportedError
from cabochon.gemma4.audio_config import AudioConfig, read_audio_config
from cabochon.gemma4.config import TextConfig, read_text_config
from cabochon.gemma4.embedder_config import (
    AudioEmbedder,
    VisionEmbedder,
    read_audio_embedder,
    read_vision_embedder,
)
from cabochon.gemma4.vision_config import VisionConfig, read_vision_config
from cabochon.section import Section

__all__ = ["FullConfig", "read_full_config", "read_towers"]


@dataclass(frozen=True)
class FullConfig:
    """Text and towers. `vision` or `audio` is None where the model has no such tower.

    `tokens`: of "image", "video" and "audio", those that the model has, the id that stands for a row of features.
    `bidirectional`: the tokens of an image see each other on sliding layers.
    """

    text: TextConfig
    vision: VisionConfig | VisionEmbedder | None
    audio: AudioConfig | AudioEmbedder | None
    tokens: Mapping[str, int]
    bidirectional: bool

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a user should know."""
        return self.text.remarks

    @property
    def placeholders(self) -> dict[str, tuple[int, ...]]:
        """The tokens that rows of features replace, by what gives the rows: frames of video are images."""
        image = tuple(self.tokens[name] for name in ("image", "video") if name in self.tokens)
        audio = tuple(self.tokens[name] for name in ("audio",) if name in self.tokens)
        return {name: ids for name, ids in (("image", image), ("audio", audio)) if ids}

    @property
    def vision_ids(self) -> tuple[int, ...]:
        """The placeholders whose runs see each other; () where they do not."""
        return self.placeholders["image"] if self.bidirectional else ()


def read_full_config(raw: Mapping[str, Any]) -> FullConfig:
    """The whole model in `raw`, a whole config.json of model_type gemma4 or gemma4_unified.

    Raises UnsupportedError for a kind of model that is refused by name and for one without towers, ConfigError for
    anything that is unknown, of the wrong type, or contradicts itself.
    """
    text = read_text_config(raw)
    top = Section(raw, "config.json")
    vision, audio = read_towers(raw)
    if vision is None and audio is None:
        raise UnsupportedError(
            "the model takes neither images nor sound; expected one of them for a full package",
            at="config.json: vision_config, audio_config",
            remedy="build a text package: leave --model full out",
        )
    names = [
        name for name, tower in (("image", vision), ("video", vision), ("audio", audio)) if tower is not None
    ]
    tokens = {
        name: _token(top, text, f"{name}_token_id") for name in names if name != "video" or _has_video(top)
    }
    if len(set(tokens.values())) < len(tokens):
        raise top.error("image_token_id", f"stands beside others: {tokens}; expected an id for each")
    return FullConfig(text, vision, audio, tokens, text.bidirectional and vision is not None)


def read_towers(
    raw: Mapping[str, Any],
) -> tuple[VisionConfig | VisionEmbedder | None, AudioConfig | AudioEmbedder | None]:
    """The towers in `raw`, or what the unified model has in their place; None where there is none."""
    if raw.get("model_type") == "gemma4_unified":
        return read_vision_embedder(raw), read_audio_embedder(raw)
    return read_vision_config(raw), read_audio_config(raw)


def _has_video(top: Section) -> bool:
    """Checkpoints may lack the token of video, which is images to the model."""
    return top.values.get("video_token_id") is not None


def _token(top: Section, text: TextConfig, key: str) -> int:
    token = top.integer(key, minimum=0)
    if token >= text.vocab:
        raise top.error(key, f"is {token}; vocab_size is {text.vocab}")
    return token
