"""genai_config.json of a full package: the four graphs by their ports, and the tokens that stand for media."""

import json
from collections.abc import Collection, Mapping
from typing import Any

from cabochon.media.genai import AUDIO_FILE, IMAGE_FILE
from cabochon.metadata.full import Full, Medium, Member
from cabochon.package.genai_config import genai_config

__all__ = ["PROCESSORS", "genai_full", "genai_full_text", "kind"]

PROCESSORS: dict[Medium, str] = {"image": IMAGE_FILE, "audio": AUDIO_FILE}

_SPEECH = {"audio_embeds": "input_features", "attention_mask": "input_features_mask"}  # its word -> the port
_TOKENS: dict[Medium, tuple[str, ...]] = {
    "image": ("image_token_id",),
    "audio": ("audio_token_id", "boa_token_id"),
}  # those that it asks for


def genai_full_text(full: Full, provider: str, config: Mapping[str, Any], processors: Collection[str]) -> str:
    """The text of genai_config.json; see `genai_full`."""
    return json.dumps(genai_full(full, provider, config, processors), indent=2, ensure_ascii=False) + "\n"


def genai_full(
    full: Full, provider: str, config: Mapping[str, Any], processors: Collection[str]
) -> dict[str, Any]:
    """The content of genai_config.json for graphs that run on `provider`; `config` is config.json, `processors` are the
    processor files that the package has.

    onnxruntime-genai 0.18 looks for a processor of sound unless `speech.config_filename` is empty. Parts without
    options of their own run where the decoder does.
    """
    found = genai_config(full.decoder, provider, config, kind(config))
    parts: dict[str, Any] = {"embedding": _part(full.embedding, _alike(full.embedding, "inputs"))}
    if full.vision:
        parts["vision"] = {
            **_part(full.vision, _alike(full.vision, "inputs")),
            "config_filename": IMAGE_FILE if IMAGE_FILE in processors else "",
        }
    parts["speech"] = (
        {**_part(full.audio, _SPEECH), "config_filename": AUDIO_FILE if AUDIO_FILE in processors else ""}
        if full.audio
        else {"config_filename": ""}
    )
    asked = (name for medium in full.encoders for name in _TOKENS[medium])
    tokens = {name: full.tokens[name] for name in asked if name in full.tokens}
    return {"model": {**found["model"], **parts, **tokens}, "search": found["search"]}


def kind(config: Mapping[str, Any]) -> str:
    """The type of a model with media. That of a unified one counts a token for each patch and for each frame."""
    return "gemma4_unified" if config.get("model_type") == "gemma4_unified" else "gemma4"


def _part(member: Member, inputs: Mapping[str, str]) -> dict[str, Any]:
    return {
        "filename": member.artifact,
        "inputs": dict(inputs),
        "outputs": _alike(member, "outputs"),
    }


def _alike(member: Member, side: str) -> dict[str, str]:
    """Ports that it calls as the graph does."""
    return {name: name for name in getattr(member.ports, side)}
