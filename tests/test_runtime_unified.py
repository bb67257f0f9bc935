"""The unified model at run time: pixels and samples that nothing reduces, counted and fed as what they are."""

from typing import Any

import numpy as np
import pytest

from cabochon.errors import RequestError
from cabochon.media import read_processors
from cabochon.runtime import Model
from cabochon.runtime.encoders import Encoders
from full_packages import AUDIO, GREEDY, IMAGE, REF, VIDEO, fresh, picture, said
from packages import TINY, Packages
from pictures import tone

PROCESSORS = read_processors(TINY / "unified")
WORDS = {"image": IMAGE, "audio": AUDIO, "video": VIDEO}


@pytest.fixture
def model(packages: Packages) -> Model:
    return fresh(packages, "unified-full")


def shown(case: str) -> dict[str, Any]:
    """What the recorded prompts were recorded with, as options of `generate`."""
    media = np.load(REF / "media.npz")
    return {
        "image": {"images": [media["image"]]},
        "audio": {"audio": [(media["wav"], 16_000)]},
        "video": {"videos": [np.stack([media["image"], media["image"][::-1]])]},
    }[case]


@pytest.mark.parametrize("case", WORDS)
def test_pixels_and_samples_to_the_recorded_logits(model: Model, case: str):
    """The recorded prompt has as many placeholders as the media have tokens, or it would be refused."""
    expected = np.load(REF / f"prefill_unified_{case}.npz")["logits"][0]
    known = np.load(REF / f"inputs_unified_{case}.npz")["input_ids"][0]
    logits = model.forward(known, **shown(case)).logits
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("chunk", [7, 512])
def test_all_three_in_a_prompt(model: Model, chunk: int):
    """Images are fed whole, whatever the chunk: their tokens see each other."""
    given = shown("image") | shown("audio") | shown("video")
    ids = model.prompt_ids("See <|image|> hear <|audio|> and watch <|video|>!", **given)
    counts = {case: sum(int(i) == token for i in ids) for case, token in WORDS.items()}
    assert counts == {"image": 60, "audio": 25, "video": 120}
    answer = model.generate(ids, prefill_chunk=chunk, **GREEDY)
    assert answer.media_tokens == counts
    whole = model.forward(ids).logits
    assert answer.ids[0] == int(whole[-1].argmax())
    np.testing.assert_allclose(model.forward(ids, chunk=chunk).logits, whole, atol=1e-4 * np.abs(whole).max())


@pytest.mark.parametrize(
    ("samples", "rate", "tokens"),
    [(1, 16_000, 1), (640, 16_000, 1), (641, 16_000, 2), (8000, 8000, 25), (480_001, 16_000, 751)],
)
def test_every_frame_is_a_token(model: Model, samples: int, rate: int, tokens: int):
    """Beyond 30 s too; nothing is left out, and nothing said of it."""
    ids = model.prompt_ids("<|audio|>", audio=[(tone(samples, rate), rate)])
    assert [int(i) for i in ids].count(AUDIO) == tokens
    assert {i.medium.remarks for i in ids if int(i) == AUDIO} == {()}  # pyright: ignore[reportAttributeAccessIssue]


def test_clips_of_other_lengths_beside_it_change_nothing(model: Model):
    assert PROCESSORS.audio is not None
    made = PROCESSORS.audio([tone(n) for n in (5000, 641, 12_345)])
    together = model.encode_audio(made.input_features, made.input_features_mask)
    assert [clip.tokens for clip in together] == [8, 2, 20] == [len(clip.features) for clip in together]
    alone = PROCESSORS.audio(tone(641))
    (one,) = model.encode_audio(alone.input_features, alone.input_features_mask)
    np.testing.assert_allclose(one.features, together[1].features, atol=1e-6)


def test_padding_of_images_is_cut_off_and_each_patch_is_a_token(model: Model):
    assert PROCESSORS.image is not None
    made = PROCESSORS.image([picture(1), picture(2, 90, 20)])
    media = model.encode_images(made.pixel_values, made.pixel_position_ids)
    assert (
        [len(m.arrays["pixel_values"]) for m in media]
        == list(made.tokens)
        == [len(m.features) for m in media]
    )
    twice = np.zeros((1, 4, 432), np.float32), np.zeros((1, 4, 2), np.int64)
    assert len(model.encode_images(*twice)[0].features) == 4  # at one place, and still as many tokens


def test_a_next_turn_goes_on_behind_the_image(model: Model, monkeypatch: pytest.MonkeyPatch):
    turns = said(picture(1), "What is this?")
    first = model.generate(turns, **GREEDY)
    turns += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "And now?"}]
    monkeypatch.setattr(Encoders, "_encode", lambda self, group: pytest.fail("encoded again"))
    second = model.generate(turns, **GREEDY)
    assert second.timings.reused >= len(first.prompt_ids) - 1
    monkeypatch.undo()
    model.forget()
    assert second.ids == model.generate(turns, **GREEDY).ids


@pytest.mark.parametrize(
    ("method", "arrays", "message"),
    [
        (
            "encode_audio",
            (np.zeros((1, 4, 128), np.float32), np.ones((1, 4), bool)),
            "give what this package's",
        ),
        (
            "encode_audio",
            (np.zeros((1, 4, 640), np.float32), np.zeros((1, 4), bool)),
            "a clip of padding alone",
        ),
        (
            "encode_images",
            (np.zeros((1, 9, 48), np.float32), np.zeros((1, 9, 2), np.int64)),
            "give what this package's",
        ),
    ],
)
def test_what_another_models_processor_made(model: Model, method: str, arrays: Any, message: str):
    with pytest.raises(RequestError, match=message):
        getattr(model, method)(*arrays)
