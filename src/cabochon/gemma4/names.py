"""The tensors of the text model: their layout, and the spellings under which checkpoints hold them.

Inside cabochon a tensor has the name of the text-only class (`model.layers.{i}...`). Every tensor of a
checkpoint is used, or unused with a reason; any other is an error. Ownership of keys and values comes from
the config, never from the presence of tensors: published files hold K/V of layers that borrow.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cabochon.checkpoint import Tensor
from cabochon.errors import TensorError
from cabochon.gemma4.config import Layer, TextConfig

__all__ = [
    "EXPERTS",
    "HEAD",
    "LAYERS_TABLE",
    "TABLE",
    "TOWERS",
    "TextTensors",
    "as_rows",
    "expected_shapes",
    "text_tensors",
]

HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"
LAYERS_TABLE = "model.embed_tokens_per_layer.weight"
EXPERTS = ".experts."  # in the names of their weights, and of no others
PREFIXES = ("model.language_model.", "language_model.model.", "model.", "")
HEADS = (HEAD, "language_model.lm_head.weight", "model.language_model.lm_head.weight", "model.lm_head.weight")
DTYPES = ("BF16", "F16", "F32")
_BLOCK = 1 << 22  # bytes
_SHOWN = 30  # faults of one kind that an error lists

Shape = tuple[int, ...]

TOWERS = re.compile(r"(?:model\.)?(vision_tower|vision_embedder|embed_vision|audio_tower|embed_audio)\.")
_KEYS_AND_VALUES = re.compile(r"model\.layers\.(\d{1,6})\.self_attn\.(?:k_proj|v_proj|k_norm)\.weight")


@dataclass(frozen=True)
class TextTensors:
    """`used` by canonical name, in the order of `expected_shapes`; `unused`: name in the file and reason."""

    used: Mapping[str, Tensor]
    unused: Mapping[str, str]


def expected_shapes(config: TextConfig) -> dict[str, Shape]:
    """Every tensor of the text model by canonical name: the whole layout in one function.

    Linear weights are [out, in]; the head is listed where it is not tied to the embedding table.
    """
    hidden, extra, layers = config.hidden, config.per_layer_input, len(config.layers)
    shapes: dict[str, Shape] = {TABLE: (config.vocab, hidden)}
    if extra:
        shapes |= {
            LAYERS_TABLE: (config.vocab_per_layer, layers * extra),
            "model.per_layer_model_projection.weight": (layers * extra, hidden),
            "model.per_layer_projection_norm.weight": (extra,),
        }
    for i, layer in enumerate(config.layers):
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in _layer_shapes(config, layer)}
    shapes["model.norm.weight"] = (hidden,)
    return shapes if config.tied else shapes | {HEAD: (config.vocab, hidden)}


def _layer_shapes(config: TextConfig, layer: Layer) -> Iterator[tuple[str, Shape]]:
    hidden, extra, width = config.hidden, config.per_layer_input, layer.intermediate
    queries, keys = config.heads * layer.head_dim, layer.kv_heads * layer.head_dim
    yield "input_layernorm.weight", (hidden,)
    yield "self_attn.q_proj.weight", (queries, hidden)
    yield "self_attn.q_norm.weight", (layer.head_dim,)
    if not layer.shares_kv:
        yield "self_attn.k_proj.weight", (keys, hidden)
        yield "self_attn.k_norm.weight", (layer.head_dim,)
        if not layer.k_eq_v:
            yield "self_attn.v_proj.weight", (keys, hidden)
    yield "self_attn.o_proj.weight", (hidden, queries)
    yield "post_attention_layernorm.weight", (hidden,)
    yield "pre_feedforward_layernorm.weight", (hidden,)
    yield "mlp.gate_proj.weight", (width, hidden)
    yield "mlp.up_proj.weight", (width, hidden)
    yield "mlp.down_proj.weight", (hidden, width)
    yield "post_feedforward_layernorm.weight", (hidden,)
    if experts := config.experts:
        yield "router.proj.weight", (experts.count, hidden)
        yield "router.scale", (hidden,)
        yield "router.per_expert_scale", (experts.count,)
        yield "experts.gate_up_proj", (experts.count, 2 * experts.width, hidden)
        yield "experts.down_proj", (experts.count, hidden, experts.width)
        yield "post_feedforward_layernorm_1.weight", (hidden,)
        yield "post_feedforward_layernorm_2.weight", (hidden,)
        yield "pre_feedforward_layernorm_2.weight", (hidden,)
    if extra:
        yield "per_layer_input_gate.weight", (extra, hidden)
        yield "per_layer_projection.weight", (hidden, extra)
        yield "post_per_layer_input_norm.weight", (hidden,)
    yield "layer_scalar", (1,)


def text_tensors(tensors: Mapping[str, Tensor], config: TextConfig) -> TextTensors:
    """Give every tensor its canonical name or the reason why it is unused.

    A head that differs from the embedding table is used even if the config says it is tied, as in
    transformers. Raises TensorError with every tensor that is missing, unknown, not of the shape that the
    config promises, or of a dtype other than BF16, F16 and F32.
    """
    shapes = expected_shapes(config)
    prefix = _prefix(tensors, shapes)
    used, unused, faults = _sort(tensors, prefix, shapes, config)
    if config.tied and HEAD in used and same_values(used[HEAD], used.get(TABLE)):
        unused[used.pop(HEAD).name] = "the head is tied: these are the bytes of embed_tokens.weight"
    if HEAD in used:
        shapes |= {HEAD: (config.vocab, config.hidden)}
    faults["missing"] = _missing(shapes, used, prefix)
    faults["wrong shape"] = misshapen(shapes, used)
    faults["wrong dtype"] = other_dtypes(used)
    refuse(faults)
    return TextTensors({name: as_rows(name, used[name]) for name in shapes}, unused)


def as_rows(name: str, tensor: Tensor) -> Tensor:
    """The weights of experts as one table of all their rows, [experts · out, in]: the same bytes."""
    if EXPERTS not in name:
        return tensor
    experts, out, width = tensor.shape
    return replace(tensor, shape=(experts * out, width))


def _sort(
    tensors: Mapping[str, Tensor], prefix: str, shapes: Mapping[str, Shape], config: TextConfig
) -> tuple[dict[str, Tensor], dict[str, str], dict[str, list[str]]]:
    """Used by canonical name; unused with the reason; and the names that are neither."""
    used: dict[str, Tensor] = {}
    unused: dict[str, str] = {}
    faults: dict[str, list[str]] = {"missing": [], "unknown": [], "stored twice": []}
    for name, tensor in tensors.items():
        canonical = _canonical(name, prefix)
        if canonical in used:
            faults["stored twice"].append(f"{used[canonical].name} and {name}")
        elif canonical in shapes or canonical == HEAD:
            used[canonical] = tensor
        elif reason := _reason(name, canonical, config):
            unused[name] = reason
        else:
            faults["unknown"].append(name)
    return used, unused, faults


def _prefix(tensors: Mapping[str, Tensor], shapes: Mapping[str, Shape]) -> str:
    """The prefix under which the text model is stored: the one that explains most names."""
    inner = [name.removeprefix("model.") for name in shapes if name != HEAD]
    found = {prefix: sum(prefix + name in tensors for name in inner) for prefix in PREFIXES}
    best = max(found, key=lambda prefix: found[prefix])
    if not found[best]:
        raise TensorError(
            f"none of the {len(tensors)} tensors belongs to a Gemma 4 text model; expected names such as "
            + ", ".join(f"{prefix}embed_tokens.weight" for prefix in PREFIXES),
            at="checkpoint",
            remedy="check that config.json and the weights belong together",
        )
    return best


def _canonical(name: str, prefix: str) -> str:
    if name in HEADS:
        return HEAD
    return "model." + name.removeprefix(prefix) if name.startswith(prefix) else ""


def _reason(name: str, canonical: str, config: TextConfig) -> str:
    """Why a tensor that the text model does not use may be there; "" if nothing explains it."""
    if tower := TOWERS.match(name):
        return f"{tower[1]} is not part of a text model"
    layer = _KEYS_AND_VALUES.fullmatch(canonical)
    if layer and config.first_shared <= int(layer[1]) < len(config.layers):
        owner = config.layers[int(layer[1])].cache
        return f"layer {layer[1]} borrows the keys and values of layer {owner}"
    return ""


def same_values(head: Tensor, table: Tensor | None) -> bool:
    """Whether both hold the same bytes, compared block by block. No other weight is read here."""
    if table is None or (head.dtype, head.shape) != (table.dtype, table.shape):
        return False
    ours, theirs = head.raw(), table.raw()
    return all(
        np.array_equal(ours[start : start + _BLOCK], theirs[start : start + _BLOCK])
        for start in range(0, len(ours), _BLOCK)
    )


def _missing(shapes: Mapping[str, Shape], used: Mapping[str, Tensor], prefix: str) -> list[str]:
    return [prefix + name.removeprefix("model.") for name in shapes if name not in used and name != HEAD] + [
        f"{HEAD} (tie_word_embeddings is false)" for name in shapes if name == HEAD and name not in used
    ]


def misshapen(shapes: Mapping[str, Shape], used: Mapping[str, Tensor]) -> list[str]:
    """The tensors of another shape than the config promises, each with both."""
    return [
        f"{tensor.name} is {list(tensor.shape)}, config.json promises {list(shapes[name])}"
        for name, tensor in used.items()
        if tensor.shape != shapes[name]
    ]


def other_dtypes(used: Mapping[str, Tensor]) -> list[str]:
    """The tensors that are not stored in one of DTYPES."""
    return [
        f"{tensor.name} is {tensor.dtype}, expected {', '.join(DTYPES)} (are the weights quantized?)"
        for tensor in used.values()
        if tensor.dtype not in DTYPES
    ]


def refuse(faults: Mapping[str, list[str]]) -> None:
    """Raise TensorError with all faults, by kind; long lists are cut, and say by how much."""
    lines: list[str] = []
    for kind, found in faults.items():
        lines += [f"{kind}: {fault}" for fault in found[:_SHOWN]]
        lines += [f"{kind}: {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    if lines:
        raise TensorError(
            "the tensors are not those of the model in config.json:\n    " + "\n    ".join(lines),
            at="checkpoint",
            remedy="check that config.json and the weights belong together, and hold nothing else",
        )
