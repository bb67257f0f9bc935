"""The drafter ("assistant") as config.json describes it.

Its layers are those of a text model that computes no keys and values: it reads those of the model it drafts for,
whose last owner of each kind it borrows from.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cabochon.checkpoint.refusals import refuse_quantized
from cabochon.errors import UnsupportedError
from cabochon.gemma4.config import TextConfig, read_section, read_text_config
from cabochon.gemma4.config_keys import DRAFTER_KEYS, TEXT_KEYS, refuse_other_drafters
from cabochon.section import Section

__all__ = ["ANOTHER_MODEL", "DRAFTERS", "Centroids", "DrafterConfig", "read_config", "read_drafter_config"]

# model_type of a drafter -> that of its text_config. The two are one architecture under two names.
DRAFTERS = {"gemma4_assistant": "gemma4_text", "gemma4_unified_assistant": "gemma4_unified_text"}

ANOTHER_MODEL = -1  # `Layer.cache` of a layer that borrows from the model it drafts for


@dataclass(frozen=True)
class Centroids:
    """Ordered embeddings: the vocabulary in `count` groups of one size, each with a centroid.

    Only the tokens of the `top_k` groups whose centroids score best are scored themselves.
    """

    count: int
    top_k: int


@dataclass(frozen=True)
class DrafterConfig:
    """A drafter. `backbone` is the hidden size of the model it drafts for; `centroids` is None where the head is dense.

    In `text` every layer borrows: `cache` is ANOTHER_MODEL, `first_shared` is 0. `text.window` is the target's: how far
    the drafter looks back is said in `gemma4/drafter.py`.
    """

    backbone: int
    centroids: Centroids | None
    text: TextConfig


def read_config(raw: Mapping[str, Any]) -> TextConfig | DrafterConfig:
    """The drafter or the text model in `raw`, a whole config.json. Raises as the readers of both do."""
    return read_drafter_config(raw) if raw.get("model_type") in tuple(DRAFTERS) else read_text_config(raw)


def read_drafter_config(raw: Mapping[str, Any]) -> DrafterConfig:
    """The drafter in `raw`, a whole config.json of model_type gemma4_assistant or gemma4_unified_assistant.

    Raises UnsupportedError for another kind of model, ConfigError for anything that is unknown, of the wrong type, or
    contradicts itself.
    """
    refuse_quantized(raw)
    if raw.get("model_type") not in tuple(DRAFTERS):
        raise UnsupportedError(
            f"model_type {raw.get('model_type')!r} is no drafter; expected {' or '.join(map(repr, DRAFTERS))}",
            at="config.json",
            remedy="give an assistant's checkpoint, such as google/gemma-4-E2B-it-assistant; a model that generates by "
            "itself is built with --model text, the default",
        )
    top = Section(raw, "config.json")
    top.refuse_unknown(DRAFTER_KEYS)
    text = _text(top)
    return DrafterConfig(top.integer("backbone_hidden_size"), _centroids(top, text), text)


def _text(top: Section) -> TextConfig:
    """The layers, read as those of a text model with keys and values of its own, which are then taken away."""
    text = top.section("text_config")
    text.refuse_unknown(TEXT_KEYS)
    text.refuse_other("model_type", (DRAFTERS[top.values["model_type"]],), "the layers of a drafter")
    refuse_other_drafters(text)
    config = read_section(top, _all_owners(text))
    if not config.tied:
        raise top.error("tie_word_embeddings", "is false; the head of a drafter is its embedding table")
    layers = tuple(replace(layer, shares_kv=True, cache=ANOTHER_MODEL) for layer in config.layers)
    unified = top.values["model_type"] == "gemma4_unified_assistant"
    return replace(config, layers=layers, first_shared=0, unified=unified)


def _all_owners(text: Section) -> Section:
    """The same layers as owners, which see text alone. 0 borrowers means all of them, as in transformers."""
    count, shared = text.integer("num_hidden_layers"), text.integer("num_kv_shared_layers", 0, minimum=0)
    if shared not in (0, count):
        what = f"is {shared}; a drafter has keys and values in none of its {count} layers"
        raise text.error("num_kv_shared_layers", what, f"write {count}, or 0, which means the same here")
    return Section({**text.values, "num_kv_shared_layers": 0, "use_bidirectional_attention": None}, text.at)


def _centroids(top: Section, text: TextConfig) -> Centroids | None:
    """Absent keys mean what they mean in transformers."""
    count = top.integer("num_centroids", 2048)
    top_k = top.integer("centroid_intermediate_top_k", 32)
    if not top.flag("use_ordered_embeddings", False):
        return None
    if text.vocab % count:
        what = f"is {count}, which does not divide vocab_size, {text.vocab}: groups of tokens have one size"
        raise top.error("num_centroids", what)
    if top_k > count:
        raise top.error("centroid_intermediate_top_k", f"is {top_k}; there are {count} centroids")
    return Centroids(count, top_k)
