"""The tensors of the vision tower and of the projection behind it: the whole layout in one function."""

from collections.abc import Iterator

from cabochon.gemma4.vision_config import VisionConfig

__all__ = ["vision_shapes"]

Shape = tuple[int, ...]

BOUNDS = ("input_min", "input_max", "output_min", "output_max")


def vision_shapes(config: VisionConfig, width: int) -> dict[str, Shape]:
    """Every tensor by canonical name, that of the published files; linear weights are [out, in].

    `width` is the hidden size of the text model, which the soft tokens are projected to.
    """
    hidden, tower = config.hidden, "model.vision_tower."
    shapes: dict[str, Shape] = {
        f"{tower}patch_embedder.input_proj.weight": (hidden, 3 * config.patch_size**2),
        f"{tower}patch_embedder.position_embedding_table": (2, config.position_embedding_size, hidden),
    }
    for i in range(config.layers):
        shapes |= {f"{tower}encoder.layers.{i}.{name}": shape for name, shape in _layer(config)}
    if config.standardize:
        shapes |= {f"{tower}std_bias": (hidden,), f"{tower}std_scale": (hidden,)}
    return shapes | {"model.embed_vision.embedding_projection.weight": (width, hidden)}


def _layer(config: VisionConfig) -> Iterator[tuple[str, Shape]]:
    hidden, inner, size = config.hidden, config.intermediate, config.head_dim
    queries, keys = config.heads * size, config.kv_heads * size
    yield "input_layernorm.weight", (hidden,)
    yield from _linear(config, "self_attn.q_proj", queries, hidden)
    yield from _linear(config, "self_attn.k_proj", keys, hidden)
    yield from _linear(config, "self_attn.v_proj", keys, hidden)
    yield "self_attn.q_norm.weight", (size,)
    yield "self_attn.k_norm.weight", (size,)
    yield from _linear(config, "self_attn.o_proj", hidden, queries)
    yield "post_attention_layernorm.weight", (hidden,)
    yield "pre_feedforward_layernorm.weight", (hidden,)
    yield from _linear(config, "mlp.gate_proj", inner, hidden)
    yield from _linear(config, "mlp.up_proj", inner, hidden)
    yield from _linear(config, "mlp.down_proj", hidden, inner)
    yield "post_feedforward_layernorm.weight", (hidden,)


def _linear(config: VisionConfig, name: str, out: int, into: int) -> Iterator[tuple[str, Shape]]:
    """A weight, and where linears are clipped the bounds of its input and output, which are scalars."""
    yield f"{name}.linear.weight", (out, into)
    if config.clipped:
        yield from ((f"{name}.{bound}", ()) for bound in BOUNDS)
