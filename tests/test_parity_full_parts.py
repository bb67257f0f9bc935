"""What parity of full packages is made of, without a reference: exhibits, prompts, components, processors."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import checkpoints
from cabochon.evidence import identity
from cabochon.media import read_processors
from cabochon.parity.components import Component, present, rounded, strict
from cabochon.parity.exhibits import Exhibits, film, picture, played, sound
from cabochon.parity.full_prompts import everything
from cabochon.parity.levels import STRICT
from cabochon.parity.measures import apart, difference
from cabochon.parity.media_reports import processed, processors
from cabochon.parity.passed import Passed, Prepared
from cabochon.parity.prompts import Prompt
from cabochon.parity.reference import Answer
from cabochon.parity.whole import Whole
from full_graphs import ALL
from packages import Packages

IMAGE, VIDEO = 8, 13


def test_exhibits_are_made_by_arithmetic() -> None:
    a, b = picture(30, 50), picture(30, 50, seed=1)
    assert (a.shape, a.dtype) == ((30, 50, 3), np.uint8)
    assert np.array_equal(a, picture(30, 50))
    assert not np.array_equal(a, b)
    assert int(a.astype(np.int64).sum()) == 611_359
    heard = sound(5_000)
    assert heard.dtype == np.float32
    assert 0.2 < np.abs(heard).max() <= 0.45
    first, second = film(2, 24, 40)
    assert np.array_equal(first[:, 4:], second[:, :-4])
    assert played([first, second]).timestamps == (0.0, 0.5)
    shown = Exhibits([a], [heard], [[first, second]])
    assert shown.described() == ["image 50x30", "sound of 0.31 s", "video of 2 frames 40x24"]


def test_prompts_have_a_placeholder_for_each_exhibit(packages: Packages) -> None:
    config = checkpoints.tiny_config("target")
    asked = everything(packages("tiny-full"), config, 8)
    assert [one.name for one in asked][-8:] == [
        "image", "two images", "audio", "two sounds", "image and audio", "rows", "video", "video and image",
    ]  # fmt: skip
    marks = {"<|image|>": "images", "<|audio|>": "sounds", "<|video|>": "films"}
    for row in (row for one in asked for row in one.rows if row.exhibits):
        for mark, kind in marks.items():
            assert (row.text or "").count(mark) == len(getattr(row.exhibits, kind)), row.name
    deaf = everything(packages("tiny-full"), config | {"audio_config": None}, 8)
    assert "image and audio" not in [one.name for one in deaf]
    blind = everything(packages("tiny-full"), config | {"vision_config": None}, 8)
    assert [one.name for one in blind][-2:] == ["audio", "two sounds"]


def test_what_has_another_shape_is_apart_beyond_any_limit() -> None:
    a = np.ones((3, 4))
    assert apart(a, a) == difference(a, a)
    for other in (a[:2], a[:, :3], np.ones((0, 4))):
        assert not STRICT.admits(apart(a, other))


def test_limits_of_what_is_rounded(packages: Packages) -> None:
    limits = strict(packages("tiny-full"), "f16")
    wide = {key for key, limit in limits.items() if limit.relative > 1e-4}
    assert wide == {("audio_encoder", "audio_features"), ("embedding", "per_layer_inputs")}
    assert rounded("f16").relative == 2**-11
    assert rounded("bf16").relative == 2**-8
    assert rounded("f32") is STRICT
    assert ("audio_encoder", "audio_features") not in strict(packages("big-full"), "f32")


def question(ids: list[list[int]], **features: np.ndarray) -> Passed:
    """Rows padded in front with 0, and features that a reference might have made."""
    width = max(map(len, ids))
    padded = np.array([[0] * (width - len(row)) + row for row in ids])
    mask = np.array([[0] * (width - len(row)) + [1] * len(row) for row in ids])
    prompts = tuple(Prompt(f"row {n}", tuple(row)) for n, row in enumerate(ids))
    rng = np.random.default_rng(3)
    embeds = rng.standard_normal((len(ids), width, 64)).astype(np.float32)
    extras = rng.standard_normal((len(ids), width, 80)).astype(np.float32)
    answers = tuple(Answer(np.zeros((len(r), 512)), np.zeros((len(r), 64)), (), ()) for r in ids)
    images = sum(row.count(IMAGE) for row in ids)
    prepared = Prepared("asked", prompts, padded, mask, {}, images)
    made = {name: tuple(rows[None] for rows in array) for name, array in features.items()}
    return Passed(prepared, made, embeds, extras, answers)


def test_images_and_frames_go_to_their_places(packages: Packages) -> None:
    """The reference keeps images and frames apart; the graph takes them in the order of their places."""
    features = np.arange(3, dtype=np.float32)[:, None] + np.ones(
        64, np.float32
    )  # images 1 and 2, then the frame
    passed = question([[5, VIDEO, 6], [IMAGE, 7, IMAGE, 9]], vision_encoder=features)
    embedding = Component.open(packages("tiny-full"), "embedding", threads=1)
    assert embedding.feeds(passed)["image_features"][:, 0].tolist() == [3, 1, 2]
    said = embedding.said(passed)
    assert said["inputs_embeds", "row 0"][1, 0] == 3
    assert said["inputs_embeds", "row 1"][[0, 2], 0].tolist() == [1, 2]
    assert said["per_layer_inputs", "row 1"].shape == (4, 80)


@pytest.mark.parametrize("target", ALL)
def test_a_decoder_gets_its_rows_as_its_kernel_wants_them(packages: Packages, target: str) -> None:
    """A row beside a longer one says what it says alone."""
    decoder = Component.open(packages("tiny-full", target), "decoder", threads=1)
    both = question([[5, 6], [7, 8, 9, 10, 11]])
    mask = decoder.feeds(both)["attention_mask"]
    assert mask[0].tolist() == ([1, 1, 0, 0, 0] if target in ("cuda", "webgpu") else [0, 0, 0, 1, 1])
    assert both.per_layer_inputs is not None
    alone = Passed(
        Prepared("alone", both.asked.prompts[:1], both.asked.ids[:1, 3:], both.asked.mask[:1, 3:], {}, 0),
        {}, both.inputs_embeds[:1, 3:], both.per_layer_inputs[:1, 3:], both.answers[:1],
    )  # fmt: skip
    for port in ("logits", "hidden_states"):
        a, b = (decoder.said(one)[port, "row 0"] for one in (both, alone))
        assert difference(a, b).relative < 1e-4


def test_processors_are_held_to_every_array(packages: Packages) -> None:
    package = packages("tiny-full")
    shows = Exhibits([picture(30, 50)], [sound(5_000)])
    prompt = Prompt("p", (), "<|image|> and <|audio|>", exhibits=shows)
    ids = Whole(package, threads=1).ids(prompt)
    ours = read_processors(package)
    assert ours.image is not None and ours.audio is not None
    images, clips = ours.image(list(shows.images)), ours.audio([(shows.sounds[0], 16_000)])
    media: dict[str, np.ndarray] = {
        "pixel_values": images.pixel_values, "pixel_position_ids": images.pixel_position_ids,
        "input_features": clips.input_features, "input_features_mask": clips.input_features_mask,
    }  # fmt: skip

    def found(**changed: np.ndarray) -> tuple[dict[str, Any], str]:
        row = Prompt("p", tuple(map(int, ids)), prompt.text, exhibits=shows)
        asked = Prepared("p", (row,), np.array([ids]), np.ones((1, len(ids))), media | changed, 1)
        return processors(processed(package, [asked], {"p": ids}), {})

    document, line = found()
    assert document["passed"] is True
    assert line == "1 of 1 prompts prepared alike; pixels equal; sound equal"
    json.dumps(document)
    assert found(input_features=media["input_features"] + 5e-5)[0]["passed"] is True
    for port, wrong in {
        "pixel_values": media["pixel_values"] + np.float32(1 / 255),
        "pixel_position_ids": media["pixel_position_ids"][..., ::-1],
        "input_features": media["input_features"] + 2e-4,
        "input_features_mask": ~media["input_features_mask"],
    }.items():
        document, line = found(**{port: wrong})
        assert document["passed"] is False, port
        assert line.endswith("; not p")


def test_evidence_is_bound_to_the_files_of_all_components(packages: Packages) -> None:
    package = packages("tiny-full")
    found = identity(package, {"cabochon.target": "default"})["sha256"]
    assert {f"{name}/model.onnx" for name in present(package)} <= found.keys()
    assert all((package / Path(name)).is_file() for name in found)
    assert sorted(packages().glob("model.onnx*")) == [
        packages() / n for n in identity(packages(), {})["sha256"]
    ]
