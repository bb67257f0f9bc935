"""Every component of a full model against recorded values and the NumPy oracle, on every target, in f32."""

from pathlib import Path

import numpy as np
import pytest

import oracle
from full_graphs import ALL, REF, TARGET, TEXT, Arrays, Components, Truth, padded, picture, random_full
from graphs import difference

EXACT = 1e-4  # measured: vision 4e-7, audio 6e-7, embedding 3e-7, logits 8e-6
IMAGE, VIDEO, AUDIO = 8, 13, 11
RECORDED = ("text", "text_long", "image", "audio")


@pytest.fixture(scope="module", params=ALL)
def model(request: pytest.FixtureRequest) -> Components:
    return Components(TARGET, request.param)


@pytest.fixture(scope="module")
def truth() -> Truth:
    return Truth(TARGET)


def recorded(name: str) -> tuple[Arrays, Arrays]:
    """What transformers was fed, and what came of it."""
    return dict(np.load(REF / f"inputs_{name}.npz")), dict(np.load(REF / f"prefill_target_{name}.npz"))


def test_recorded_images(model: Components, truth: Truth) -> None:
    fed, made = recorded("image")
    pixels, places = fed["pixel_values"], fed["image_position_ids"]
    assert difference(truth.soft(pixels[0], places[0]), made["vision_last"]) < EXACT
    found = model.images(pixels, places)
    assert difference(found, made["image_features"]) < EXACT
    assert difference(found, truth.images(pixels, places)) < EXACT

    two = np.load(REF / "two_images.npz")
    found = model.images(two["pixel_values"], two["image_position_ids"])
    assert difference(found, two["features"]) < EXACT
    assert difference(found, truth.images(two["pixel_values"], two["image_position_ids"])) < EXACT


def test_a_recorded_clip(model: Components, truth: Truth) -> None:
    fed, made = recorded("audio")
    features, mask = fed["input_features"], fed["input_features_mask"]
    found = model.clips(features, mask)
    assert difference(found, made["audio_features"][made["audio_mask"]]) < EXACT
    assert difference(found, truth.clips(features, mask)) < EXACT


@pytest.mark.parametrize("name", RECORDED)
def test_embedding_and_decoder(model: Components, truth: Truth, name: str) -> None:
    """Fed with recorded features: each component is measured by itself."""
    fed, made = recorded(name)
    ids = fed["input_ids"]
    images, sounds = made.get("image_features"), made.get("audio_features")
    sounds = None if sounds is None else sounds[made["audio_mask"]]
    found = model.embed(ids, images, sounds)
    assert difference(found["inputs_embeds"], made["hidden_0"]) < EXACT
    x, extras = truth.embed(ids[0], images, sounds)
    assert extras is not None
    assert difference(found["inputs_embeds"][0], x) < EXACT
    assert difference(found["per_layer_inputs"][0], extras.reshape(len(x), -1)) < EXACT

    exact = {"inputs_embeds": made["hidden_0"], "per_layer_inputs": extras.reshape(1, len(x), -1)}
    out = model.decode(ids, exact)
    assert difference(out["logits"], made["logits"]) < EXACT
    assert difference(out["hidden_states.9"], made["hidden_10"]) < EXACT
    for kind, owner in (("sliding_attention", 5), ("full_attention", 4)):
        for part in ("key", "value"):
            assert difference(out[f"present.{owner}.{part}"], made[f"shared_{kind}_{part}"]) < EXACT


def test_images_and_sound_in_one_row(model: Components, truth: Truth) -> None:
    images = truth.images(*padded([picture(truth, 6, 3), picture(truth, 3, 9)], 27))
    sounds = truth.clips(
        np.random.default_rng(3).normal(-2, 2, (1, 21, 16)).astype(np.float32), np.ones((1, 21), bool)
    )
    ids = np.array([2, 5, 7, 8, 8, 9, 40, 10, *[11] * 6, 12, 50, 7, 8, 8, 8, 9, 60, 6])
    found, (x, extras) = model.embed(ids, images, sounds), truth.embed(ids, images, sounds)
    assert extras is not None
    assert difference(found["inputs_embeds"][0], x) < EXACT
    assert difference(found["per_layer_inputs"][0], extras.reshape(len(x), -1)) < EXACT
    assert difference(model.decode(ids, found)["logits"][0], truth.logits(ids, images, sounds)) < EXACT


def test_frames_of_video_are_images(model: Components, truth: Truth) -> None:
    """Between words and beside an image: in order of appearance, whichever placeholder stands there."""
    rows = truth.images(*padded([picture(truth, 3, 3 * n, n) for n in (1, 2, 3)], 27))
    ids = np.array([2, 7, 13, 9, 40, 7, 8, 8, 9, 7, 13, 13, 13, 9, 6])
    found = model.forward(ids, rows)
    assert difference(found["logits"][0], truth.logits(ids, rows)) < EXACT
    assert np.array_equal(model.embed(ids, rows)["inputs_embeds"][0, [2, 6, 7, 10, 11, 12]], rows)


def test_cached_steps_behind_an_image_and_a_clip(model: Components, truth: Truth) -> None:
    """Prefill in chunks that split image and clip, then token by token: equal to one pass."""
    images = truth.images(*padded([picture(truth, 9, 9)], 81))
    sounds = truth.clips(
        np.random.default_rng(4).normal(-2, 2, (1, 40, 16)).astype(np.float32), np.ones((1, 40), bool)
    )
    ids = np.array([2, 5, 7, *[8] * 9, 9, 40, 10, *[11] * 10, 12, 50, 60, 70, 6, 90, 91])
    expected, past, logits = truth.logits(ids, images, sounds), None, []
    for start, end in ((0, 7), (7, 20), (20, 29), (29, 30), (30, 31), (31, len(ids))):
        part, before = ids[start:end], ids[:start]
        rows = [
            features[(before == token).sum() :][: (part == token).sum()]
            for features, token in ((images, IMAGE), (sounds, AUDIO))
        ]
        step = model.forward(part, *rows, past=past)
        past = model.past(step)
        logits.append(step["logits"][0])
    assert difference(np.concatenate(logits), expected) < EXACT


def test_other_windows_bounds_and_sizes(tmp_path: Path) -> None:
    """All at once other than those of the tiny target: windows, heads that share keys, pooling, standardization."""
    folder = random_full(
        tmp_path, 3,
        text=dict(sliding_window=5, hidden_size_per_layer_input=12),
        vision=dict(standardize=True, num_key_value_heads=2, pooling_kernel_size=2),
        audio=dict(attention_chunk_size=3, attention_context_left=7, attention_context_right=2),
    )  # fmt: skip
    truth = Truth(folder)
    images = padded([picture(truth, 6, 4), picture(truth, 4, 6)], 40)
    clips = (
        np.random.default_rng(5).normal(-2, 2, (2, 33, 16)).astype(np.float32),
        np.arange(33) < [[33], [20]],
    )
    rows, sounds = truth.images(*images), truth.clips(*clips)
    ids = np.array([2, *[13] * 6, 40, *[11] * 9, 41, 42, *[13] * 6, 43, *[11] * 5, 44])
    for target in ALL:
        model = Components(folder, target)
        assert difference(model.images(*images), rows) < EXACT
        assert difference(model.clips(*clips), sounds) < EXACT
        assert (
            difference(model.forward(ids, rows, sounds)["logits"][0], truth.logits(ids, rows, sounds)) < EXACT
        )


def test_the_oracle_is_told_apart_from_its_mistakes(truth: Truth) -> None:
    """A comparison that could not fail would prove nothing: unfused embeddings and raw ids are far away."""
    fed, made = recorded("image")
    ids, features = fed["input_ids"][0], made["image_features"]
    _, right = truth.embed(ids, features)
    assert right is not None
    x = oracle.embed(truth.geometry, truth.weights, TEXT, np.where(ids == IMAGE, 0, ids))
    unfused = oracle.ple_inputs(truth.geometry, truth.weights, TEXT, np.where(ids == IMAGE, 0, ids), x)
    assert unfused is not None and difference(unfused, right) > 0.1
