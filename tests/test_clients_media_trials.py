"""The files that other runtimes are shown, and how a prompt is spelled for each. No runtime but ours is needed here."""

import wave
import zlib
from pathlib import Path

import numpy as np
import pytest

from cabochon.clients.child import Ended
from cabochon.clients.judging import Expected, judged
from cabochon.clients.media_trials import Shown, shown
from cabochon.clients.onnxruntime_genai import AROUND, showing
from cabochon.media import read_processors
from packages import Packages


@pytest.fixture
def trials(packages: Packages, tmp_path: Path) -> dict[str, Shown]:
    package = packages("tiny-full")
    model = packages.model("tiny-full")
    return {one.name: one for one in shown(model, read_processors(package), tmp_path)}


def test_what_is_shown(trials: dict[str, Shown]) -> None:
    assert list(trials) == ["image", "resized image", "two images", "audio", "two clips", "image and audio"]
    assert [kind for kind, _ in trials["image and audio"].media] == ["image", "audio"]


def test_pictures_that_no_budget_changes(trials: dict[str, Shown], packages: Packages) -> None:
    processor = read_processors(packages("tiny-full")).image
    assert processor
    for picture in trials["two images"].content:
        made = processor([picture])
        patches = made.tokens[0] * 9
        assert patches * 16 == picture.shape[0] * picture.shape[1], "every pixel of it, once"
        first = made.pixel_values[0, 0].reshape(4, 4, 3)
        assert np.allclose(first, picture[:4, :4] / 255, atol=1e-6)
    (small,) = trials["resized image"].content
    assert small.shape[1] % 12, "no multiple of what a token covers"


def test_files_hold_what_ours_is_given(trials: dict[str, Shown]) -> None:
    (_, png), (_, wav) = trials["image and audio"].media
    pixels, samples = trials["image and audio"].content
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at = data.index(b"IDAT")
    rows = zlib.decompress(data[at + 4 : at + 4 + int.from_bytes(data[at - 4 : at])])
    assert np.array_equal(
        np.frombuffer(rows, np.uint8).reshape(len(pixels), -1)[:, 1:], pixels.reshape(len(pixels), -1)
    )
    with wave.open(str(wav)) as file:
        assert (file.getframerate(), file.getnframes()) == (16000, len(samples))
        assert np.allclose(np.frombuffer(file.readframes(16000), np.int16) / 2**15, samples)


def test_how_a_prompt_is_spelled(trials: dict[str, Shown]) -> None:
    one = trials["two images"]
    assert one.text() == "<bos><|image|><|image|> What is it?"
    assert one.ours(AROUND, AROUND).startswith("\n\n<|image|>\n\n\n\n<|image|>\n\n")
    assert one.given().keys() == {"images"} and len(one.given()["images"]) == 2
    trial = showing(one, 150, (1, 2, 3))
    assert trial.steps[0][0] == "show" and trial.steps[0][1]["text"] == one.text()
    assert trial.request("")["room"] == 150 + 3 + 8 and trial.steps[0][1]["audio"] == []


def test_texts_are_compared_where_no_tokens_are_said() -> None:
    gave = {"name": "image", "event": "gave", "found": {"text": "ab"}, "seconds": 0.5}
    ended = Ended(({"name": "image", "event": "begins"}, gave), 0, "", 1.0)

    def found(*texts: str) -> tuple[str, str]:
        (probe,) = judged(ended, {"image": Expected("an image", texts=texts)})
        return probe.outcome, probe.happened

    assert found("a\ufffd", "ab") == ("worked", "the same text as cabochon's own runtime")
    assert found("cd", "ce") == ("differs", "'ab' instead of 'cd', the text of cabochon's own runtime")
