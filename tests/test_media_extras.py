"""Libraries that decode media are extras, met only when they are needed."""

import subprocess
import sys

import numpy as np
import pytest

from cabochon.errors import RequestError
from cabochon.media import ImageProcessor, load_audio, load_image
from pictures import REAL, picture

LIBRARIES = ("PIL", "soundfile", "soxr", "av")


def test_importing_the_room_imports_no_library():
    code = "import cabochon.media, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {*LIBRARIES, "onnx", "onnxruntime", "torch"} & set(loaded)


@pytest.mark.parametrize(
    ("library", "use", "message"),
    [
        ("PIL.Image", lambda: load_image(b"\x89PNG"), "reading images needs Pillow"),
        ("soundfile", lambda: load_audio(b"RIFF", 16_000), "reading sound needs soundfile"),
        (
            "soxr",
            lambda: load_audio((np.ones(9), 8000), 16_000),
            "resampling from 8000 to 16000 Hz needs soxr",
        ),
    ],
)
def test_what_is_missing_and_how_to_get_it(library: str, use, message: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        RequestError, match=f'^{message}, which is not installed\n  -> pip install "cabochon\\[media\\]"'
    ):
        use()


def test_arrays_need_no_library(monkeypatch: pytest.MonkeyPatch):
    for library in LIBRARIES:
        monkeypatch.setitem(sys.modules, library, None)
    assert ImageProcessor(REAL)([picture(9, 9), picture(9, 9, 4)]).tokens == (256, 256)
    assert load_audio(np.ones(5, np.float32), 16_000).tolist() == [1.0] * 5
