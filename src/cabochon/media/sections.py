"""One section of a processor's configuration to the processor it describes. Absent keys are transformers' defaults."""

import math

from cabochon.media.audio import AudioProcessor
from cabochon.media.image import ImageProcessor
from cabochon.media.keys import AUDIO_KEYS, IMAGE_KEYS, RAW_AUDIO_KEYS, VIDEO_KEYS
from cabochon.media.log_mel import LogMel
from cabochon.media.patches import SOFT_TOKENS, Normalization, Patching
from cabochon.media.raw_frames import RawFrames
from cabochon.media.video import VideoProcessor
from cabochon.section import Section

__all__ = [
    "audio_processor",
    "image_processor",
    "merged_image_processor",
    "merged_video_processor",
    "raw_audio_processor",
    "video_processor",
]

_BICUBIC = 3  # Pillow's number
_MOST_SAMPLES = 1_000_000  # of a second, or of a frame
_LARGEST = 4096  # side of a patch, bands, patches along a pool: far beyond any model, and no overflow


def image_processor(section: Section) -> ImageProcessor:
    """An `image_processor` whose patches the encoder pools. Raises ConfigError."""
    section.refuse_unknown(IMAGE_KEYS)
    return ImageProcessor(_patching(section, budget=280, normalized=False))


def merged_image_processor(section: Section) -> ImageProcessor:
    """An `image_processor` that puts together itself what others leave to be pooled. Raises ConfigError."""
    return ImageProcessor(image_processor(section).patching.merged())


def video_processor(section: Section) -> VideoProcessor:
    """A `video_processor` whose patches the encoder pools. Raises ConfigError."""
    section.refuse_unknown(VIDEO_KEYS)
    section.refuse_other("fps", (None,), VIDEO_KEYS["fps"])
    frames = section.integer("num_frames", 32, maximum=_LARGEST)
    sampling = section.flag("do_sample_frames", True)
    return VideoProcessor(_patching(section, budget=70, normalized=True), frames if sampling else None)


def merged_video_processor(section: Section) -> VideoProcessor:
    """As `merged_image_processor`. Raises ConfigError."""
    pooled = video_processor(section)
    return VideoProcessor(pooled.patching.merged(), pooled.num_frames)


def _patching(section: Section, *, budget: int, normalized: bool) -> Patching:
    """`budget` and `normalized` are transformers' defaults, which differ between images and videos."""
    for key in ("do_resize", "do_rescale", "do_convert_rgb"):
        section.refuse_other(key, (True,), "the encoder takes RGB in [0, 1] that fits the patches")
    section.refuse_other("resample", (_BICUBIC,), "no other filter than bicubic is known")
    for key in ("size", "crop_size", "pad_size"):
        section.refuse_other(key, (None,), "the patch budget says how large an image becomes")
    for key in ("do_center_crop", "do_pad"):
        section.refuse_other(key, (False,), "nothing is cropped or padded in pixels")
    tokens = section.integer("max_soft_tokens", budget, maximum=max(SOFT_TOKENS))
    section.refuse_other("max_soft_tokens", SOFT_TOKENS, "Gemma 4 knows no other budgets")
    return Patching(
        section.integer("patch_size", 16, maximum=_LARGEST),
        section.integer("pooling_kernel_size", 3, maximum=_LARGEST),
        tokens,
        section.number("rescale_factor", 1 / 255, minimum=0.0, maximum=1.0, above=True),
        _normalization(section) if section.flag("do_normalize", normalized) else None,
    )


def _normalization(section: Section) -> Normalization:
    mean = section.numbers("image_mean", 3) or (0.0, 0.0, 0.0)
    std = section.numbers("image_std", 3) or (1.0, 1.0, 1.0)
    if min(std) <= 0:
        raise section.error("image_std", f"is {list(std)}; expected numbers above 0")
    return Normalization((mean[0], mean[1], mean[2]), (std[0], std[1], std[2]))


def audio_processor(section: Section) -> AudioProcessor:
    """A `feature_extractor` that makes spectrograms. Raises ConfigError."""
    section.refuse_unknown(AUDIO_KEYS)
    section.refuse_other("dither", (0.0, 0), "noise would make every run another")
    _require_silence(section)
    bands = section.integer("feature_size", 128, maximum=_LARGEST)
    low = section.number("min_frequency", 0.0, minimum=0.0, maximum=1e6)
    high = section.number("max_frequency", 8000.0, minimum=low, maximum=1e6, above=True)
    stddev = section.numbers("per_bin_stddev", bands)
    if stddev is not None and 0.0 in stddev:
        raise section.error("per_bin_stddev", "holds a 0, which nothing can be divided by")
    rate, frame, hop, fft = _lengths(section)
    return AudioProcessor(
        LogMel(
            bands=bands,
            sampling_rate=rate,
            frame_length=frame,
            hop_length=hop,
            fft_length=fft,
            min_frequency=low,
            max_frequency=high,
            mel_floor=section.number("mel_floor", 1e-3, minimum=0.0, maximum=1e6, above=True),
            preemphasis=section.number("preemphasis", 0.0, minimum=0.0, maximum=1.0),
            htk_preemphasis=section.flag("preemphasis_htk_flavor", True),
            scale=section.number("input_scale_factor", 1.0, minimum=0.0, maximum=1e6, above=True),
            mean=section.numbers("per_bin_mean", bands),
            stddev=stddev,
        )
    )


def raw_audio_processor(section: Section) -> AudioProcessor:
    """A `feature_extractor` that leaves samples as they are. Raises ConfigError."""
    section.refuse_unknown(RAW_AUDIO_KEYS)
    _require_silence(section)
    width = section.integer("audio_samples_per_token", 640, maximum=_MOST_SAMPLES)
    section.refuse_other("feature_size", (width,), RAW_AUDIO_KEYS["feature_size"])
    return AudioProcessor(RawFrames(width, _rate(section)))


def _require_silence(section: Section) -> None:
    section.refuse_other("padding_value", (0.0, 0), "padding is silence")
    section.refuse_other("padding_side", ("right",), "padding comes last")


def _rate(section: Section) -> int:
    return section.integer("sampling_rate", 16_000, maximum=_MOST_SAMPLES)


def _lengths(section: Section) -> tuple[int, int, int, int]:
    """Sampling rate; lengths of a frame, of a hop and of the transform in samples.

    transformers computes all three and, when it reads a file, passes over those that the file holds.
    """
    rate = _rate(section)
    frame = _samples(section, "frame_length", rate, 20.0)
    hop = _samples(section, "hop_length", rate, 10.0)
    fft = 2 ** math.ceil(math.log2(frame)) * (2 if section.flag("fft_overdrive", False) else 1)
    section.refuse_other("fft_length", (fft,), f"the power of two for frames of {frame} samples")
    return rate, frame, hop, fft


def _samples(section: Section, key: str, rate: int, default: float) -> int:
    milliseconds = section.number(f"{key}_ms", default, minimum=0.0, maximum=10_000.0, above=True)
    samples = round(rate * milliseconds / 1000)
    if samples < 1:
        raise section.error(f"{key}_ms", f"is {milliseconds:g}, less than a sample at {rate} Hz")
    section.refuse_other(key, (samples,), f"{milliseconds:g} ms at {rate} Hz")
    return samples
