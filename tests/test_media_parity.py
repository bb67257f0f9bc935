"""Against transformers' own processors, live.

Its torchvision backend is what is equalled to the bit. Where torchvision is absent, its kernel (ATen's) is called
directly, and put in the place of Pillow's in the other backend.
"""

import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cabochon.media import AudioProcessor, ImageProcessor
from cabochon.media.footage import sampled
from cabochon.media.patches import SOFT_TOKENS, Patching
from cabochon.media.resize import resized
from cabochon.media.sections import (
    audio_processor,
    merged_image_processor,
    merged_video_processor,
    raw_audio_processor,
)
from cabochon.media.video import clock
from cabochon.section import Section
from pictures import REAL, picture, tone

pytestmark = pytest.mark.parity

SIDE = st.integers(1, 300)
TARGET = st.integers(2, 300)  # torch 2.13 fails an assertion of its own where one pixel comes out
PILLOW = "transformers.models.gemma4.image_processing_pil_gemma4"


def interpolated(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """uint8 [H, W, C] as torchvision resizes it: bicubic, antialiased, on the CPU."""
    import torch

    planes = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))[None]
    made = torch.nn.functional.interpolate(planes, (height, width), mode="bicubic", antialias=True)
    return made[0].permute(1, 2, 0).numpy()


@settings(deadline=None, max_examples=80)
@given(SIDE, SIDE, TARGET, TARGET, st.integers(0, 2**32 - 1))
def test_the_resampler_is_torchs(height: int, width: int, to_height: int, to_width: int, seed: int):
    random = np.random.default_rng(seed)
    image = random.integers(0, 256, (height, width, 3), np.uint8)
    if seed % 2:
        image = (image > 127).astype(np.uint8) * 255
    np.testing.assert_array_equal(
        resized(image, to_height, to_width), interpolated(image, to_height, to_width)
    )


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Gemma4ImageProcessorPil with torch's kernel."""
    from importlib import import_module

    module = import_module(PILLOW)

    def resize(image: np.ndarray, size: tuple[int, int], resample: Any) -> np.ndarray:
        return interpolated(image.transpose(1, 2, 0), *size).transpose(2, 0, 1)

    monkeypatch.setattr(module, "resize", resize)
    yield module.Gemma4ImageProcessorPil()


def shapes() -> Iterator[tuple[int, int, int]]:
    random = np.random.default_rng(5)
    for budget in SOFT_TOKENS:
        for height, width in np.exp(random.uniform(0, 7, (4, 2))).astype(int) + 1:
            yield int(height), int(width), budget


@pytest.mark.parametrize(("height", "width", "budget"), list(shapes()))
def test_images(height: int, width: int, budget: int, theirs: Any):
    """Values differ in the last bit at most: that backend multiplies in float64."""
    image = picture(height, width)
    expected = theirs(Image.fromarray(image), max_soft_tokens=budget, return_tensors="np")
    made = ImageProcessor(REAL)(image, max_soft_tokens=budget)
    np.testing.assert_allclose(made.pixel_values, expected["pixel_values"], rtol=0, atol=6e-8)
    np.testing.assert_array_equal(made.pixel_position_ids, expected["image_position_ids"])
    assert made.tokens == tuple(int(n) for n in expected["num_soft_tokens_per_image"])


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L", "1", "CMYK", "PA", "YCbCr", "HSV"])
def test_modes(mode: str, theirs: Any):
    image = Image.fromarray(picture(70, 50, 4))
    image = (
        image.convert(mode)
        if mode in ("RGBA", "LA")
        else image.convert("LA" if mode == "PA" else "RGB").convert(mode)
    )
    expected = theirs(image, return_tensors="np")["pixel_values"]
    np.testing.assert_allclose(ImageProcessor(REAL)(image).pixel_values, expected, rtol=0, atol=6e-8)


def test_how_far_pillow_is_away():
    """Measured: on noise 2 of 255 where both sides grow or shrink alike, 12 where Pillow takes rows before columns."""
    worst = 0
    for size, target in (((480, 640), (672, 912)), ((1000, 1500), (624, 960)), ((20, 90), (12, 204))):
        image = np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8)
        pillow = np.asarray(Image.fromarray(image).resize(target[::-1], Image.Resampling.BICUBIC))
        worst = max(worst, int(np.abs(resized(image, *target).astype(int) - pillow).max()))
    assert 1 <= worst <= 16


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"feature_size": 64, "sampling_rate": 22_050},
        {"preemphasis": 0.97},
        {"preemphasis": 0.97, "preemphasis_htk_flavor": False},
        {"fft_overdrive": True, "input_scale_factor": 0.5},
        {"frame_length_ms": 32.0, "hop_length_ms": 12.5, "mel_floor": 1e-5, "min_frequency": 125.0},
        {"per_bin_mean": [0.5] * 127 + [-2.0], "per_bin_stddev": [2.0] * 127 + [0.5]},
    ],
)
@pytest.mark.parametrize("lengths", [(16_000,), (300,), (5000, 12_345, 700), (480_001, 600_000)])
def test_audio(values: dict[str, Any], lengths: tuple[int, ...]):
    from transformers import Gemma4AudioFeatureExtractor

    clips = [tone(n) + 0.1 * np.random.default_rng(n).standard_normal(n).astype(np.float32) for n in lengths]
    expected = Gemma4AudioFeatureExtractor(**values)(clips, return_tensors="np")
    made = audio_processor(Section(values, "values"))(clips)
    np.testing.assert_allclose(made.input_features, expected["input_features"], rtol=0, atol=1e-4)
    np.testing.assert_array_equal(made.input_features_mask, expected["input_features_mask"])
    assert made.tokens == tuple(int(mask[::2][::2].sum()) for mask in expected["input_features_mask"])


@pytest.mark.parametrize(
    "values", [{}, {"audio_samples_per_token": 7, "feature_size": 7, "sampling_rate": 8000}]
)
@pytest.mark.parametrize("lengths", [(1,), (640,), (641,), (5000, 12_345, 700), (480_001, 5)])
def test_raw_frames(values: dict[str, Any], lengths: tuple[int, ...]):
    """To the bit: nothing is computed. The frames that fill up a batch are zeros, and masked."""
    from transformers import Gemma4UnifiedAudioFeatureExtractor

    clips = [tone(n) for n in lengths]
    expected = Gemma4UnifiedAudioFeatureExtractor(**values)(clips, return_tensors="np")
    made = raw_audio_processor(Section(values, "values"))(clips)
    np.testing.assert_array_equal(made.input_features, expected["input_features"])
    np.testing.assert_array_equal(made.input_features_mask, expected["input_features_mask"])
    assert made.tokens == tuple(int(mask.sum()) for mask in expected["input_features_mask"])


HALVED = {"do_normalize": True, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.5, 0.25, 0.2]}


@pytest.fixture(scope="module")
def functions() -> SimpleNamespace:
    """What transformers calls of torchvision: a resize whose kernel is torch's, and a line of arithmetic."""
    import torch

    def resize(image: Any, size: Any, **_: Any) -> Any:
        planes = image if image.ndim == 4 else image[None]
        made = torch.nn.functional.interpolate(planes, tuple(size), mode="bicubic", antialias=True)
        return made if image.ndim == 4 else made[0]

    def normalize(image: Any, mean: Any, std: Any, **_: Any) -> Any:
        mean, std = (torch.as_tensor(x, dtype=image.dtype)[:, None, None] for x in (mean, std))
        return (image - mean) / std

    return SimpleNamespace(resize=resize, normalize=normalize, InterpolationMode=object)


def prepared(kind: str, functions: SimpleNamespace, pixels: Any, **values: Any) -> Any:
    """What Gemma4UnifiedImageProcessor or VideoProcessor makes, their own code but for `functions`."""
    name, base = {
        "Image": ("image_processing_gemma4_unified", "image_processing_backends"),
        "Video": ("video_processing_gemma4_unified", "video_processing_utils"),
    }[kind]
    import_module(
        f"transformers.{base}"
    )  # asks whether torchvision is there, before something stands in for it
    modules = {
        n: ModuleType(n) for n in ("torchvision", "torchvision.transforms", "torchvision.transforms.v2")
    }
    vars(modules["torchvision.transforms.v2"])["functional"] = functions
    with pytest.MonkeyPatch.context() as patch:
        for key, module in modules.items():
            patch.setitem(sys.modules, key, module)
        module = import_module(f"transformers.models.gemma4_unified.{name}")
        for one in (
            module,
            *map(sys.modules.get, ("transformers.image_processing_backends", f"transformers.{base}")),
        ):
            patch.setattr(one, "tvF", functions, raising=False)
        processor = getattr(module, f"Gemma4Unified{kind}Processor")(**values)
        keys = ("do_resize", "resample", "do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std",
                "patch_size", "max_soft_tokens", "pooling_kernel_size")  # fmt: skip
        said = {key: getattr(processor, key) for key in keys}
        for key in ("image_mean", "image_std"):
            said[key] = tuple(said[key])
        return processor._preprocess(pixels, **said, return_tensors="np")


@pytest.mark.parametrize(
    "values", [{}, {"max_soft_tokens": 70, **HALVED}, {"patch_size": 4, "pooling_kernel_size": 5}]
)
def test_images_of_the_unified_model(values: dict[str, Any], functions: SimpleNamespace):
    import torch

    images = [picture(*size) for size in ((480, 640), (37, 300), (200, 9), (3, 400))]
    planes = [torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1))) for image in images]
    expected = prepared("Image", functions, planes, **values)
    made = merged_image_processor(Section(values, "values"))(images)
    np.testing.assert_array_equal(made.pixel_values, expected["pixel_values"])
    np.testing.assert_array_equal(made.pixel_position_ids, expected["image_position_ids"])
    assert made.tokens == tuple(int(n) for n in expected["num_soft_tokens_per_image"])


@pytest.mark.parametrize(
    "values", [{}, {"max_soft_tokens": 140, **HALVED}, {"do_normalize": False, "patch_size": 4}]
)
def test_videos_of_the_unified_model(values: dict[str, Any], functions: SimpleNamespace):
    """Two in a call, of different shape and length: what they take as one row of frames is made one by one here."""
    import torch

    videos = [
        np.stack([np.roll(picture(*size), n, 1) for n in range(count)])
        for size, count in (((45, 80), 3), ((70, 50), 2))
    ]
    planes = [torch.from_numpy(np.ascontiguousarray(video.transpose(0, 3, 1, 2))) for video in videos]
    expected = prepared("Video", functions, planes, **values)
    made = [merged_video_processor(Section(values, "values"))(video, fps=24.0) for video in videos]
    for key, name in (("pixel_values", "pixel_values_videos"), ("pixel_position_ids", "video_position_ids")):
        np.testing.assert_array_equal(np.concatenate([getattr(one, key) for one in made]), expected[name])
    assert [one.tokens[0] for one in made] == list(expected["num_soft_tokens_per_video"])
    assert [len(one.tokens) for one in made] == list(expected["num_frames_per_video"])


def test_files_are_loaded_as_theirs(tmp_path: Any):
    import soundfile
    from transformers.audio_utils import load_audio as their_load

    from cabochon.media import load_audio

    for rate, channels, kind in (
        (44_100, 2, "wav"),
        (22_050, 1, "flac"),
        (8000, 1, "wav"),
        (48_000, 3, "flac"),
    ):
        samples = np.stack([tone(rate // 2, rate, 200.0 * (i + 1)) for i in range(channels)], 1)
        soundfile.write(tmp_path / f"sound.{kind}", samples, rate)
        expected = their_load(str(tmp_path / f"sound.{kind}"), 16_000, backend="soundfile")
        np.testing.assert_allclose(
            load_audio(tmp_path / f"sound.{kind}", 16_000), expected, rtol=0, atol=1e-6
        )


def test_a_full_clip_has_750_tokens():
    assert AudioProcessor(audio_processor(Section({}, "")).features).tokens(480_000) == 750


@pytest.mark.parametrize(
    ("total", "count", "fps"), [(100, 32, 29.97), (33, 32, 0.5), (32, 32, 24.0), (7, 3, 1.0)]
)
def test_sampling_and_clocks(total: int, count: int, fps: float):
    from transformers.video_utils import VideoMetadata, default_sample_indices_fn

    metadata = VideoMetadata(total_num_frames=total, fps=fps)
    indices = default_sample_indices_fn(metadata, num_frames=count)
    assert sampled(total, count) == indices.tolist()
    metadata.frames_indices = indices
    for index, seconds in zip(indices, metadata.timestamps, strict=True):
        assert clock(index / fps) == f"{int(seconds // 60):02d}:{int(seconds % 60):02d}"


def test_the_torchvision_backend_where_there_is_one():
    pytest.importorskip("torchvision", reason="torchvision is absent; its kernel is compared above")
    from transformers import Gemma4ImageProcessor

    image = picture(300, 500)
    expected = Gemma4ImageProcessor()(Image.fromarray(image), return_tensors="np")["pixel_values"]
    np.testing.assert_array_equal(ImageProcessor(Patching(16, 3, 280))(image).pixel_values, expected)
