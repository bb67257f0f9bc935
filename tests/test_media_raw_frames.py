"""Frames of raw samples: where they begin, what fills up the last, and batches of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cabochon.errors import RequestError
from cabochon.media import AudioProcessor, read_processors
from cabochon.media.raw_frames import RawFrames
from pictures import TINY, UNIFIED, tone

process = AudioProcessor(RawFrames(640, 16_000))


@pytest.mark.parametrize(
    ("samples", "frames"),
    [(1, 1), (639, 1), (640, 1), (641, 2), (16_000, 25), (480_000, 750), (480_001, 751)],
)
def test_frames(samples: int, frames: int):
    """There is no limit: what other models of the family leave out behind 30 s is heard."""
    clips = process(tone(samples))
    assert process.features.frames(samples) == process.tokens(samples) == frames
    assert clips.tokens == (frames,) and clips.remarks == () and clips.input_features_mask.all()
    assert clips.input_features.shape == (1, frames, 640) and clips.input_features_mask.shape == (1, frames)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 3000), st.integers(1, 700))
def test_every_sample_once_and_zeros_behind(samples: int, width: int):
    clip = tone(samples)
    flat = RawFrames(width, 16_000)(clip).reshape(-1)
    np.testing.assert_array_equal(flat[:samples], clip)
    assert flat.dtype == np.float32 and 0 <= len(flat) - samples < width and not flat[samples:].any()


def test_a_batch():
    """Frames beyond a clip are zeros, and the mask says that they are none."""
    lengths = (5000, 641, 12_345)
    together = process([tone(n) for n in lengths])
    assert together.tokens == (8, 2, 20) == tuple(together.input_features_mask.sum(1))
    assert together.input_features.shape == (3, 20, 640)
    for i, n in enumerate(lengths):
        np.testing.assert_array_equal(together.input_features[i].reshape(-1)[:n], tone(n))
        assert not together.input_features[i].reshape(-1)[n:].any()
        np.testing.assert_array_equal(together.input_features_mask[i], np.arange(20) < together.tokens[i])


def test_other_rates_are_resampled_first():
    pytest.importorskip("soxr", reason="resampling needs soxr")
    assert process((tone(8000, 8000), 8000)).tokens == (25,)
    assert AudioProcessor(RawFrames(10, 8000))((tone(16_000), 16_000)).tokens == (800,)


def test_the_tiny_reference():
    recorded, media = np.load(TINY / "ref" / "inputs_unified_audio.npz"), np.load(TINY / "ref" / "media.npz")
    audio = read_processors(UNIFIED).audio
    assert audio is not None
    clips = audio(media["wav"])
    np.testing.assert_array_equal(clips.input_features, recorded["input_features"])
    np.testing.assert_array_equal(clips.input_features_mask, recorded["input_features_mask"])
    assert clips.tokens == (25,) == (int((recorded["input_ids"] == 11).sum()),)


def test_no_samples():
    with pytest.raises(RequestError, match=r"^audio\[1\]: holds no samples"):
        process([tone(5), np.zeros(0, np.float32)])
