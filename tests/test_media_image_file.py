"""Files of every kind that an image may come in, and those that are none."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cabochon.errors import RequestError
from cabochon.media import ImageProcessor, load_image
from cabochon.media.image_file import MAX_PIXELS
from pictures import REAL, digest, picture

RGB = picture(30, 50)


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "BMP", "TIFF", "PPM", "GIF"])
def test_lossless_kinds(kind: str, tmp_path: Path):
    """From a path, its text, bytes, a view of them, and an open file."""
    image = Image.fromarray(RGB) if kind != "GIF" else Image.fromarray(RGB).quantize(256)
    data = encoded(image, kind, **({"lossless": True} if kind == "WEBP" else {}))
    (path := tmp_path / f"image.{kind.lower()}").write_bytes(data)
    expected = np.asarray(image.convert("RGB"))
    with path.open("rb") as file:
        for source in (
            path,
            str(path),
            data,
            bytearray(data),
            memoryview(data),
            io.BytesIO(data),
            file,
            image,
        ):
            loaded = load_image(source)
            assert loaded.dtype == np.uint8
            np.testing.assert_array_equal(loaded, expected)


def test_jpeg(tmp_path: Path):
    image = Image.fromarray(picture(64, 80)[..., [0, 0, 0]])
    image.save(tmp_path / "photo.jpg", quality=95)
    np.testing.assert_array_equal(
        load_image(tmp_path / "photo.jpg"), np.asarray(Image.open(tmp_path / "photo.jpg"))
    )
    assert np.abs(load_image(tmp_path / "photo.jpg").astype(int) - np.asarray(image)).mean() < 6


@pytest.mark.parametrize(
    ("orientation", "upright"),
    [
        (1, lambda a: a),
        (2, lambda a: a[:, ::-1]),
        (3, lambda a: a[::-1, ::-1]),
        (4, lambda a: a[::-1]),
        (5, lambda a: a.swapaxes(0, 1)),
        (6, lambda a: np.rot90(a, -1)),
        (7, lambda a: np.rot90(a, 2).swapaxes(0, 1)),
        (8, lambda a: np.rot90(a)),
        (9, lambda a: a),  # no such orientation
    ],
)  # fmt: skip
def test_exif_orientation(orientation: int, upright):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(Image.fromarray(RGB), "PNG", exif=exif)
    np.testing.assert_array_equal(load_image(data), upright(RGB))
    np.testing.assert_array_equal(load_image(Image.open(io.BytesIO(data))), upright(RGB))


@pytest.mark.parametrize(
    ("mode", "sha256"),
    [  # pixel_values of transformers 5.24 with torchvision, from the same Pillow image
        ("RGBA", "458333831af151b0"),
        ("LA", "696a60a0d4b0b408"),
        ("CMYK", "ff02d7474c3f110e"),
        ("L", "10f2cdfc9de292d2"),
        ("1", "c6fd11c0ac292454"),
    ],
)
def test_modes_as_recorded(mode: str, sha256: str):
    image = Image.fromarray(picture(90, 120, 4))
    image = image.convert(mode) if mode in ("RGBA", "LA") else image.convert("RGB").convert(mode)
    assert digest(ImageProcessor(REAL)(image).pixel_values) == sha256


def test_an_array_with_transparency_as_recorded():
    assert digest(ImageProcessor(REAL)(picture(90, 120, 4)).pixel_values) == "7826271bdcc0f614"


def test_transparency_is_white():
    clear = np.zeros((2, 2, 4), np.uint8)
    half = np.full((2, 2, 4), 128, np.uint8)
    palette = Image.fromarray(np.array([[0, 1]], np.uint8), "P")
    palette.putpalette([255, 0, 0, 0, 0, 255])
    palette.info["transparency"] = 0
    assert load_image(clear).tolist() == [[[255] * 3] * 2] * 2
    assert load_image(Image.fromarray(half)).tolist() == [[[191] * 3] * 2] * 2
    assert load_image(palette).tolist() == [[[255, 255, 255], [0, 0, 255]]]
    grey = Image.fromarray(np.array([[0, 200]], np.uint8))
    assert load_image(encoded(grey, "PNG", transparency=200)).tolist() == [[[0] * 3, [255] * 3]]


def test_sixteen_bits_keep_the_upper_eight(tmp_path: Path):
    wide = np.array([[0, 255, 256, 0x1234, 0xFFFF]], np.uint16)
    expected = [[[value] * 3 for value in (0, 0, 1, 0x12, 255)]]
    Image.fromarray(wide).save(tmp_path / "wide.png")
    Image.fromarray(wide).save(tmp_path / "wide.tiff")
    assert load_image(tmp_path / "wide.png").tolist() == expected
    assert load_image(tmp_path / "wide.tiff").tolist() == expected
    with pytest.raises(RequestError, match=r"has mode 'F' and values from 0.0 to 1.0; expected 8 or 16 bits"):
        load_image(Image.fromarray(np.array([[0, 1]], np.float32)))
    with pytest.raises(RequestError, match="has mode 'I' and values from -1 to 1; expected 8 or 16 bits"):
        load_image(Image.fromarray(np.array([[-1, 1]], np.int32)))


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (RGB[..., 0], np.repeat(RGB[..., :1], 3, 2)),
        (RGB[..., :1], np.repeat(RGB[..., :1], 3, 2)),
        (RGB, RGB),
        (RGB / 255, RGB),
        ((RGB / 255).astype(np.float16), RGB),
        (np.array([[0.0, 0.5, 1.0]], np.float32), np.array([[[0] * 3, [128] * 3, [255] * 3]])),
    ],
)
def test_arrays(array: np.ndarray, expected: np.ndarray):
    np.testing.assert_array_equal(load_image(array), expected)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 8, 9), np.uint8), r"array of shape \[3, 8, 9\]; expected \[H, W\]"),
        (np.zeros(4, np.uint8), r"array of shape \[4\]"),
        (np.zeros((0, 4, 3), np.uint8), r"has 0 x 4 pixels \(height x width\); expected at least one"),
        (np.zeros((2, 2), np.int64), r"array of int64; expected uint8, or floating point in \[0, 1\]"),
        (np.zeros((2, 2), bool), "array of bool; expected uint8"),
        (RGB.astype(np.float32), r"array of float32 with values from 0 to 255; expected \[0, 1\]"),
        (np.array([[np.nan]]), r"array of float64 with values from nan to nan; expected \[0, 1\]"),
        (
            np.broadcast_to(np.uint8(0), (2**14, 2**14)),
            f"has 16384 x 16384 pixels .*, 268435456; {MAX_PIXELS} are taken",
        ),
    ],
)
def test_arrays_that_are_no_images(array: np.ndarray, message: str):
    with pytest.raises(RequestError, match=message):
        load_image(array)


def png_of(width: int, height: int) -> bytes:
    """A PNG that says so many pixels and holds next to none."""
    import struct
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0"))
        + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("width", "height", "message"),
    [
        (12_000, 12_000, "has 12000 x 12000 pixels .*, 144000000; 134217728 are taken\n  -> scale it down"),
        (60_000, 60_000, "3600000000 pixels.*134217728 are taken\n  -> scale it down"),
    ],
)
def test_decompression_bombs_are_refused_undecoded(width: int, height: int, message: str, recwarn):
    with pytest.raises(RequestError, match=message):
        load_image(png_of(width, height))
    assert not recwarn.list


WHOLE = encoded(Image.fromarray(RGB), "PNG")
PHOTO = encoded(Image.fromarray(picture(200, 200)), "JPEG")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty: no bytes at all"),
        (WHOLE[: len(WHOLE) // 2], "cannot be decoded: .*truncated"),
        (PHOTO[: len(PHOTO) // 2], "cannot be decoded: .*truncated"),
        (WHOLE[:20], "cannot be (opened|decoded)|not an image"),
        (
            b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
            "is not an image of a known kind; expected PNG, JPEG",
        ),
        (b"hello, this is text", "is not an image of a known kind"),
    ],
)
def test_broken_files(data: bytes, message: str):
    with pytest.raises(RequestError, match=f"^image of {len(data)} bytes: ({message})"):
        load_image(data)


def test_sources_that_are_none(tmp_path: Path):
    (tmp_path / "empty.png").touch()
    for source, message in (
        (tmp_path / "empty.png", "empty.png: is empty: 0 bytes"),
        (
            tmp_path / "absent.png",
            r"absent.png: cannot be read: No such file or directory\n  -> check the path",
        ),
        (tmp_path, "cannot be read: Is a directory"),
        ("https://example.com/a.png", "is an address; nothing is fetched from the network here"),
        (
            7,
            r"cannot be read as image; expected a path, bytes, an open file, an array \[H, W, 3\] or a Pillow image",
        ),
    ):
        with pytest.raises(RequestError, match=message):
            load_image(source)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_an_animation_is_not_an_image(kind: str):
    frames = [Image.fromarray(np.full((8, 8, 3), level, np.uint8)) for level in (0, 200, 90)]
    lossless = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **lossless)
    with pytest.raises(
        RequestError, match=f"is {kind} with 3 frames; an image is one\n  -> give it as a video"
    ):
        load_image(data)
    assert load_image(data, first_frame=True).tolist() == [[[0] * 3] * 8] * 8


def test_a_photograph_with_pictures_behind_it_is_one():
    """MPO, as telephones write it: the first is the photograph."""
    first, second = Image.fromarray(picture(64, 64)), Image.fromarray(picture(32, 32))
    data = encoded(first, "MPO", save_all=True, append_images=[second])
    assert load_image(data).shape == (64, 64, 3)
