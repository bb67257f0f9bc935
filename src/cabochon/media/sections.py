"""One section of a processor's configuration to the processor it describes. Absent keys are transformers' defaults."""

import math

from cabochon.media.audio import AudioProcessor
from cabochon.media.image import ImageProcessor
from cabochon.media.keys import AUDIO_KEYS, IMAGE_KEYS, VIDEO_KEYS
from cabochon.media.log_mel import LogMel
from cabochon.media.patches import SOFT_TOKENS, Normalization, Patching
from cabochon.media.settings import Settings
from cabochon.media.video import VideoProcessor

__all__ = ["audio_processor", "image_processor", "video_processor"]

_BICUBIC = 3  # Pillow's number
_LARGEST = 4096  # side of a patch, bands, patches along a pool: far beyond any model, and no overflow


def image_processor(settings: Settings) -> ImageProcessor:
    """An `image_processor`. Raises ConfigError."""
    settings.refuse_unknown(IMAGE_KEYS)
    return ImageProcessor(_patching(settings, budget=280, normalized=False))


def video_processor(settings: Settings) -> VideoProcessor:
    """A `video_processor`. Raises ConfigError."""
    settings.refuse_unknown(VIDEO_KEYS)
    settings.refuse_other("fps", (), VIDEO_KEYS["fps"])
    frames = settings.integer("num_frames", 32, _LARGEST)
    sampling = settings.flag("do_sample_frames", True)
    return VideoProcessor(_patching(settings, budget=70, normalized=True), frames if sampling else None)


def _patching(settings: Settings, *, budget: int, normalized: bool) -> Patching:
    """`budget` and `normalized` are transformers' defaults, which differ between images and videos."""
    for key in ("do_resize", "do_rescale", "do_convert_rgb"):
        settings.refuse_other(key, (True,), "the encoder takes RGB in [0, 1] that fits the patches")
    settings.refuse_other("resample", (_BICUBIC,), "no other filter than bicubic is known")
    for key in ("size", "crop_size", "pad_size"):
        settings.refuse_other(key, (), "the patch budget says how large an image becomes")
    for key in ("do_center_crop", "do_pad"):
        settings.refuse_other(key, (False,), "nothing is cropped or padded in pixels")
    tokens = settings.integer("max_soft_tokens", budget, max(SOFT_TOKENS))
    settings.refuse_other("max_soft_tokens", SOFT_TOKENS, "Gemma 4 knows no other budgets")
    return Patching(
        settings.integer("patch_size", 16, _LARGEST),
        settings.integer("pooling_kernel_size", 3, _LARGEST),
        tokens,
        settings.number("rescale_factor", 1 / 255, 0.0, 1.0, above=True),
        _normalization(settings) if settings.flag("do_normalize", normalized) else None,
    )


def _normalization(settings: Settings) -> Normalization:
    mean = settings.numbers("image_mean", 3) or (0.0, 0.0, 0.0)
    std = settings.numbers("image_std", 3) or (1.0, 1.0, 1.0)
    if min(std) <= 0:
        raise settings.error("image_std", f"is {list(std)}; expected numbers above 0")
    return Normalization((mean[0], mean[1], mean[2]), (std[0], std[1], std[2]))


def audio_processor(settings: Settings) -> AudioProcessor:
    """A `feature_extractor`. Raises ConfigError."""
    settings.refuse_unknown(AUDIO_KEYS)
    settings.refuse_other("dither", (0.0, 0), "noise would make every run another")
    settings.refuse_other("padding_value", (0.0, 0), "padding is silence")
    settings.refuse_other("padding_side", ("right",), "padding comes last")
    bands = settings.integer("feature_size", 128, _LARGEST)
    low = settings.number("min_frequency", 0.0, 0.0, 1e6)
    high = settings.number("max_frequency", 8000.0, low, 1e6, above=True)
    stddev = settings.numbers("per_bin_stddev", bands)
    if stddev is not None and 0.0 in stddev:
        raise settings.error("per_bin_stddev", "holds a 0, which nothing can be divided by")
    rate, frame, hop, fft = _lengths(settings)
    return AudioProcessor(
        LogMel(
            bands=bands,
            sampling_rate=rate,
            frame_length=frame,
            hop_length=hop,
            fft_length=fft,
            min_frequency=low,
            max_frequency=high,
            mel_floor=settings.number("mel_floor", 1e-3, 0.0, 1e6, above=True),
            preemphasis=settings.number("preemphasis", 0.0, 0.0, 1.0),
            htk_preemphasis=settings.flag("preemphasis_htk_flavor", True),
            scale=settings.number("input_scale_factor", 1.0, 0.0, 1e6, above=True),
            mean=settings.numbers("per_bin_mean", bands),
            stddev=stddev,
        )
    )


def _lengths(settings: Settings) -> tuple[int, int, int, int]:
    """Sampling rate; lengths of a frame, of a hop and of the transform in samples.

    transformers computes all three and, when it reads a file, passes over those that the file holds.
    """
    rate = settings.integer("sampling_rate", 16_000, 1_000_000)
    frame = _samples(settings, "frame_length", rate, 20.0)
    hop = _samples(settings, "hop_length", rate, 10.0)
    fft = 2 ** math.ceil(math.log2(frame)) * (2 if settings.flag("fft_overdrive", False) else 1)
    settings.refuse_other("fft_length", (fft,), f"the power of two for frames of {frame} samples")
    return rate, frame, hop, fft


def _samples(settings: Settings, key: str, rate: int, default: float) -> int:
    milliseconds = settings.number(f"{key}_ms", default, 0.0, 10_000.0, above=True)
    samples = round(rate * milliseconds / 1000)
    if samples < 1:
        raise settings.error(f"{key}_ms", f"is {milliseconds:g}, less than a sample at {rate} Hz")
    settings.refuse_other(key, (samples,), f"{milliseconds:g} ms at {rate} Hz")
    return samples
