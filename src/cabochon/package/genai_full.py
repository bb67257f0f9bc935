"""genai_config.json of a full package: the four graphs by their ports, and the tokens that stand for media."""

import json
from collections.abc import Mapping
from typing import Any

from cabochon.metadata.full import Full, Medium, Member
from cabochon.package.genai_config import genai_config

__all__ = ["AUDIO_PROCESSOR", "IMAGE_PROCESSOR", "genai_full", "genai_full_text"]

IMAGE_PROCESSOR, AUDIO_PROCESSOR = "image_processor.json", "audio_feature_extraction.json"

_SPEECH = {"audio_embeds": "input_features", "attention_mask": "input_features_mask"}  # its word -> the port
_TOKENS: dict[Medium, tuple[str, ...]] = {
    "image": ("image_token_id",),
    "audio": ("audio_token_id", "boa_token_id"),
}  # those that it asks for


def genai_full_text(full: Full, provider: str, config: Mapping[str, Any]) -> str:
    """The text of genai_config.json."""
    return json.dumps(genai_full(full, provider, config), indent=2, ensure_ascii=False) + "\n"


def genai_full(full: Full, provider: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The content of genai_config.json for graphs that run on `provider`; `config` is config.json.

    onnxruntime-genai 0.18 looks for a processor of sound unless `speech.config_filename` is empty. Parts without
    options of their own run where the decoder does.
    """
    found = genai_config(full.decoder, provider, config, "gemma4")
    parts: dict[str, Any] = {"embedding": _part(full.embedding, _alike(full.embedding, "inputs"))}
    if full.vision:
        parts["vision"] = {
            **_part(full.vision, _alike(full.vision, "inputs")),
            "config_filename": IMAGE_PROCESSOR,
        }
    parts["speech"] = (
        {**_part(full.audio, _SPEECH), "config_filename": AUDIO_PROCESSOR}
        if full.audio
        else {"config_filename": ""}
    )
    asked = (name for medium in full.encoders for name in _TOKENS[medium])
    tokens = {name: full.tokens[name] for name in asked if name in full.tokens}
    return {"model": {**found["model"], **parts, **tokens}, "search": found["search"]}


def _part(member: Member, inputs: Mapping[str, str]) -> dict[str, Any]:
    return {
        "filename": member.artifact,
        "inputs": dict(inputs),
        "outputs": _alike(member, "outputs"),
    }


def _alike(member: Member, side: str) -> dict[str, str]:
    """Ports that it calls as the graph does."""
    return {name: name for name in getattr(member.ports, side)}
