"""The tiny checkpoints of the family: their configs, and weights that are random and still tell mistakes apart.

torch and transformers are imported inside of functions: only recording needs them (record_family.py).
"""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import checkpoints

SLIDING, FULL = "sliding_attention", "full_attention"
VOCABULARY = 512
TEXT = {  # of every target
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "global_head_dim": 32,
    "sliding_window": 8,
    "layer_types": [SLIDING] * 5 + [FULL],
    "num_hidden_layers": 6,
    "final_logit_softcapping": 30.0,
    "max_position_embeddings": 4096,
}
LARGE = {  # those that see images both ways and take full layers' keys for values
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "use_bidirectional_attention": "vision",
}
SECTIONS: dict[str, dict[str, Any]] = {  # a target: its text_config, over TEXT
    "unified": LARGE | {"intermediate_size": 96},
    "e4b": {
        "intermediate_size": 96,
        "layer_types": ([SLIDING] * 5 + [FULL]) * 2,
        "num_hidden_layers": 12,
        "num_kv_shared_layers": 5,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": VOCABULARY,
    },
    "31b": LARGE
    | {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "num_global_key_value_heads": 2,
        "intermediate_size": 96,
        "hidden_size_per_layer_input": 0,
    },
}
SIBLING = {"unified": "target", "e4b": "target", "31b": "moe"}  # whose tokenizer and processors it has
ENCODERS = {  # the unified model's, which are none; the width between is not the decoder's, on purpose
    "vision": {"patch_size": 4, "pooling_kernel_size": 3, "mm_embed_dim": 48, "mm_posemb_size": 128}
    | {"output_proj_dims": 48},
    "audio": {"audio_embed_dim": 640},
}
ASSISTANT = {  # text_config of every assistant
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_kv_shared_layers": 4,
    "layer_types": [SLIDING] * 3 + [FULL],
    "head_dim": 16,
    "global_head_dim": 32,
    "sliding_window": 8,
    "max_position_embeddings": 4096,
}
OTHERS = {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0}
DRAFTERS: dict[
    str, tuple[str, dict[str, Any]]
] = {  # an assistant: its target, and its text_config over ASSISTANT
    "assistant-e4b": ("e4b", OTHERS | {"num_attention_heads": 2, "num_key_value_heads": 2}),
    "assistant-unified": (
        "unified",
        {"num_attention_heads": 4, "num_key_value_heads": 2, "num_global_key_value_heads": 1}
        | {"attention_k_eq_v": True, "use_bidirectional_attention": None},
    ),
    "assistant-moe": (
        "moe",
        OTHERS
        | {"num_attention_heads": 4, "num_key_value_heads": 2, "num_global_key_value_heads": 1}
        | {"attention_k_eq_v": True},
    ),
    "assistant-31b": (
        "31b",
        OTHERS
        | {"num_attention_heads": 8, "num_key_value_heads": 4, "num_global_key_value_heads": 2}
        | {"attention_k_eq_v": True},
    ),
}


def target(name: str, seed: int) -> Any:
    """A target with random weights, f32."""
    import transformers

    sibling = checkpoints.tiny_config(SIBLING[name])
    text = TEXT | {"rope_parameters": sibling["text_config"]["rope_parameters"]} | SECTIONS[name]
    tokens = {key: value for key, value in sibling.items() if "_token_" in key}
    if name == "unified":
        config = transformers.Gemma4UnifiedConfig(
            text_config=transformers.Gemma4UnifiedTextConfig(**text),
            vision_config=transformers.Gemma4UnifiedVisionConfig(**ENCODERS["vision"]),
            audio_config=transformers.Gemma4UnifiedAudioConfig(**ENCODERS["audio"]),
            **tokens,
        )
        return randomized(transformers.Gemma4UnifiedForConditionalGeneration(config).float(), seed)
    towers = {key: sibling[key] for key in ("vision_config", "audio_config")}
    config = transformers.Gemma4Config(text_config=transformers.Gemma4TextConfig(**text), **towers, **tokens)
    return randomized(transformers.Gemma4ForConditionalGeneration(config).float(), seed)


def assistant(name: str, seed: int) -> Any:
    """A drafter with random weights, f32."""
    import transformers

    served, own = DRAFTERS[name]
    rope = checkpoints.tiny_config("assistant")["text_config"]["rope_parameters"]
    kind = "Gemma4Unified" if served == "unified" else "Gemma4"
    section = getattr(transformers, f"{kind}TextConfig")(**(ASSISTANT | {"rope_parameters": rope} | own))
    config = getattr(transformers, f"{kind}AssistantConfig")(
        text_config=section,
        backbone_hidden_size=TEXT["hidden_size"],
        use_ordered_embeddings=served == "e4b",
        num_centroids=32,
        centroid_intermediate_top_k=4,
    )
    return randomized(getattr(transformers, f"{kind}AssistantForCausalLM")(config).float(), seed, gain=3.0)


def randomized(model: Any, seed: int, gain: float = 8.0) -> Any:
    """The model with random weights, each a bf16 value.

    Products keep the size of what they are given; what a layer adds is about half of what it is added to; scores have
    unit size; bounds clip; signs of the final norm are random, else a tied head says the last token again.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in [*model.named_parameters(), *model.named_buffers()]:
            values = _values(name, tuple(weight.shape), generator, gain)
            if values is not None:
                weight.copy_(
                    values.to(torch.bfloat16).to(weight.dtype) if weight.is_floating_point() else values
                )
    model.tie_weights()
    return model.eval()


def _values(name: str, shape: tuple[int, ...], generator: Any, gain: float) -> Any:
    """Values of a weight, or None for what is no weight."""
    import torch

    def normal(*size: int) -> Any:
        return torch.randn(size, generator=generator)

    def between(low: float, high: float) -> Any:
        return torch.rand(shape, generator=generator) * (high - low) + low

    leaf = name.rpartition(".")[2]
    if name == "lm_head.weight" or leaf in ("embed_scale", "softcap") or "inv_" in leaf:
        return None
    if leaf == "token_ordering":
        return torch.randperm(shape[0], generator=generator)
    if leaf.endswith(("_min", "_max")):
        return between(2, 3) * (-1 if leaf.endswith("_min") else 1)
    scaled = {"layer_scalar": (0.9, 1.02), "std_scale": (0.2, 0.4)}
    if leaf in scaled:
        return between(*scaled[leaf])
    plain = {"per_dim_scale": 0.3, "std_bias": 0.5, "bias": 0.2}
    plain |= {"position_embedding_table": 0.7, "pos_embedding": 0.7}
    if leaf in plain:
        return normal(*shape) * plain[leaf]
    if len(shape) == 1:
        return _norm(name, 1 + 0.15 * normal(*shape), generator, gain)
    values = normal(*shape) / math.sqrt(math.prod(shape[1:]))
    if name.endswith("embed_tokens.weight"):  # rows of several sizes: logits lie further apart
        return values * torch.exp(0.3 * normal(shape[0], 1))
    if name.endswith("embed_tokens_per_layer.weight"):
        return values * math.sqrt(shape[1] / SECTIONS["e4b"]["hidden_size_per_layer_input"])
    return values * (3 if "centroids" in name else 1)


def _norm(name: str, values: Any, generator: Any, gain: float) -> Any:
    import torch

    if name.endswith(("q_norm.weight", "k_norm.weight")):
        return values * 0.6
    if "post_" in name:
        return values * (0.8 if "per_layer_input" in name else 0.55)
    if name.endswith(("model.norm.weight", "language_model.norm.weight")):
        return values * gain * (2.0 * (torch.rand(values.shape, generator=generator) < 0.5) - 1)
    return values


def written(model: Any, name: str, out: Path) -> None:
    """The folder as it is published: bf16, a tied head stored once; tokenizer and processors are a sibling's."""
    model.bfloat16().save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)
    sibling = checkpoints.TINY / SIBLING.get(name, "assistant")
    for file in sibling.iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            shutil.copyfile(file, out / file.name)
    if name == "unified":
        file = out / "processor_config.json"
        file.write_text(json.dumps(_unified(json.loads(file.read_bytes())), indent=2) + "\n")


def _unified(processors: dict[str, Any]) -> dict[str, Any]:
    """processor_config.json of the unified model, from its sibling's."""
    for section in ("image_processor", "video_processor"):
        kind = f"{section}_type"
        processors[section][kind] = processors[section][kind].replace("Gemma4", "Gemma4Unified")
    processors["feature_extractor"] = {
        "audio_samples_per_token": 640,
        "feature_extractor_type": "Gemma4UnifiedAudioFeatureExtractor",
        "feature_size": 640,
        "padding_side": "right",
        "padding_value": 0.0,
        "return_attention_mask": True,
        "sampling_rate": 16000,
    }
    return processors | {"processor_class": "Gemma4UnifiedProcessor"}
