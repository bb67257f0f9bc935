"""Clips against recorded results of transformers' feature extractor: shapes, masks, tokens, values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cabochon.errors import RequestError
from cabochon.media import AudioProcessor, read_processors
from pictures import TARGET, TINY, tone
from test_media_log_mel import REAL, with_

process = AudioProcessor(REAL)


def test_the_tiny_reference():
    recorded, media = np.load(TINY / "ref" / "inputs_audio.npz"), np.load(TINY / "ref" / "media.npz")
    audio = read_processors(TARGET).audio
    assert audio is not None
    clips = audio(media["wav"])
    np.testing.assert_allclose(clips.input_features, recorded["input_features"], atol=1e-5)
    np.testing.assert_array_equal(clips.input_features_mask, recorded["input_features_mask"])
    assert clips.tokens == (25,) == (int((recorded["input_ids"] == 11).sum()),)


OVERDRIVE = {"fft_length": 1024, "bands": 64}


@pytest.mark.parametrize(
    ("lengths", "changes", "shape", "values", "total"),
    [  # transformers 5.24: features at [0, 0, 5], [0, -1, 20], [0, T/2, 60], and the sum of all
        ((16000,), {}, (1, 99, 128), (0.3201919, -2.4452682, -6.3127704), -65047.246),
        ((16000,), {"preemphasis": 0.97}, (1, 99, 128), (-2.7301755, -4.0447168, -6.75212), -73406.345),
        ((16000,), OVERDRIVE, (1, 99, 64), (1.8088565, -2.7801607, -6.8695970), -27250.048),
        ((161,), {}, (1, 1, 128), (0.3201919, 1.3822314, -1.3263655), -131.79247),
        ((5000, 12345), {}, (2, 77, 128), (0.3201919, 0.0, 0.0), -70465.655),
        ((5000, 12345), {"preemphasis": 0.97}, (2, 77, 128), (-2.7301755, 0.0, 0.0), -79642.300),
        ((480001,), {}, (1, 2999, 128), (0.3201919, -6.8516870, -3.0294309), -2109597.4),
    ],
)
def test_as_recorded(
    lengths: tuple[int, ...],
    changes: dict[str, float],
    shape: tuple[int, ...],
    values: tuple[float, ...],
    total: float,
):
    clips = AudioProcessor(with_(**changes))([tone(n) for n in lengths])
    features = clips.input_features
    assert (
        features.shape == shape and features.dtype == np.float32 and clips.input_features_mask.dtype == bool
    )
    at = (0, 5), (-1, 20), (shape[1] // 2, 60)
    np.testing.assert_allclose([features[0, i, j] for i, j in at], values, atol=1e-4)
    np.testing.assert_allclose(features.sum(dtype=np.float64), total, rtol=1e-5)


def test_a_clip_in_a_batch_is_the_clip_alone():
    lengths = (5000, 700, 12345)
    together = process([tone(n) for n in lengths])
    assert together.tokens == (8, 1, 20)
    assert together.input_features_mask.sum(1).tolist() == [31, 4, 77]
    for i, n in enumerate(lengths):
        alone, valid = process(tone(n)), REAL.frames(n)
        np.testing.assert_array_equal(together.input_features[i, :valid], alone.input_features[0, :valid])
        assert not together.input_features[i, valid:].any()
        assert together.tokens[i] == alone.tokens[0]


@settings(deadline=None, max_examples=30)
@given(st.integers(161, 20_000))
def test_tokens_are_what_two_strided_layers_leave_of_the_mask(samples: int):
    clips = process(tone(samples))
    assert clips.tokens == (int(clips.input_features_mask[0][::2][::2].sum()),) == (process.tokens(samples),)


def test_silence_is_fine():
    clips = process(np.zeros(16_000, np.float32))
    assert clips.tokens == (25,) and clips.remarks == ()
    np.testing.assert_allclose(clips.input_features, np.log(1e-3), rtol=1e-6)


def test_the_end_of_a_long_clip_is_left_out_and_said():
    long = tone(600_000)
    clips = process([tone(1000), long])
    assert clips.tokens == (2, 750)
    assert clips.remarks == ("audio[1]: 37.50 s at 16000 Hz; a clip has 30 s at most; the rest is left out",)
    np.testing.assert_array_equal(clips.input_features[1], process(long[:480_000]).input_features[0])
    assert process(long[:480_000]).remarks == ()
    with pytest.raises(
        RequestError, match=r"^audio\[1\]: 37.50 s at 16000 Hz; a clip has 30 s at most\n  -> cut it"
    ):
        process([tone(1000), long], truncate=False)


def test_errors_name_the_clip():
    with pytest.raises(
        RequestError, match=r"^audio\[1\]: 160 samples at 16000 Hz; one frame needs 161\n  -> give"
    ):
        process([tone(1000), tone(160)])
    with pytest.raises(RequestError, match=r"^audio\[0\]: holds NaN or infinities"):
        process(np.full(1000, np.nan))
    with pytest.raises(RequestError, match=r"^audio\[0\] nowhere.wav: cannot be read: No such file"):
        process("nowhere.wav")
    with pytest.raises(RequestError, match=r"^audio: no audio; expected at least one clip"):
        process([])
