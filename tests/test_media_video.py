"""Videos against recorded results of transformers' video processor; sampling, clocks, animations, containers."""

import io
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cabochon.errors import RequestError
from cabochon.media import ImageProcessor, Video, VideoProcessor, load_video, read_processors
from cabochon.media.footage import sampled
from cabochon.media.patches import Normalization, Patching
from cabochon.media.video import clock
from pictures import TINY, UNIFIED, digest, picture

PATCHING = Patching(16, 3, 70, 1 / 255, Normalization((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)))
process = VideoProcessor(PATCHING, 32)


def moving(count: int, height: int = 45, width: int = 80) -> np.ndarray:
    return np.stack([np.roll(picture(height, width), i, 1) for i in range(count)])


@pytest.mark.parametrize(
    ("count", "fps", "second", "last", "sha256"),
    [  # transformers 5.24 with torchvision 0.28
        (32, 24.0, "00:00", "00:01", "34ec90d927ec710f"),
        (100, 29.97, "00:00", "00:03", "3f0753207d5ab45b"),
        (33, 0.5, "00:02", "01:02", "34ec90d927ec710f"),
    ],
)
def test_as_recorded(count: int, fps: float, second: str, last: str, sha256: str):
    frames = process(moving(count), fps=fps)
    assert frames.tokens == (66,) * 32
    assert (frames.timestamps[0], frames.timestamps[1], frames.timestamps[-1]) == ("00:00", second, last)
    assert frames.pixel_values.shape == (32, 630, 768) and frames.pixel_position_ids.shape == (32, 630, 2)
    assert digest(frames.pixel_values) == sha256


@pytest.mark.parametrize(
    ("clip", "count", "budget", "tokens", "values", "positions"),
    [  # the same of Gemma4UnifiedVideoProcessor
        (moving(40), 5, None, 66, "0ea3371078ee0e8c", "88d84ccc2a313cdf"),
        (moving(7, 70, 50), 5, None, 63, "b5b106de2ed2c55f", "bb526e7f1ef3ec03"),
        (moving(7, 70, 50), 7, 140, 140, "22c1babae00d4c89", "cc6bf6f4b1812db9"),
    ],
)
def test_patches_that_are_tokens_as_recorded(
    clip: np.ndarray, count: int, budget: int | None, tokens: int, values: str, positions: str
):
    merged = VideoProcessor(PATCHING.merged(), 32)
    frames = merged(clip, fps=24.0, num_frames=count, max_soft_tokens=budget)
    assert frames.tokens == (tokens,) * count
    assert frames.pixel_values.shape == (count, budget or 70, 6912)
    assert (digest(frames.pixel_values), digest(frames.pixel_position_ids)) == (values, positions)


def test_the_tiny_reference_of_the_unified_model():
    recorded = np.load(TINY / "ref" / "inputs_unified_video.npz")
    image, video = np.load(TINY / "ref" / "media.npz")["image"], read_processors(UNIFIED).video
    assert video is not None
    made = video(np.stack([image, image[::-1]]))
    np.testing.assert_allclose(made.pixel_values, recorded["pixel_values_videos"], rtol=0, atol=6e-8)
    np.testing.assert_array_equal(made.pixel_position_ids, recorded["video_position_ids"])
    assert sum(made.tokens) == (recorded["input_ids"] == 13).sum()


def test_frames_are_images():
    frames = process(moving(3), fps=1.0)
    images = ImageProcessor(Patching(16, 3, 70))([*moving(3)])
    np.testing.assert_allclose(frames.pixel_values, images.pixel_values, atol=1e-7)
    np.testing.assert_array_equal(frames.pixel_position_ids, images.pixel_position_ids)
    assert frames.tokens == images.tokens and frames.timestamps == ("00:00", "00:01", "00:02")
    bare = process(moving(3), fps=1.0, padded=False)
    np.testing.assert_array_equal(bare.pixel_values, frames.pixel_values[:, : 66 * 9])


@pytest.mark.parametrize(
    ("total", "count", "indices"),
    [
        (10, 5, [0, 2, 4, 6, 8]),
        (10, 4, [0, 2, 5, 7]),
        (7, 3, [0, 2, 4]),
        (3, 3, [0, 1, 2]),
        (2, 3, [0, 1]),  # transformers refuses this
        (3, None, [0, 1, 2]),
    ],
)
def test_sampling(total: int, count: int | None, indices: list[int]):
    assert sampled(total, count) == indices


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "00:00"), (59.99, "00:59"), (60, "01:00"), (3599.5, "59:59"), (6000, "100:00")]
)
def test_clock(seconds: float, text: str):
    assert clock(seconds) == text


def test_budgets_of_a_call():
    frames = process(
        moving(9), timestamps=[0, 1, 5, 61, 62, 63, 64, 65, 66], num_frames=3, max_soft_tokens=140
    )
    assert frames.timestamps == ("00:00", "01:01", "01:04") and frames.pixel_values.shape == (3, 1260, 768)
    assert set(frames.tokens) == {120}
    read = load_video(moving(9), fps=2.0)
    assert process(read, num_frames=3).timestamps == ("00:00", "00:01", "00:03")
    assert VideoProcessor(PATCHING, None)(moving(40)).tokens == (66,) * 40


def test_a_list_of_images_of_any_kind(tmp_path: Path):
    Image.fromarray(picture(20, 30)).save(tmp_path / "one.png")
    video = load_video([tmp_path / "one.png", picture(20, 30), Image.fromarray(picture(20, 30))])
    assert video.total == 3 and video.timestamps == (0.0, 1 / 24, 2 / 24)
    assert video.remarks == ("no frame rate given; 24 frames per second are assumed",)
    assert [digest(frame) for frame in video.frames] == [digest(picture(20, 30))] * 3
    assert process([picture(20, 30)]).remarks == video.remarks


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_animations(kind: str, tmp_path: Path):
    levels, durations = (0, 60, 120, 180), [100, 1900, 60_000, 40]
    frames = [Image.fromarray(np.full((8, 12, 3), level, np.uint8)) for level in levels]
    lossless = {"lossless": True} if kind == "WEBP" else {}
    path = tmp_path / f"moving.{kind.lower()}"
    frames[0].save(path, kind, save_all=True, append_images=frames[1:], duration=durations, **lossless)
    video = load_video(path)
    assert [int(frame[3, 3, 1]) for frame in video.frames] == list(levels)
    assert [frame.shape for frame in video.frames] == [(8, 12, 3)] * 4
    np.testing.assert_allclose(video.timestamps, [0.0, 0.1, 2.0, 62.0])
    two = process(path.read_bytes(), num_frames=2)
    assert two.timestamps == ("00:00", "00:02") and len(set(two.tokens)) == 1
    assert [round(float(values.max()) * 255) for values in two.pixel_values] == [0, 120]


def test_frames_without_a_duration_stand_a_tenth_of_a_second():
    frames, file = [Image.fromarray(np.full((4, 4), i * 99, np.uint8)) for i in range(3)], io.BytesIO()
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], duration=0)
    np.testing.assert_allclose(load_video(file.getvalue()).timestamps, [0.0, 0.1, 0.2])


def mp4(frames: np.ndarray, rate: int) -> bytes:
    import av

    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=Fraction(rate))
        stream.height, stream.width = frames.shape[1:3]
        stream.bit_rate = 4_000_000
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return file.getvalue()


def test_a_container(tmp_path: Path):
    frames = np.stack([np.full((48, 64, 3), 20 * i, np.uint8) for i in range(10)])
    (path := tmp_path / "moving.mp4").write_bytes(mp4(frames, 5))
    video = load_video(path, num_frames=5)
    assert video.total == 10 and video.timestamps == (0.0, 0.4, 0.8, 1.2, 1.6)
    np.testing.assert_allclose([frame.mean() for frame in video.frames], [0, 40, 80, 120, 160], atol=4)
    assert len(load_video(path.read_bytes()).frames) == 10
    assert process(path).timestamps == ("00:00",) * 5 + ("00:01",) * 5


def test_without_a_decoder(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(
        RequestError, match=r'needs PyAV, which is not installed\n  -> pip install "cabochon\[video\]"'
    ):
        load_video(b"\0\0\0\x18ftypmp42" + bytes(99))


def test_a_broken_picture_is_named_where_a_decoder_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    (path := tmp_path / "bad.png").write_bytes(b"no picture")
    with pytest.raises(RequestError, match=r"is no GIF, WebP, PNG or AVIF; .* needs PyAV") as caught:
        load_video(path)
    assert caught.value.at == str(path)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ([], {}, "video: no frames; expected at least one"),
        (np.zeros((0, 4, 4, 3), np.uint8), {}, "video: no frames"),
        (np.zeros((4, 4, 3), np.uint8), {}, r"video: array of shape \[4, 4, 3\]; expected \[T, H, W, 3\]"),
        (
            [picture(4, 4), picture(4, 5)],
            {},
            "video: frame 1 has 4 x 5 pixels, the first 4 x 4; expected one size",
        ),
        (moving(2), {"fps": 0}, "fps: 0 frames per second; expected a number above 0"),
        (moving(2), {"fps": float("nan")}, "fps: nan frames per second"),
        (
            moving(2),
            {"fps": 1.0, "timestamps": [0, 1]},
            "fps and timestamps are both given; expected one of them",
        ),
        (moving(2), {"timestamps": [0]}, "timestamps: 1 numbers; expected 2, one per frame"),
        (moving(2), {"timestamps": [1, 0]}, "timestamps: 2 numbers; expected 2, .*not falling"),
        (moving(2), {"timestamps": [-1, 0]}, "timestamps: .*not below 0"),
        (b"GIF89a", {}, "video of 6 bytes: (cannot be opened|is not an image)"),
        (
            b"this is a text, and a long one",
            {},
            "video of 30 bytes: is not a video of a known kind, or broken",
        ),
        (b"", {}, "video of 0 bytes: is empty"),
        ("film.mp4", {"fps": 3.0}, "film.mp4: a file says itself when its frames are shown"),
        (
            np.broadcast_to(np.uint8(0), (99, 2048, 2048, 3)),
            {},
            "99 frames of 2048 x 2048 pixels; 268435456 pixels are",
        ),
    ],
)
def test_what_is_no_video(source: object, options: dict[str, object], message: str):
    with pytest.raises(RequestError, match=message):
        load_video(source, **options)  # pyright: ignore[reportArgumentType]


def test_a_number_of_frames():
    with pytest.raises(RequestError, match="num_frames: 0; expected a whole number above 0"):
        process(Video((), (), 0), num_frames=0)
