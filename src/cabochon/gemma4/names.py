"""The tensors of the text model: their layout, and the spellings under which checkpoints hold them.

Inside cabochon a tensor has the name of the text-only class (`model.layers.{i}...`). Every tensor of a checkpoint is
used, or unused with a reason; any other is an error. Ownership of keys and values comes from the config, never from
the presence of tensors: published files hold K/V of layers that borrow.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cabochon.checkpoint import Tensor
from cabochon.errors import TensorError
from cabochon.gemma4.config import Layer, TextConfig

__all__ = ["HEAD", "TextTensors", "expected_shapes", "text_tensors"]

HEAD, TABLE = "lm_head.weight", "model.embed_tokens.weight"
PREFIXES = ("model.language_model.", "language_model.model.", "model.", "")
HEADS = (HEAD, "language_model.lm_head.weight", "model.language_model.lm_head.weight", "model.lm_head.weight")
DTYPES = ("BF16", "F16", "F32")

_TOWERS = re.compile(r"(?:model\.)?(vision_tower|embed_vision|audio_tower|embed_audio)\.")
_KEYS_AND_VALUES = re.compile(r"model\.layers\.(\d+)\.self_attn\.(?:k_proj|v_proj|k_norm)\.weight")


@dataclass(frozen=True)
class TextTensors:
    """`used` by canonical name, in the order of `expected_shapes`; `unused`: the file's name and the reason."""

    used: Mapping[str, Tensor]
    unused: Mapping[str, str]


def expected_shapes(config: TextConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of the text model by canonical name: the whole layout in one function.

    H hidden, E size of per-layer inputs, L layers; linear weights are [out, in]. The head is listed where it is untied.
    """
    hidden, extra, layers = config.hidden, config.per_layer_input, len(config.layers)
    shapes: dict[str, tuple[int, ...]] = {TABLE: (config.vocab, hidden)}
    if extra:
        shapes |= {
            "model.embed_tokens_per_layer.weight": (config.vocab_per_layer, layers * extra),
            "model.per_layer_model_projection.weight": (layers * extra, hidden),
            "model.per_layer_projection_norm.weight": (extra,),
        }
    for i, layer in enumerate(config.layers):
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in _layer_shapes(config, layer)}
    shapes["model.norm.weight"] = (hidden,)
    return shapes if config.tied else shapes | {HEAD: (config.vocab, hidden)}


def _layer_shapes(config: TextConfig, layer: Layer) -> Iterator[tuple[str, tuple[int, ...]]]:
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
    if extra:
        yield "per_layer_input_gate.weight", (extra, hidden)
        yield "per_layer_projection.weight", (hidden, extra)
        yield "post_per_layer_input_norm.weight", (hidden,)
    yield "layer_scalar", (1,)


def text_tensors(tensors: Mapping[str, Tensor], config: TextConfig) -> TextTensors:
    """Give every tensor its canonical name or the reason why it is unused.

    Raises TensorError that names every tensor that is missing, unknown, of another shape than the config promises,
    or of a dtype other than BF16, F16 and F32.
    """
    shapes = expected_shapes(config)
    prefix = _prefix(tensors, shapes)
    used: dict[str, Tensor] = {}
    unused: dict[str, str] = {}
    unknown: list[str] = []
    for name, tensor in tensors.items():
        canonical = _canonical(name, prefix)
        if canonical in shapes or canonical == HEAD:
            used[canonical] = tensor
        elif reason := _reason(name, canonical, config):
            unused[name] = reason
        else:
            unknown.append(name)
    if config.tied and HEAD in used and _same_values(used[HEAD], used.get(TABLE)):
        unused[used.pop(HEAD).name] = "the head is tied: these are the bytes of embed_tokens.weight"
    if HEAD in used:
        shapes |= {HEAD: (config.vocab, config.hidden)}
    _refuse(_missing(shapes, used, prefix) + [f"unknown: {name}" for name in unknown] + _wrong(shapes, used))
    return TextTensors({name: used[name] for name in shapes}, unused)


def _prefix(tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The prefix under which the text model is stored: the one that explains most names."""
    inner = [name.removeprefix("model.") for name in shapes if name != HEAD]
    found = {prefix: sum(prefix + name in tensors for name in inner) for prefix in PREFIXES}
    best = max(found, key=lambda prefix: found[prefix])
    if not found[best]:
        raise TensorError(
            f"none of the {len(tensors)} tensors belongs to a Gemma 4 text model; expected names such as "
            + ", ".join(f"{prefix}embed_tokens.weight" for prefix in PREFIXES),
            at="checkpoint", remedy="check that config.json and the weights belong together",
        )  # fmt: skip
    return best


def _canonical(name: str, prefix: str) -> str:
    if name in HEADS:
        return HEAD
    return "model." + name.removeprefix(prefix) if name.startswith(prefix) else ""


def _reason(name: str, canonical: str, config: TextConfig) -> str:
    """Why a tensor that the text model does not use may be there; "" if nothing explains it."""
    if tower := _TOWERS.match(name):
        return f"{tower[1]} is not part of a text model"
    layer = _KEYS_AND_VALUES.fullmatch(canonical)
    if layer and config.first_shared <= int(layer[1]) < len(config.layers):
        owner = config.layers[int(layer[1])].cache
        return f"layer {layer[1]} borrows the keys and values of layer {owner}"
    return ""


def _same_values(head: Tensor, table: Tensor | None) -> bool:
    same_kind = table is not None and (head.dtype, head.shape) == (table.dtype, table.shape)
    return same_kind and bytes(head.array().data) == bytes(table.array().data)


def _missing(shapes: Mapping[str, tuple[int, ...]], used: Mapping[str, Tensor], prefix: str) -> list[str]:
    return [f"missing: {prefix}{name.removeprefix('model.')}" for name in shapes if name not in used]


def _wrong(shapes: Mapping[str, tuple[int, ...]], used: Mapping[str, Tensor]) -> list[str]:
    wrong = []
    for name, tensor in used.items():
        if tensor.shape != shapes[name]:
            wrong.append(f"wrong shape: {tensor.name} is {list(tensor.shape)}, config.json promises {list(shapes[name])}")
        if tensor.dtype not in DTYPES:
            wrong.append(f"wrong dtype: {tensor.name} is {tensor.dtype}, expected {', '.join(DTYPES)}")
    return wrong


def _refuse(faults: list[str]) -> None:
    if faults:
        raise TensorError(
            f"{len(faults)} faults between the tensors and config.json:\n    " + "\n    ".join(faults),
            at="checkpoint", remedy="check that config.json and the weights belong together, and that the weights are not quantized",
        )  # fmt: skip
