"""run and chat with pictures and sound in files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from full_packages import REF, fresh, picture, said
from packages import Packages
from test_cli import call, succeed

ASKED = ("--greedy", "--ignore-eos", "--max-new-tokens", "16", "--threads", "1")


@pytest.fixture(scope="module")
def whole(packages: Packages) -> Path:
    return packages("tiny-full")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A picture and a sound: those of the recorded prompts, a second picture, frames, and what is no picture."""
    import soundfile
    from PIL import Image

    folder, known = tmp_path_factory.mktemp("media"), np.load(REF / "media.npz")
    Image.fromarray(known["image"]).save(folder / "a.png")
    Image.fromarray(picture(2)).save(folder / "b.png")
    frames = [Image.fromarray(picture(n)) for n in range(3)]
    frames[0].save(folder / "c.gif", save_all=True, append_images=frames[1:], duration=40)
    soundfile.write(folder / "d.wav", known["wav"], 16_000, subtype="FLOAT")
    (folder / "e.png").write_text("no picture")
    return {path.stem: str(path) for path in folder.iterdir()}


def test_run_shows_an_image(whole: Path, files: dict[str, str], recorded: Any):
    arguments = ("run", whole, "--image", files["a"], "--chat", "Describe this image.", *ASKED)
    found = json.loads(succeed(*arguments, "--json"))
    assert found["ids"] == recorded["target/image"]["tokens"]
    assert found["prompt_ids"] == recorded["target/image"]["prompt"]
    assert found["media_tokens"] == {"image": 60}
    done = call(*arguments)
    assert done.stdout == found["text"] + "\n"
    assert "78 prompt tokens (60 of image) in " in done.stderr


def test_run_plays_a_sound(whole: Path, files: dict[str, str], recorded: Any):
    found = json.loads(
        succeed("run", whole, "--audio", files["d"], "--chat", "Transcribe.", *ASKED, "--json")
    )
    assert found["ids"] == recorded["target/audio"]["tokens"]
    assert found["media_tokens"] == {"audio": 25}


def test_media_come_first_images_then_sound_then_video(whole: Path, files: dict[str, str]):
    given = ("--video", files["c"], "--audio", files["d"], "--image", files["b"], "--image", files["a"])
    for how in ("--chat", "--prompt"):
        found = json.loads(succeed("run", whole, *given, how, "Why?", *ASKED, "--json"))
        runs = [
            i
            for n, i in enumerate(found["prompt_ids"])
            if i in (8, 11, 13) and found["prompt_ids"][n - 1] != i
        ]
        assert runs == [8, 8, 11, 13, 13]
        assert found["media_tokens"] == {"image": 120, "audio": 25, "video": 120}


def test_the_unified_model_counts_patches_and_frames(packages: Packages, files: dict[str, str]):
    given = ("--image", files["b"], "--audio", files["d"], "--video", files["c"])
    arguments = ("run", packages("unified-full"), *given, "--chat", "Why?", *ASKED)
    found = json.loads(succeed(*arguments, "--json"))
    assert found["media_tokens"] == {"image": 60, "audio": 25, "video": 120}
    assert [found["prompt_ids"].count(i) for i in (8, 11, 13)] == [60, 25, 120] and len(found["ids"]) == 16


def test_raw_text_says_where_they_stand(whole: Path, files: dict[str, str]):
    given = ("--image", files["a"], "--image", files["b"])
    found = json.loads(succeed("run", whole, *given, "--prompt", "A <|image|> b <|image|>", *ASKED, "--json"))
    assert found["prompt_ids"][0] == 2 and found["prompt_ids"][-1] == 9
    assert found["prompt_ids"].count(7) == found["prompt_ids"].count(9) == 2
    done = call("run", whole, *given, "--prompt", "A <|image|>", *ASKED)
    assert done.returncode == 1
    assert "1 placeholders <|image|> and 2 images; expected as many" in done.stderr


def test_ids_with_an_image(whole: Path, files: dict[str, str], recorded: Any):
    ids = ",".join(map(str, recorded["target/image"]["prompt"]))
    found = json.loads(succeed("run", whole, "--image", files["a"], "--ids", ids, *ASKED, "--json"))
    assert found["ids"] == recorded["target/image"]["tokens"]


@pytest.mark.parametrize(
    ("option", "name", "message"),
    [
        ("--image", "e", "e.png"),
        ("--image", "nowhere", "images[0] nowhere: cannot be read: No such file"),
        ("--audio", "a", "audio[0]"),
        ("--image", "https://example.org/a.png", "nothing is fetched from the network"),
    ],
)
def test_what_cannot_be_shown_is_said(
    whole: Path, files: dict[str, str], option: str, name: str, message: str
):
    done = call("run", whole, option, files.get(name, name), "--chat", "x", *ASKED)
    assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr


def test_a_text_package_says_what_it_is(packages: Packages, files: dict[str, str]):
    for how in ("--chat", "--prompt"):
        done = call("run", packages(), "--image", files["a"], how, "x", *ASKED)
        assert done.returncode == 1 and "cabochon build SOURCE OUT --model full" in done.stderr


CHAT = ("--greedy", "--max-new-tokens", "6", "--threads", "1")


def test_chat_shows_with_the_next_turn(whole: Path, files: dict[str, str], packages: Packages):
    lines = f"/image {files['a']}\n/image {files['b']}\nWhat is this?\nAnd now?\n/audio {files['d']}\nThis?\n"
    answers = [json.loads(line) for line in succeed("chat", whole, *CHAT, "--json", input=lines).splitlines()]
    assert [a["media_tokens"] for a in answers] == [
        {"image": 120},
        {"image": 120},
        {"image": 120, "audio": 25},
    ]
    model = fresh(packages, "tiny-full")
    first = np.load(REF / "media.npz")["image"]
    once = model.generate(said(first, picture(2), "What is this?"), greedy=True, max_new_tokens=6)
    assert answers[0]["ids"] == once.ids


def test_chat_goes_on_after_what_cannot_be_shown(whole: Path, files: dict[str, str]):
    lines = f"/image\n/image nowhere.png\nWhat?\n/image {files['a']}\nWhat is this?\n/imagine\n"
    done = call("chat", whole, *CHAT, "--json", input=lines)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert [("error" in s) for s in said] == [True, True, False, False]
    assert said[0]["error"] == {
        "kind": "RequestError", "at": "/image", "message": "names no file", "remedy": "write /image FILE"
    }  # fmt: skip
    assert "nowhere.png" in said[1]["error"]["at"]
    assert [s["media_tokens"] for s in said[2:]] == [{"image": 60}, {"image": 60}]
