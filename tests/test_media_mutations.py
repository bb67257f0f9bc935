"""Files with a few bytes changed, lost or added: they are read or refused, and nothing else happens."""

import io
import random
from collections.abc import Callable

import numpy as np
import pytest
import soundfile
from PIL import Image

from cabochon.errors import RequestError
from cabochon.media import load_audio, load_image, load_video
from pictures import picture, tone
from test_media_video import mp4


def image(kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    more = {} if kind in ("BMP", "PPM", "GIF") else {"exif": exif}
    Image.fromarray(picture(24, 31)).save(file, kind, **more, **options)
    return file.getvalue()


def animation(kind: str) -> bytes:
    file, frames = io.BytesIO(), [Image.fromarray(np.full((9, 9, 3), i * 50, np.uint8)) for i in range(4)]
    frames[0].save(file, kind, save_all=True, append_images=frames[1:], duration=50)
    return file.getvalue()


def sound(kind: str, subtype: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, np.stack([tone(2000)] * 2, 1), 16_000, format=kind, subtype=subtype)
    return file.getvalue()


FILES: dict[str, tuple[Callable[[bytes], object], Callable[[], bytes]]] = {
    "png": (load_image, lambda: image("PNG")),
    "jpeg": (load_image, lambda: image("JPEG")),
    "webp": (load_image, lambda: image("WEBP")),
    "gif": (load_image, lambda: image("GIF")),
    "bmp": (load_image, lambda: image("BMP")),
    "ppm": (load_image, lambda: image("PPM")),
    "animated gif": (lambda data: load_video(data, num_frames=3), lambda: animation("GIF")),
    "animated png": (lambda data: load_video(data, num_frames=3), lambda: animation("PNG")),
    "mp4": (
        lambda data: load_video(data, num_frames=3),
        lambda: mp4(np.stack([np.full((48, 64, 3), 20 * i, np.uint8) for i in range(4)]), 5),
    ),
    "wav": (lambda data: load_audio(data, 16_000), lambda: sound("WAV", "FLOAT")),
    "flac": (lambda data: load_audio(data, 16_000), lambda: sound("FLAC", "PCM_16")),
    "ogg": (lambda data: load_audio(data, 16_000), lambda: sound("OGG", "VORBIS")),
}


def mutated(data: bytes, chance: random.Random) -> bytes:
    result = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(min(len(result), chance.choice([40, 200, 10**6])) or 1)
        match chance.randrange(4):
            case 0:
                del result[at : at + chance.randint(1, 9)]
            case 1:
                result[at:at] = chance.randbytes(4)
            case _:
                result[at : at + 1] = chance.randbytes(1)
    return bytes(result)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.filterwarnings("error")
def test_read_or_refused(name: str):
    load, make = FILES[name]
    data, chance, refused = make(), random.Random(name), 0
    load(data)
    for _ in range(100):
        try:
            load(mutated(data, chance))
        except RequestError as error:
            refused += 1
            assert str(error)
    assert refused
