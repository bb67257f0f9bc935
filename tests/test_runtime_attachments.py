"""Media in messages and in raw text: what is written for each, and in which order they are taken."""

import base64
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cabochon
from cabochon.errors import PackageError, RequestError
from cabochon.runtime import Model, SoftToken
from cabochon.runtime.marks import Marks
from cabochon.runtime.soft import Medium
from cabochon.runtime.sources import Attached, Sources
from full_packages import AUDIO, IMAGE, REF, VIDEO, picture, recorded_media, small
from packages import Packages

SOUND = (np.sin(np.arange(5000) / 9).astype(np.float32), 16_000)
BEGIN, END = 7, 9


@pytest.fixture(scope="module")
def whole(packages: Packages) -> Model:
    return packages.model("tiny-full")


def user(*content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(content)}]


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def kinds(ids: list[int]) -> list[str]:
    """The kind of each run of soft tokens."""
    found = [i.kind if isinstance(i, SoftToken) else "" for i in ids]
    return [kind for n, kind in enumerate(found) if kind and (not n or found[n - 1] != kind)]


@pytest.mark.parametrize(
    ("name", "part", "words"), [("image", "image", "Describe this image."), ("audio", "wav", "Transcribe.")]
)
def test_messages_become_the_recorded_ids(whole: Model, recorded: Any, name: str, part: str, words: str):
    array = np.load(REF / "media.npz")[part]
    source = (array, 16_000) if part == "wav" else array
    ids = whole.prompt_ids(user({"type": name, name: source}, text(words)))
    assert [int(i) for i in ids] == recorded[f"target/{name}"]["prompt"]
    assert kinds(ids) == [name]


def test_marks_are_written_as_the_processor_does():
    two, three = (Medium.encoded("vision_encoder", np.zeros((n, 4))) for n in (2, 3))
    marks = Marks("<i>", "<b>", "<e>")
    assert marks.text(Attached((two,))) == "<b><i><i><e>"
    assert (
        marks.text(Attached((two, three), ("00:00", "01:05"))) == "00:00 <b><i><i><e> 01:05 <b><i><i><i><e>"
    )


def test_a_video_is_frames_with_their_times(whole: Model):
    frames = recorded_media(whole, "two")["images"]
    ids = whole.prompt_ids("See <|video|> now", videos=[frames])
    written = "See 00:00 <|image>{}<image|> 00:00 <|image>{}<image|> now"
    written = written.format("<|video|>" * 51, "<|video|>" * 60)
    assert [int(i) for i in ids] == whole.tokens.with_one_bos(whole.tokens.marked_up(written))
    assert [
        m.medium for m in dict.fromkeys(i for i in ids if isinstance(i, SoftToken) and not i.row)
    ] == frames
    raw = [picture(n, 64, 30) for n in range(4)]
    said = whole.prompt_ids("<|video|>", videos=[raw])
    assert kinds(said) == ["video", "video"] and [int(i) for i in said].count(VIDEO) == 120


def test_media_are_taken_in_the_order_of_their_placeholders(whole: Model):
    one, two = small(whole, 1), small(whole, 2)
    clip = {"type": "audio", "audio": SOUND}
    ids = whole.prompt_ids(
        user({"type": "image", "image": two}, text("a"), clip, text("b"), {"type": "image", "image": one})
    )
    assert kinds(ids) == ["image", "audio", "image"]
    assert [i.medium for i in ids if isinstance(i, SoftToken) and i == IMAGE and not i.row] == []
    media = [i.medium for i in ids if isinstance(i, SoftToken) and not i.row]
    assert (media[0], media[2]) == (two, one)
    assert [int(i) for i in ids].count(AUDIO) == media[1].tokens == 8


def test_parts_without_a_source_take_what_is_given(whole: Model):
    one, two, three = (small(whole, n) for n in (1, 2, 3))
    bare = {"type": "image"}
    turns = [*user(bare, text("x"), {"type": "image", "path": two}), {"role": "assistant", "content": "y"}]
    ids = whole.prompt_ids([*turns, *user(bare)], images=[one, three])
    assert [i.medium for i in ids if isinstance(i, SoftToken) and not i.row] == [one, two, three]


@pytest.mark.parametrize("kind", ["image", "audio", "video"])
def test_typed_placeholders_are_letters(whole: Model, kind: str):
    words = f"<|{kind}|> <image|> <|turn>"
    for prompt in (words, [{"role": "user", "content": words}], user(text(words), text("x"))):
        ids = whole.prompt_ids(prompt)
        assert not {IMAGE, AUDIO, VIDEO, END} & set(ids)
        assert words in whole.tokens.decode(ids)
    with_image = user({"type": "image", "image": small(whole, 1)}, text(words))
    ids = [int(i) for i in whole.prompt_ids(with_image)]
    assert (ids.count(IMAGE), ids.count(BEGIN), ids.count(END), ids.count(5)) == (4, 1, 1, 2)


def test_raw_text_means_its_placeholders_where_media_come_with_it(whole: Model):
    one = small(whole, 1)
    ids = [int(i) for i in whole.prompt_ids("a <|image|> b <turn|> <|audio> <bos>", images=[one])]
    assert (ids.count(IMAGE), ids.count(BEGIN), ids.count(END)) == (4, 1, 1)
    assert (ids.count(6), ids.count(10), ids.count(2)) == (0, 0, 1)
    assert "<turn|> <|audio> <bos>" in whole.tokens.decode(ids)
    meant = [int(i) for i in whole.prompt_ids("<|image|><turn|>", images=[one], parse_special=True)]
    assert meant == [2, 7, 8, 8, 8, 8, 9, 6]


def test_media_come_before_text_without_placeholders(whole: Model):
    given = {"images": [1, 2], "audio": [3], "videos": [4]}
    assert whole.with_placeholders("x", **given) == "<|image|><|image|><|audio|><|video|>x"
    assert whole.with_placeholders("x <|audio|>", **given) == "x <|audio|>"
    assert whole.with_placeholders("x") == "x"


@pytest.mark.parametrize("key", ["image", "path", "url"])
def test_a_part_names_its_source_in_several_ways(whole: Model, key: str):
    one = small(whole, 1)
    ids = whole.prompt_ids(user({"type": "image", key: one}))
    assert [i.medium for i in ids if isinstance(i, SoftToken) and not i.row] == [one]


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ({"type": "image"}, "messages[0].content[0]: {'type': 'image'}; expected one of 'image', 'path'"),
        ({"type": "image", "image": 1, "path": 2}, "expected one of 'image', 'path', 'url', 'base64'"),
        ({"type": "picture", "picture": 1}, "this package takes parts of type 'text', 'image', 'video', 'audio'"),
        ({"type": "image", "url": "https://example.org/a.png"}, "nothing is fetched from the network"),
        ({"type": "image", "url": "http://127.0.0.1/a.png"}, "images[0] http://127.0.0.1/a.png"),
        ({"type": "audio", "path": "/nowhere/a.wav"}, "audio[0] /nowhere/a.wav: cannot be read"),
        ({"type": "video", "path": "/nowhere/a.mp4"}, "videos[0] /nowhere/a.mp4: cannot be read"),
        ({"type": "image", "image": np.zeros((4, 4), np.int64)}, "images[0]"),
        ({"type": "image", "url": "data:image/png,abc"}, "images[0]: 'data:image/png'; expected data:"),
        ({"type": "image", "base64": "%"}, "what follows 'data:;base64' is no base64"),
        ({"type": "audio", "audio": Medium.encoded("vision_encoder", np.zeros((1, 64)))}, "features of the vision"),
    ],
)  # fmt: skip
def test_parts_are_refused(whole: Model, part: Any, message: str):
    with pytest.raises(RequestError) as caught:
        whole.prompt_ids(user(part))
    assert message in str(caught.value)


def test_a_text_package_takes_parts_of_text(packages: Packages):
    with pytest.raises(RequestError) as caught:
        packages.model().generate(user({"type": "image", "image": "a.png"}))
    assert "this package takes parts of type 'text' only" in str(caught.value)
    assert "--model full" in str(caught.value)


def test_base64_is_bytes(whole: Model, monkeypatch: pytest.MonkeyPatch):
    """What reads bytes is the media room's; here it is told them."""
    seen: list[Any] = []

    def read(source: Any, **how: Any) -> Any:
        seen.append(source)
        raise RequestError("enough", at="images[0]")

    monkeypatch.setattr(Sources, "_needed", lambda self, kind: read)
    encoded = base64.b64encode(b"bytes").decode()
    for part in ({"url": f"data:image/png;base64,{encoded}"}, {"base64": encoded}):
        with pytest.raises(RequestError, match=r"^images\[0\]: enough"):
            whole.prompt_ids(user({"type": "image", **part}))
    assert seen == [b"bytes", b"bytes"]


def test_what_was_left_out_is_said(whole: Model):
    long = np.sin(np.arange(490_000) / 9).astype(np.float32)
    ids = whole.prompt_ids("<|audio|>", audio=[(long, 16_000)])
    (remark,) = next(i for i in ids if isinstance(i, SoftToken)).medium.remarks
    assert "30.62 s at 16000 Hz; a clip has 30 s at most" in remark
    whole.forget()
    answer = whole.generate("<|audio|>", audio=[(long, 16_000)], max_new_tokens=1)
    assert answer.remarks == (remark,) and answer.media_tokens == {"audio": 750}


def test_a_package_without_processors_takes_what_one_made(packages: Packages, tmp_path: Path, recorded: Any):
    folder = shutil.copytree(packages("tiny-full"), tmp_path / "p")
    (folder / "processor_config.json").unlink()
    model = cabochon.load(folder, threads=1, provider="cpu")
    with pytest.raises(PackageError, match=r"processor_config\.json: it has no processor for image"):
        model.prompt_ids(user({"type": "image", "image": picture(1)}))
    known = recorded["target/image"]
    answer = model.generate(
        known["prompt"], **recorded_media(model, "image"), greedy=True, ignore_eos=True, max_new_tokens=16
    )
    assert answer.ids == known["tokens"]


def test_a_tokenizer_without_a_mark_is_named(packages: Packages, tmp_path: Path):
    folder = shutil.copytree(packages("tiny-full"), tmp_path / "p")
    for name, old, new in (
        ("tokenizer_config.json", '"boi_token"', '"other"'),
        ("config.json", '"boi_token_id": 7', '"boi_token_id": 500'),
    ):
        content = (folder / name).read_text()
        assert old in content
        (folder / name).write_text(content.replace(old, new))
    model = cabochon.load(folder, threads=1, provider="cpu")
    with pytest.raises(PackageError, match=r"config\.json: boi_token_id: 500; expected a control token"):
        model.prompt_ids(user({"type": "image", "image": picture(1)}))
