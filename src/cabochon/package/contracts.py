"""What a text package says of itself: derived from the traced graph and the config, never written by hand."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import onnx_ir as ir

from cabochon.gemma4 import FullConfig
from cabochon.gemma4.config import FULL, SLIDING, TextConfig
from cabochon.gemma4.embedder_config import AudioEmbedder, VisionEmbedder

__all__ = ["Port", "contracts", "fusions", "hidden_tap", "operators", "owners", "towers"]

Port = tuple[int, int]  # key/value heads and head size of a layer's cache


def operators(model: ir.Model) -> dict[str, int]:
    """How many nodes of each operator the graph has, most frequent first; other domains are spelled out."""
    counts = Counter(
        f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        for node in ir.traversal.RecursiveGraphIterator(model.graph)
    )
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def fusions(model: ir.Model) -> list[str]:
    """The fused operators of ONNX Runtime that are in the graph, by the names that the field uses."""
    nodes = [n for n in ir.traversal.RecursiveGraphIterator(model.graph) if n.domain == "com.microsoft"]
    return sorted({_snake(node.op_type) for node in nodes})


def _snake(op_type: str) -> str:
    words = op_type.replace("MatMul", "Matmul")  # one word, as the field writes it
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", words).lower()


def owners(model: ir.Model) -> dict[int, Port]:
    """The layers that own a cache, as the graph's inputs show them."""
    found: dict[int, Port] = {}
    for value in model.graph.inputs:
        if match := re.fullmatch(r"past_key_values\.(\d+)\.key", value.name or ""):
            assert value.shape is not None
            found[int(match[1])] = (int(str(value.shape[1])), int(str(value.shape[3])))
    return found


def hidden_tap(model: ir.Model) -> str | None:
    """The name of the output that carries the hidden states after the final norm."""
    return next((v.name for v in model.graph.outputs if (v.name or "").startswith("hidden_states.")), None)


def contracts(config: TextConfig, raw: Mapping[str, Any], model: ir.Model) -> dict[str, Any]:
    """The geometry, in the words of the records that this project began with.

    Cache owners and head sizes come from the graph's ports, the rest from the config. What a model lacks is
    not mentioned.
    """
    owned = owners(model)
    found: dict[str, Any] = {
        "hybrid_attention": _hybrid(config),
        "num_hidden_layers": len(config.layers),
        "num_kv_shared_layers": len(config.layers) - len(owned),
        "owned_kv_layers": len(owned),
        "heterogeneous_head_dim": _by_kind(config, {i: size for i, (_, size) in owned.items()}),
        "num_attention_heads": config.heads,
        "num_key_value_heads": _by_kind(config, {i: heads for i, (heads, _) in owned.items()}),
        "per_layer_input_hidden": config.per_layer_input or None,
        "double_wide_mlp": len({layer.intermediate for layer in config.layers}) > 1,
        "attention_k_eq_v": any(layer.k_eq_v for layer in config.layers) or None,
        "final_logit_softcapping": config.softcap,
        "tie_word_embeddings": config.tied,
        "max_position_embeddings": config.max_positions,
        "moe": _moe(config, raw),
    }
    if not isinstance(found["heterogeneous_head_dim"], dict):
        found["head_dim"] = found.pop("heterogeneous_head_dim")
    return {key: value for key, value in found.items() if value is not None}


def towers(config: FullConfig) -> dict[str, Any]:
    """What a full package has beside its decoder."""
    found: dict[str, Any] = {}
    if isinstance(vision := config.vision, VisionEmbedder):
        found["vision"] = {
            "encoder_free": True,
            "hidden_size": vision.hidden,
            "patch_size": vision.patch_size,
            "position_embedding_size": vision.position_embedding_size,
            "bidirectional_in_sliding_layers": config.bidirectional,
        }
    elif vision:
        found["vision"] = {
            "num_hidden_layers": vision.layers,
            "hidden_size": vision.hidden,
            "patch_size": vision.patch_size,
            "pooling_kernel_size": vision.pooling_kernel_size,
            "standardize": vision.standardize,
            "use_clipped_linears": vision.clipped,
            "bidirectional_in_sliding_layers": config.bidirectional,
        }
    if isinstance(audio := config.audio, AudioEmbedder):
        found["audio"] = {"encoder_free": True, "samples_per_token": audio.features}
    elif audio:
        found["audio"] = {
            "num_hidden_layers": audio.layers,
            "hidden_size": audio.hidden,
            "use_clipped_linears": audio.clipped,
        }
    return found


def _by_kind(config: TextConfig, by_layer: Mapping[int, int]) -> int | dict[str, int]:
    """One number where all layers agree, else the number of each kind."""
    names = {SLIDING: "local_sliding", FULL: "global_full"}
    kinds = {names[config.layers[i].kind]: number for i, number in by_layer.items()}
    return kinds if len(set(kinds.values())) > 1 else next(iter(kinds.values()))


def _hybrid(config: TextConfig) -> str:
    full = [i for i, layer in enumerate(config.layers) if layer.kind == FULL]
    if config.window is None:
        return "full_attention in every layer"
    return f"sliding_window({config.window}) + full_attention {_rhythm(full, len(config.layers))}"


def _rhythm(full: list[int], layers: int) -> str:
    step = full[0] + 1
    listed = "layers " + ", ".join(map(str, full))
    return (
        f"every {_ordinal(step)} layer ({listed})"
        if full == list(range(step - 1, layers, step))
        else f"in {listed}"
    )


def _ordinal(number: int) -> str:
    last = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{last}"


def _moe(config: TextConfig, raw: Mapping[str, Any]) -> str | None:
    if experts := config.experts:
        return f"{experts.count} experts of width {experts.width}, {experts.chosen} for each token, beside a dense MLP"
    text = raw.get("text_config", raw)
    if text.get("enable_moe_block") is False:
        return "disabled in this checkpoint (enable_moe_block=false); dense MLP"
    return None
