"""Encoders: what they are given, how much at once, and what they must give back."""

import gc
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cabochon
from cabochon.errors import PackageError, RequestError
from cabochon.runtime import Model, encoders
from cabochon.runtime.encoders import Encoders, groups
from cabochon.runtime.soft import AUDIO, VISION, Medium
from full_packages import recorded_inputs, small
from packages import Packages


def image(patches: int, seed: int = 0) -> Medium:
    return Medium(VISION, {"pixel_values": np.full((patches, 3), seed, np.float32)}, 1)


def clip(frames: int) -> Medium:
    return Medium(AUDIO, {"input_features": np.zeros((frames, 3), np.float32)}, 1)


@pytest.mark.parametrize(
    ("sizes", "calls"),
    [
        ([2520], [1]),
        ([2520, 2520], [1, 1]),
        ([10080], [1]),
        ([630] * 8, [6, 2]),
        ([630, 630, 90, 630], [2, 1, 1]),
        ([], []),
    ],
)
def test_calls_are_bounded(sizes: list[int], calls: list[int]):
    made = [image(size, seed) for seed, size in enumerate(sizes)]
    assert [len(group) for group in groups(made)] == calls
    assert [medium for group in groups(made) for medium in group] == made


def test_sound_and_pictures_go_to_their_own():
    assert [len(g) for g in groups([image(9), clip(9), clip(9), image(9)])] == [1, 2, 1]


def test_padding_is_cut_off_and_changes_nothing(packages: Packages):
    model, made = packages.model("tiny-full"), recorded_inputs("two")
    media = model.encode_images(made["pixel_values"], made["image_position_ids"])
    assert [len(m.arrays["pixel_values"]) for m in media] == [51 * 9, 60 * 9]
    order = np.random.default_rng(0).permutation(made["pixel_values"].shape[1])
    elsewhere = model.encode_images(made["pixel_values"][:1, order], made["image_position_ids"][:1, order])
    assert elsewhere[0].tokens == 51 and elsewhere[0] is not media[0]
    np.testing.assert_allclose(elsewhere[0].features, media[0].features, atol=1e-5)


def test_an_image_is_encoded_as_itself_in_any_company(packages: Packages, monkeypatch: pytest.MonkeyPatch):
    model = packages.model("tiny-full")
    alone = [small(model, seed).features.copy() for seed in range(5)]
    gc.collect()
    monkeypatch.setattr(encoders, "AT_ONCE", 3 * 36)
    counts: list[int] = []
    real = Encoders._encode
    monkeypatch.setattr(Encoders, "_encode", lambda self, g: (counts.append(len(g)), real(self, g))[1])
    places = np.stack(np.meshgrid(np.arange(6), np.arange(6)), -1).reshape(1, 36, 2)
    pixels = [np.random.default_rng(seed).random((1, 36, 48), np.float32) for seed in range(5)]
    together = model.encode_images(np.concatenate(pixels), np.repeat(places, 5, 0))
    assert counts == [3, 2]
    for medium, features in zip(together, alone, strict=True):
        np.testing.assert_allclose(medium.features, features, atol=1e-5)


def test_media_are_kept_no_longer_than_someone_needs_them(packages: Packages):
    model = cabochon.load(packages("tiny-full"), threads=1, provider="cpu")
    known = model.session.embedder.encoders._known
    one = small(model, 1)
    assert small(model, 1) is one and len(known) == 1
    del one
    gc.collect()
    assert len(known) == 0


PIXELS, PLACES = np.zeros((1, 9, 48), np.float32), np.zeros((1, 9, 2), np.int64)
SOUND, MASK = np.zeros((1, 40, 16), np.float32), np.ones((1, 40), bool)


@pytest.mark.parametrize(
    ("method", "arrays", "message"),
    [
        (
            "encode_images",
            (PIXELS[0], PLACES),
            "pixel_values: float32 (9, 48); expected float32 of 3 dimensions",
        ),
        ("encode_images", (PIXELS.astype(int), PLACES), "pixel_values: int64 (1, 9, 48); expected float32"),
        ("encode_images", (PIXELS, PLACES[:, :8]), "pixel_position_ids: (1, 8, 2); expected (1, 9, 2)"),
        ("encode_images", (PIXELS, PLACES.astype(np.float32)), "pixel_position_ids: float32"),
        ("encode_images", (PIXELS, PLACES - 1), "pixel_position_ids[0]: an image of padding alone"),
        ("encode_images", (PIXELS[:0], PLACES[:0]), "none of them empty"),
        ("encode_audio", (SOUND, MASK[:, :9]), "input_features_mask: (1, 9); expected (1, 40)"),
        ("encode_audio", (SOUND, ~MASK), "input_features_mask[0]: a clip of padding alone"),
        ("encode_audio", (SOUND, MASK.astype(np.float32)), "input_features_mask: float32"),
        ("encode_audio", (SOUND[..., :5], MASK), "input_features, input_features_mask: onnxruntime"),
        ("encode_images", (PIXELS, PLACES + 3), "give what this package's processor made"),
        ("encode_images", (PIXELS, PLACES - [0, 1]), "pixel_position_ids[0]: one of x and y is below 0"),
        ("encode_images", (PIXELS * np.nan, PLACES), "pixel_values[0]: holds NaN or infinities"),
        ("encode_audio", (SOUND + np.inf, MASK), "input_features[0]: holds NaN or infinities"),
    ],
)
def test_arrays_are_refused(packages: Packages, method: str, arrays: Any, message: str):
    with pytest.raises(RequestError) as caught:
        getattr(packages.model("tiny-full"), method)(*arrays)
    assert message in str(caught.value)


def test_what_stands_in_padding_may_be_anything(packages: Packages):
    model = packages.model("tiny-full")
    pixels, places = np.full((1, 18, 48), np.nan, np.float32), np.full((1, 18, 2), -1)
    pixels[:, :9], places[:, :9] = 0.5, np.stack(np.meshgrid(np.arange(3), np.arange(3)), -1).reshape(9, 2)
    (one,) = model.encode_images(pixels, places)
    assert one.tokens == 1 and np.isfinite(one.features).all()


@pytest.mark.parametrize(("frames", "tokens"), [(40, 10), (41, 11), (44, 11), (1, 1)])
def test_soft_tokens_of_sound(packages: Packages, frames: int, tokens: int):
    """A quarter of the frames, rounded up; clips of other lengths beside it change nothing."""
    model = packages.model("tiny-full")
    sound = np.random.default_rng(frames).standard_normal((2, 60, 16)).astype(np.float32)
    mask = np.arange(60) < np.array([[frames], [60]])
    short, long = model.encode_audio(sound * mask[..., None], mask)
    assert (short.tokens, long.tokens) == (tokens, 15) == (len(short.features), len(long.features))
    (alone,) = model.encode_audio(sound[:1, :frames], mask[:1, :frames])
    np.testing.assert_allclose(alone.features, short.features, atol=1e-4)


def test_another_number_of_features_is_a_fault(packages: Packages):
    model = cabochon.load(packages("tiny-full"), threads=1, provider="cpu")
    (medium,) = model.session.embedder.images(np.full((1, 9, 48), 0.5, np.float32), PLACES)
    medium.tokens = 2
    with pytest.raises(
        PackageError, match=r"vision_encoder/model\.onnx: image_features: 1 rows of features; exp"
    ):
        model.session.embedder.encode([medium])


@pytest.mark.parametrize("width", [32, 128])
def test_features_of_another_package(packages: Packages, width: int):
    """As many numbers as several rows of this package would have are not taken for them."""
    one = Medium.encoded(VISION, np.ones((4, width), np.float32))
    with pytest.raises(
        RequestError, match=rf"vision_encoder: features of shape \(4, {width}\); expected \(4, 64\)"
    ):
        packages.model("tiny-full").generate("<|image|>", images=[one], max_new_tokens=1)


@pytest.mark.parametrize(("kind", "token"), [("image", 30), ("image", 13), ("speech", 8)])
def test_soft_tokens_of_another_package(packages: Packages, kind: str, token: int):
    """Their rows would stand nowhere, and others would move up."""
    one = Medium.encoded(VISION, np.ones((4, 64), np.float32))
    with pytest.raises(RequestError, match=rf"prompt: a soft token of {kind} with id {token}; expected"):
        packages.model("tiny-full").generate([2, *one.soft(kind, token), 5], max_new_tokens=1)


def test_a_model_that_hears_nothing(packages: Packages, tmp_path: Path):
    """The 31B kind has no audio tower: neither a component nor a placeholder."""
    model = packages.model("big-full")
    assert sorted(model.session.embedder.placeholders) == ["image", "video"]
    with pytest.raises(RequestError, match=r"audio: this package takes no audio; it takes image and video"):
        model.generate("<|audio|>", audio=["a.wav"])
    with pytest.raises(RequestError, match="parts of type 'text', 'image', 'video'"):
        model.generate([{"role": "user", "content": [{"type": "audio", "path": "a.wav"}]}])
    with pytest.raises(RequestError, match="input_features: this package has no audio_encoder"):
        model.encode_audio(SOUND, MASK)
    folder = shutil.copytree(packages("big-full"), tmp_path / "p")
    shutil.copytree(packages("tiny-full") / "audio_encoder", folder / "audio_encoder")
    assert "audio" not in cabochon.load(folder, threads=1, provider="cpu").session.embedder.placeholders


def test_models_are_loaded_with_their_options(packages: Packages):
    model: Model = cabochon.load(
        packages("tiny-full"), threads=1, provider="cpu", session_options={"session.disable_prepacking": 1}
    )
    small(model, 1)
    graph = model.session.embedder.encoders._graphs[VISION]
    options = graph._session.get_session_options()
    assert options.get_session_config_entry("session.disable_prepacking") == "1"
    assert options.intra_op_num_threads == 1
