"""The tensors of the audio encoder and of the projection behind it: the whole layout in one function."""

from collections.abc import Iterator

from cabochon.gemma4.audio_config import AudioConfig
from cabochon.gemma4.names import Shape

__all__ = ["audio_shapes"]

_BOUNDS = ("input_min", "input_max", "output_min", "output_max")


def audio_shapes(config: AudioConfig, width: int) -> dict[str, Shape]:
    """Every tensor of the audio encoder by canonical name; `width` is the hidden size of the text model.

    Linear weights are [out, in], those of convolutions [out, in, time, mels], of depthwise ones [out, 1, time].
    """
    tower, (first, second) = "model.audio_tower.", config.channels
    subsampling = f"{tower}subsample_conv_projection."
    shapes: dict[str, Shape] = {
        f"{subsampling}layer0.conv.weight": (first, 1, 3, 3),
        f"{subsampling}layer0.norm.weight": (first,),
        f"{subsampling}layer1.conv.weight": (second, first, 3, 3),
        f"{subsampling}layer1.norm.weight": (second,),
        f"{subsampling}input_proj_linear.weight": (config.hidden, config.subsampled_mels * second),
    }
    for i in range(config.layers):
        shapes |= {f"{tower}layers.{i}.{name}": shape for name, shape in _layer_shapes(config)}
    return shapes | {
        f"{tower}output_proj.weight": (config.output, config.hidden),
        f"{tower}output_proj.bias": (config.output,),
        "model.embed_audio.embedding_projection.weight": (width, config.output),
    }


def _layer_shapes(config: AudioConfig) -> Iterator[tuple[str, Shape]]:
    hidden = config.hidden
    yield from _feed_forward_shapes(config, "feed_forward1")
    yield "norm_pre_attn.weight", (hidden,)
    for name in ("q_proj", "k_proj", "v_proj", "post"):
        yield from _clipped(config, f"self_attn.{name}", (hidden, hidden))
    yield "self_attn.relative_k_proj.weight", (hidden, hidden)
    yield "self_attn.per_dim_scale", (config.head_dim,)
    yield "norm_post_attn.weight", (hidden,)
    yield "lconv1d.pre_layer_norm.weight", (hidden,)
    yield from _clipped(config, "lconv1d.linear_start", (2 * hidden, hidden))
    yield "lconv1d.depthwise_conv1d.weight", (hidden, 1, config.conv_kernel)
    yield "lconv1d.conv_norm.weight", (hidden,)
    yield from _clipped(config, "lconv1d.linear_end", (hidden, hidden))
    yield from _feed_forward_shapes(config, "feed_forward2")
    yield "norm_out.weight", (hidden,)


def _feed_forward_shapes(config: AudioConfig, name: str) -> Iterator[tuple[str, Shape]]:
    hidden = config.hidden
    yield f"{name}.pre_layer_norm.weight", (hidden,)
    yield from _clipped(config, f"{name}.ffw_layer_1", (4 * hidden, hidden))
    yield from _clipped(config, f"{name}.ffw_layer_2", (hidden, 4 * hidden))
    yield f"{name}.post_layer_norm.weight", (hidden,)


def _clipped(config: AudioConfig, name: str, shape: Shape) -> Iterator[tuple[str, Shape]]:
    """A linear map and, where the config asks for them, the bounds of what goes in and what comes out."""
    yield f"{name}.linear.weight", shape
    if config.clipped:
        yield from ((f"{name}.{bound}", ()) for bound in _BOUNDS)
