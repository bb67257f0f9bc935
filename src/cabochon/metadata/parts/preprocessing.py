"""How images and sound become tensors, as programs of generic operations."""

from cabochon.metadata.parts.part import Count, Dtype, Filled, Open, Positive, Text, Tuple
from cabochon.metadata.parts.tensors import TensorContract

__all__ = [
    "AudioOutput",
    "AudioProgram",
    "AudioTransform",
    "ImageOutput",
    "ImageProgram",
    "ImageTransform",
    "Preprocessing",
    "Size",
    "VideoProgram",
]


class Size(Open):
    """Height and width in pixels."""

    height: Count
    width: Count


class ImageTransform(Open):
    """One operation on images."""

    op: Text
    inputs: Filled[Text] | None = None
    outputs: Filled[Text] | None = None
    size: Count | Size | None = None
    mode: Text | None = None
    interpolation: Text | None = None
    min_pixels: Positive | None = None
    max_pixels: Positive | None = None
    size_multiple: Positive | None = None
    max_patches: Positive | None = None
    pooling_kernel_size: Positive | None = None
    scale: float | None = None
    mean: Tuple[float] | None = None
    std: Tuple[float] | None = None
    tile_size: Positive | None = None
    max_tiles: Positive | None = None
    include_thumbnail: bool | None = None
    thumbnail_order: Text | None = None
    thumbnail_interpolation: Text | None = None
    mask_patch_size: Positive | None = None
    patch_size: Positive | None = None
    temporal_patch_size: Positive | None = None
    merge_size: Positive | None = None
    channel_order: Text | None = None
    temporal_order: Text | None = None
    patch_order: Text | None = None
    coordinate_order: Text | None = None
    flatten: bool | None = None
    pad_value: float | None = None
    canvas_pad_value: float | None = None
    target_length: Positive | None = None


class ImageOutput(Open):
    """A tensor that an image program makes."""

    source: Text
    name: Text
    content: Text
    dtype: Dtype
    contract: TensorContract | None = None
    pad_value: float | None = None
    optional: bool | None = None


class ImageProgram(Open):
    """Operations in their order, and what comes out."""

    transforms: Tuple[ImageTransform] = ()
    outputs: Filled[ImageOutput]


class AudioTransform(Open):
    """One operation on sound."""

    op: Text
    inputs: Filled[Text] | None = None
    outputs: Filled[Text] | None = None
    sample_rate: Positive | None = None
    channels: Positive | None = None
    epsilon: float | None = None
    scale: float | None = None
    mode: Text | None = None
    pad_value: float | None = None
    target_length: Positive | None = None
    num_mel_bins: Positive | None = None
    n_fft: Positive | None = None
    hop_length: Positive | None = None
    win_length: Positive | None = None
    window: Text | None = None
    mel_scale: Text | None = None


class AudioOutput(Open):
    """A tensor that a sound program makes."""

    source: Text
    name: Text
    content: Text
    dtype: Dtype
    rank: Count | None = None
    contract: TensorContract | None = None
    pad_value: float | None = None
    optional: bool | None = None


class AudioProgram(Open):
    """Operations in their order, and what comes out."""

    transforms: Tuple[AudioTransform] = ()
    outputs: Filled[AudioOutput]


class VideoProgram(Open):
    """Video, v1.1 and later."""


class Preprocessing(Open):
    """The programs."""

    image: ImageProgram | None = None
    audio: AudioProgram | None = None
    video: VideoProgram | None = None
