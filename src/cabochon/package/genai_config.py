"""genai_config.json: what onnxruntime-genai asks of a decoder. Every number is the graph's or the config's."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from cabochon.metadata.decoder import Decoder
from cabochon.metadata.vocabulary import end_tokens
from cabochon.package.facts import TextFacts

__all__ = ["GENAI_CONFIG", "genai_config", "genai_text"]

GENAI_CONFIG = "genai_config.json"

_PROVIDERS = {"CUDAExecutionProvider": "cuda", "WebGpuExecutionProvider": "webgpu"}
# of generation_config.json: what onnxruntime-genai knows by the same name and cabochon's own runtime follows too
_SEARCH = ("do_sample", "temperature", "top_k", "top_p", "repetition_penalty")


def genai_text(facts: TextFacts) -> str:
    """The text of genai_config.json."""
    found = genai_config(facts.decoder, facts.target.provider, facts.checkpoint.config)
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def genai_config(
    decoder: Decoder, provider: str, config: Mapping[str, Any], kind: str = "gemma4_text"
) -> dict[str, Any]:
    """The content of genai_config.json for a graph that runs on `provider`; `config` is config.json, `kind` its `type`.

    onnxruntime-genai 0.18 takes head sizes and key/value heads of each layer from the ports. Its config has one number
    for all layers: that is stated only where it is true of all. What nobody states is left out.
    """
    model = {
        "type": kind,
        "bos_token_id": _token("bos", decoder, config),
        "eos_token_id": _ends(decoder, config),
        "pad_token_id": _token("pad", decoder, config),
        "vocab_size": decoder.logits.shape[-1],
        "context_length": decoder.config.max_positions,
        "decoder": _stated(_decoder(decoder, provider)),
    }
    return {"model": _stated(model), "search": _stated(_search(decoder))}


def _decoder(decoder: Decoder, provider: str) -> dict[str, Any]:
    hidden = decoder.ports.outputs[decoder.hidden].shape[-1] if decoder.hidden else None
    return {
        "filename": decoder.artifact,
        "session_options": _session_options(provider),
        "hidden_size": hidden,
        "head_size": _common(cache.past.shape[3] for cache in decoder.caches),
        "num_attention_heads": decoder.config.heads,
        "num_key_value_heads": _common(cache.past.shape[1] for cache in decoder.caches),
        "num_hidden_layers": len(decoder.config.layers),
        "inputs": {
            **{name: name for name in (*decoder.fed, "attention_mask")},
            **_names(decoder, "past"),
        },
        "outputs": {"logits": decoder.logits.name, **_names(decoder, "present")},
    }


def _session_options(provider: str) -> dict[str, Any]:
    """Where a graph runs."""
    return {"provider_options": [{_PROVIDERS[provider]: {}}] if provider in _PROVIDERS else []}


def _names(decoder: Decoder, when: Literal["past", "present"]) -> dict[str, str]:
    """The names of the caches' ports, with %d for the layer."""
    first = {cache.part: cache for cache in reversed(decoder.caches)}
    return {
        f"{when}_{part}_names": getattr(cache, when).name.replace(f".{cache.layer}.", ".%d.")
        for part, cache in sorted(first.items())
    }


def _common(numbers: Iterable[int | str]) -> int | str | None:
    """The number that all of them are, None where they differ."""
    found = set(numbers)
    return found.pop() if len(found) == 1 else None


def _token(name: str, decoder: Decoder, config: Mapping[str, Any]) -> int | None:
    """The id of a special token: the tokenizer's word, else generation_config.json's, else config.json's."""
    named = decoder.vocabulary.special if decoder.vocabulary else {}
    if name in named:
        return named[name].id
    said = (decoder.generation, config.get("text_config") or {}, config)
    return next((found for each in said if (found := each.get(f"{name}_token_id")) is not None), None)


def _ends(decoder: Decoder, config: Mapping[str, Any]) -> list[int] | None:
    """Every id that ends an answer, whichever file names it."""
    named = decoder.vocabulary.ends if decoder.vocabulary else ()
    return sorted({*named, *end_tokens(decoder.generation), *end_tokens(config)}) or None


def _search(decoder: Decoder) -> dict[str, Any]:
    """The defaults of a search. Past and present share a buffer only where the graph writes into its past."""
    said = {key: decoder.generation.get(key) for key in _SEARCH}
    length = {"max_length": decoder.config.max_positions}
    return said | length | {"past_present_share_buffer": decoder.in_place}


def _stated(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entries.items() if value is not None}
