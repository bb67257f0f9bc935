"""A full package: text, images, sound and video on every target, in turns, chunks, batches and rounds."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cabochon
import checkpoints
from cabochon.errors import PackageError, RequestError
from cabochon.gemma4 import read_full_config
from cabochon.gemma4.full_names import tower_shapes
from cabochon.runtime import Medium, SoftToken, State
from cabochon.runtime.encoders import Encoders
from full_graphs import _weight
from full_packages import (
    AUDIO,
    BEGIN_IMAGE,
    END_IMAGE,
    GREEDY,
    IMAGE,
    VIDEO,
    fresh,
    picture,
    recorded_inputs,
    recorded_media,
    said,
    small,
)  # fmt: skip
from packages import MINIATURE, TINY, Packages

TARGETS = ("default", "onnx-standard", "cuda", "webgpu")
NAMES = ("text", "text_long", "image", "audio")
SOURCES = ("tiny-full", "big-full")


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * np.abs(b).max())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("chunk", [3, 512])
@pytest.mark.parametrize("name", NAMES)
def test_greedy_ids_are_the_recorded_ones(
    packages: Packages, recorded: Any, target: str, chunk: int, name: str
):
    model, known = fresh(packages, "tiny-full", target), recorded[f"target/{name}"]
    answer = model.generate(known["prompt"], prefill_chunk=chunk, **recorded_media(model, name), **GREEDY)
    assert answer.ids == known["tokens"]
    assert answer.prompt_ids == known["prompt"]
    assert answer.media_tokens == {"image": {"image": 60}, "audio": {"audio": 25}}.get(name, {})


@pytest.mark.parametrize("target", TARGETS)
def test_features_and_logits_are_the_recorded_ones(packages: Packages, target: str):
    model, two = packages.model("tiny-full", target), recorded_inputs("two")
    media = model.encode_images(two["pixel_values"], two["image_position_ids"])
    assert [m.tokens for m in media] == [51, 60]
    close(np.concatenate([m.features for m in media]), two["features"])
    for name in ("image", "audio"):
        known = np.load(TINY / "ref" / f"prefill_target_{name}.npz")
        given = recorded_media(model, name)
        expected = known[f"{name}_features"].reshape(-1, 64)
        close(next(iter(given.values()))[0].features, expected)
        ids = recorded_inputs(name)["input_ids"][0]
        close(model.forward(ids, **given).logits, known["logits"][0])


@pytest.mark.parametrize("target", ["default", "cuda"])
def test_without_media_it_is_the_text_package(packages: Packages, target: str):
    whole, text = fresh(packages, "tiny-full", target), packages.model("tiny", target)
    text.forget()
    for prompt in ("Hello", "The quick brown fox. " * 9, [{"role": "user", "content": "Hello <|image|>"}]):
        asked = {**GREEDY, "max_new_tokens": 30}
        answers = [model.generate(prompt, **asked) for model in (whole, text)]
        assert answers[0].ids == answers[1].ids
        assert answers[0].prompt_ids == answers[1].prompt_ids
    assert whole.remarks == text.remarks and whole.eos_token_ids == text.eos_token_ids
    drawn = [model.generate("Hello", seed=4, max_new_tokens=12).ids for model in (whole, text)]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("target", ["default", "cuda", "webgpu"])
@pytest.mark.parametrize("source", SOURCES)
def test_batches_of_different_images_equal_single_runs(packages: Packages, target: str, source: str):
    model = fresh(packages, source, target)
    prompts = [
        said(picture(1), "What is this?"),
        said("Hello"),
        said("First ", picture(2, 20, 90), " then ", picture(3, 64, 30)),
        said(picture(4), "What is this?"),
    ]
    answers = model.generate(prompts, **GREEDY)
    assert [a.ids for a in answers] == [model.generate(p, **GREEDY).ids for p in prompts]
    assert [a.media_tokens.get("image", 0) for a in answers] == [60, 0, 111, 60]
    assert len({tuple(a.ids) for a in answers}) == 4


def test_features_go_through_a_batch_row_by_row(packages: Packages):
    model = packages.model("tiny-full")
    rows = [model.prompt_ids(said(picture(seed), "x")) for seed in (1, 2)]
    both = model.state().step(rows, keep=0).logits
    for row, logits in zip(rows, both, strict=True):
        close(logits, model.state().step([row], keep=0).logits[0])


def test_media_for_several_prompts_are_lists_of_them(packages: Packages):
    model = fresh(packages, "tiny-full")
    prompts = ["<|image|> one", "two", "<|image|><|image|> three"]
    pictures = [[picture(1)], [], [picture(2), picture(3)]]
    answers = model.generate(prompts, images=pictures, **GREEDY)
    singles = [model.generate(p, images=i, **GREEDY) for p, i in zip(prompts, pictures, strict=True)]
    assert [a.ids for a in answers] == [s.ids for s in singles]
    with pytest.raises(RequestError, match=r"images: 2 for 3 prompts; expected a list of them for each"):
        model.generate(prompts, images=[[picture(1)], []])


@pytest.mark.parametrize("target", ["default", "cuda"])
@pytest.mark.parametrize("source", SOURCES)
def test_another_image_of_the_same_size_equals_a_cold_run(packages: Packages, target: str, source: str):
    """The token ids of both turns are the same. Short enough that nothing was evicted: the words before are reused."""
    model = fresh(packages, source, target)
    first, second, again = (
        model.generate("Hello <|image|> you", images=[small(model, seed)], **{**GREEDY, "max_new_tokens": 9})
        for seed in (1, 2, 2)
    )
    before = first.prompt_ids.index(BEGIN_IMAGE) + 1
    assert first.prompt_ids == second.prompt_ids and first.prompt_ids.count(IMAGE) == 4
    assert (first.timings.reused, second.timings.reused) == (0, before)
    assert again.timings.reused == len(first.prompt_ids) - 1
    model.forget()
    cold = model.generate("Hello <|image|> you", images=[small(model, 2)], **{**GREEDY, "max_new_tokens": 9})
    assert second.ids == again.ids == cold.ids != first.ids


@pytest.mark.parametrize("target", ["default", "cuda"])
def test_another_long_image_equals_a_cold_run(packages: Packages, target: str):
    """The window has wrapped many times within the picture."""
    model = fresh(packages, "tiny-full", target)
    first = model.generate(said("See: ", picture(1), " What is this?"), **GREEDY)
    second = model.generate(said("See: ", picture(2), " What is this?"), **GREEDY)
    assert first.prompt_ids == second.prompt_ids
    model.forget()
    assert (
        second.ids == model.generate(said("See: ", picture(2), " What is this?"), **GREEDY).ids != first.ids
    )


@pytest.mark.parametrize("source", SOURCES)
def test_a_next_turn_goes_on_behind_the_image(
    packages: Packages, source: str, monkeypatch: pytest.MonkeyPatch
):
    """The same picture is read again from the messages; it is neither encoded nor fed again."""
    model = fresh(packages, source)
    turns = said(picture(1), "What is this?")
    first = model.generate(turns, **GREEDY)
    turns += [{"role": "assistant", "content": first.text}, {"role": "user", "content": "And now?"}]
    encoded: list[Any] = []
    monkeypatch.setattr(Encoders, "_encode", lambda self, group: encoded.append(group))
    second = model.generate(turns, **GREEDY)
    monkeypatch.undo()
    assert encoded == []
    assert second.timings.reused >= len(first.prompt_ids) - 1
    model.forget()
    assert second.ids == model.generate(turns, **GREEDY).ids


@pytest.mark.parametrize("target", ["default", "cuda", "webgpu"])
@pytest.mark.parametrize("chunk", [1, 7, 64, 512])
def test_an_image_whose_tokens_see_each_other_is_fed_whole(packages: Packages, target: str, chunk: int):
    model = packages.model("big-full", target)
    assert model.session.ports.whole_images
    two = recorded_inputs("two")
    given = recorded_media(model, "two")
    whole = model.forward(two["input_ids"][0], **given)
    close(model.forward(two["input_ids"][0], chunk=chunk, **given).logits, whole.logits)
    assert not packages.model("tiny-full", target).session.ports.whole_images


@pytest.mark.parametrize("cut", [5, 30, 60, 64])
@pytest.mark.parametrize("source", SOURCES)
def test_rewinding_into_an_image_equals_a_cold_run(packages: Packages, source: str, cut: int):
    model = packages.model(source)
    ids = model.prompt_ids(said(picture(1), "What is this?"))
    state, cold = model.state(), model.state()
    state.prefill(ids)
    state.rewind(cut)
    close(state.step([[400]]).logits, cold.step([[*ids[:cut], 400]]).logits)
    assert state.tokens == cold.tokens


def test_a_prompt_that_ends_in_an_image(packages: Packages):
    """What is kept of a turn before may not be the first half of a picture."""
    model = fresh(packages, "big-full")
    asked = {**GREEDY, "max_new_tokens": 9}
    ids = model.prompt_ids("Hello <|image|> you", images=[small(model, 1, 3, 2)])
    end = ids.index(END_IMAGE)
    once, twice = (model.generate(ids[:end], **asked) for _ in range(2))
    assert once.ids == twice.ids and twice.timings.reused == ids.index(BEGIN_IMAGE) + 1
    model.generate(ids, **asked)
    shorter = model.generate(ids[: end - 2], **asked)
    model.forget()
    assert shorter.ids == model.generate(ids[: end - 2], **asked).ids


def test_a_generated_placeholder_is_padding(packages: Packages):
    model = packages.model("tiny-full")
    ids = model.prompt_ids("Hello")
    for token in (IMAGE, VIDEO, AUDIO):
        state, other = model.state(), model.state()
        state.prefill(ids), other.prefill(ids)
        np.testing.assert_array_equal(state.step([[token]]).logits, other.step([[0]]).logits)
        assert state.tokens[0][-1] == token


def test_video_placeholders_take_frames(packages: Packages):
    model = fresh(packages, "tiny-full")
    frames = recorded_media(model, "two")["images"]
    ids = recorded_inputs("two")["input_ids"][0]
    as_images = model.generate(ids, images=frames, **GREEDY)
    as_video = model.generate(np.where(ids == IMAGE, VIDEO, ids), videos=[frames], **GREEDY)
    assert as_video.media_tokens == {"video": 111}
    assert as_video.ids == as_images.ids
    mixed = np.where((ids == IMAGE) & (np.arange(len(ids)) < 60), VIDEO, ids)
    assert model.generate(mixed, images=frames[1:], videos=[frames[:1]], **GREEDY).ids == as_images.ids


def test_encoders_are_opened_when_something_comes(packages: Packages):
    model = cabochon.load(packages("tiny-full"), threads=1, provider="cpu")
    encoders: Encoders = model.session.embedder.encoders
    model.generate("Hello", **GREEDY)
    assert encoders._graphs == {}
    model.generate(said(picture(1), "x"), **GREEDY)
    assert list(encoders._graphs) == ["vision_encoder"]
    recorded_media(model, "audio")
    assert list(encoders._graphs) == ["vision_encoder", "audio_encoder"]


def test_the_same_picture_is_encoded_once(packages: Packages, monkeypatch: pytest.MonkeyPatch):
    model, groups = fresh(packages, "tiny-full"), list[int]()
    real = Encoders._encode
    monkeypatch.setattr(
        Encoders, "_encode", lambda self, group: (groups.append(len(group)), real(self, group))[1]
    )
    model.generate([said(picture(1), "x", picture(1)), said(picture(1), "y")], **GREEDY)
    assert groups == [1]


def test_features_and_tokens_may_be_given_back(packages: Packages, recorded: Any):
    """Features made elsewhere stand for their image; soft tokens are a prompt."""
    model, known = fresh(packages, "tiny-full"), recorded["target/image"]
    (medium,) = recorded_media(model, "image")["images"]
    elsewhere = Medium.encoded("vision_encoder", medium.features.copy())
    assert model.generate(known["prompt"], images=[elsewhere], **GREEDY).ids == known["tokens"]
    ids = model.prompt_ids(known["prompt"], images=[medium])
    assert sum(isinstance(i, SoftToken) for i in ids) == 60 and ids != known["prompt"]
    assert [int(i) for i in ids] == known["prompt"]
    assert model.generate(ids, **GREEDY).ids == known["tokens"]


@pytest.mark.parametrize(
    ("prompt", "given", "message"),
    [
        ([2, 8, 8], {}, "2 placeholders 8 and 0 soft tokens of 0 images; expected as many"),
        ([2, 30], {"images": 1}, "0 placeholders 8 and 60 soft tokens of 1 images"),
        ([2, 8], {"images": 1}, "1 placeholders 8 and 60 soft tokens of 1 images"),
        ([2, 11], {}, "1 placeholders 11 and 0 soft tokens of 0 audio"),
        ("Hi", {"images": 1}, "0 placeholders <|image|> and 1 images; expected as many"),
        ("<|image|><|image|> Hi", {"images": 1}, "2 placeholders <|image|> and 1 images"),
        ("<|image|> Hi <|audio|>", {"images": 1}, "1 placeholders <|audio|> and 0 audio"),
        (said("Hi"), {"images": 1}, "1 of kind image and 0 parts that ask for one"),
    ],
)
def test_as_many_placeholders_as_media(packages: Packages, prompt: Any, given: Any, message: str):
    model = packages.model("tiny-full")
    options = {name: [picture(n) for n in range(count)] for name, count in given.items()}
    with pytest.raises(RequestError) as caught:
        model.generate(prompt, **options)
    assert message in str(caught.value)


def test_media_are_not_read_where_their_number_is_wrong(packages: Packages):
    with pytest.raises(RequestError, match=r"0 placeholders <\|image\|> and 1 images"):
        packages.model("tiny-full").generate("Hi", images=["/nowhere.png"])


@pytest.mark.parametrize("name", ["embedding", "vision_encoder", "audio_encoder"])
def test_a_missing_component_is_named(packages: Packages, tmp_path: Path, name: str):
    folder = shutil.copytree(packages("tiny-full"), tmp_path / "p")
    shutil.rmtree(folder / name)
    with pytest.raises(PackageError, match=rf"a full package without {name}/model\.onnx"):
        cabochon.load(folder)
    shutil.rmtree(folder / "decoder")
    with pytest.raises(PackageError, match=r"holds no model\.onnx and no decoder/model\.onnx"):
        cabochon.load(folder)


def test_components_of_another_build_are_refused(packages: Packages, tmp_path: Path):
    folder = shutil.copytree(packages("tiny-full"), tmp_path / "p")
    for name, target in (("vision_encoder", "cuda"), ("embedding", "onnx-standard")):
        shutil.rmtree(folder / name)
        shutil.copytree(packages("tiny-full", target) / name, folder / name)
    with pytest.raises(PackageError) as caught:
        cabochon.load(folder)
    assert "embedding/model.onnx: metadata: cabochon.target is 'onnx-standard'; expected 'default'" in str(
        caught.value
    )
    shutil.rmtree(folder / "embedding")
    shutil.copytree(packages("tiny-full") / "embedding", folder / "embedding")
    model = cabochon.load(folder, threads=1, provider="cpu")
    with pytest.raises(
        PackageError, match=r"vision_encoder/model\.onnx: metadata: cabochon\.target is 'cuda'"
    ):
        model.generate(said(picture(1), "x"))
    assert model.generate("Hello", **GREEDY).ids


def test_a_decoder_by_itself_is_refused(packages: Packages):
    with pytest.raises(PackageError, match=r"decoder/model\.onnx"):
        cabochon.runtime.Session(packages("tiny-full") / "decoder" / "model.onnx", threads=1)


@pytest.mark.parametrize(
    "given", [{"images": [picture(1)]}, {"audio": ["a.wav"]}, {"videos": ["a.mp4"]}], ids=str
)
def test_a_text_package_refuses_media(packages: Packages, given: Any):
    with pytest.raises(RequestError) as caught:
        packages.model().generate("<|image|>", **given)
    assert "this is a text package, it takes neither images nor sound" in str(caught.value)
    assert "--model full" in str(caught.value)


def test_a_text_package_encodes_nothing(packages: Packages):
    made, model = recorded_inputs("image"), packages.model()
    with pytest.raises(RequestError, match="this is a text package"):
        model.encode_images(made["pixel_values"], made["image_position_ids"])
    with pytest.raises(RequestError, match="this is a text package"):
        model.encode_audio(np.ones((1, 9, 16)), np.ones((1, 9), bool))
    ids = packages.model("tiny-full").prompt_ids(said(picture(1), "x"))
    with pytest.raises(RequestError, match="this is a text package"):
        State(model.session).step([ids])


@pytest.mark.parametrize("target", ["default", "cuda"])
def test_f16(packages: Packages, target: str):
    model, exact = packages.model("tiny-full", target, "f16"), packages.model("tiny-full", target)
    ids, given = recorded_inputs("image")["input_ids"][0], recorded_media(model, "image")
    assert given["images"][0].features.dtype == np.float16
    logits = model.forward(ids, **given).logits
    wanted = exact.forward(ids, **recorded_media(exact, "image")).logits
    assert np.abs(logits - wanted).max() < 0.05 * np.abs(wanted).max()


@pytest.fixture(scope="module")
def miniature(tmp_path_factory: pytest.TempPathFactory) -> cabochon.runtime.Model:
    """The trained miniature with towers of random weights."""
    folder = tmp_path_factory.mktemp("miniature")
    shutil.copytree(MINIATURE / "target", folder / "source")
    raw = checkpoints.tiny_config("target")
    raw["text_config"] = json.loads((MINIATURE / "target" / "config.json").read_bytes())
    checkpoints.write_config(folder / "source", raw)
    shutil.copy(TINY / "target" / "processor_config.json", folder / "source")
    checkpoints.rename(folder / "source", lambda name: name.replace("model.", "model.language_model.", 1))
    rng, shapes = np.random.default_rng(0), tower_shapes(read_full_config(raw))
    checkpoints.change(
        folder / "source",
        lambda tensors: (
            tensors
            | {
                name: ("F32", list(shape), np.asarray(_weight(rng, name, shape), np.float32).tobytes())
                for name, shape in shapes.items()
            }
        ),
    )
    how: Any = {"model": "full", "precision": "f32", "license": "apache-2.0"}
    built = cabochon.build(folder / "source", folder / "out", **how)
    return cabochon.load(built.path, threads=1, provider="cpu")


def test_the_miniature_with_towers_answers_text_as_without(packages: Packages, miniature: Any):
    text = packages.model("miniature")
    prompts = [
        "And it came to pass",
        [{"role": "user", "content": "Hello"}],
        "日本語 😀 In the beginning " * 9,
    ]
    asked = {"greedy": True, "max_new_tokens": 48}
    assert [miniature.generate(p, **asked).ids for p in prompts] == [
        text.generate(p, **asked).ids for p in prompts
    ]
    assert [a.text for a in miniature.generate(prompts, **asked)] == [
        a.text for a in text.generate(prompts, **asked)
    ]
    seen = miniature.generate("<|image|> What is this?", images=[picture(1)], **asked)
    assert seen.ids and seen.media_tokens == {"image": 60}
    with pytest.raises(RequestError) as caught:  # its template knows text alone
        miniature.generate(said(picture(1), "What is this?"))
    assert "chat template: 0 placeholders <|image|> and 1 images; expected as many" in str(caught.value)
    assert "take a template that writes <|image|> for each, or raw text" in str(caught.value)
