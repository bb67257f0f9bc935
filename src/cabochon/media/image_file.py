"""Image files, bytes, arrays and Pillow images to RGB pixels.

* Rotated as the EXIF orientation says, CMYK, palettes, grey and one bit brought to RGB as Pillow converts them, without
  colour profiles: as transformers does.
* Transparent pixels stand on white, as with transformers' do_convert_rgb.
* 16 bits per channel keep the upper eight. (transformers cuts grey at 255 instead, which turns it white.)
* Animations and files of several pages are refused: an image is one. `first_frame=True` takes the first.
"""

import math
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Union, cast

import numpy as np

from cabochon.errors import RequestError
from cabochon.media.extras import require
from cabochon.media.source import Source, name_of, opened

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

__all__ = [
    "FORMATS",
    "MAX_PIXELS",
    "Image",
    "frame_count",
    "load_image",
    "open_picture",
    "pixels",
    "rgb_array",
]

Image = Union[Source, np.ndarray, "Picture"]

# 2^27 pixels are 400 MB of RGB, more than almost any camera takes, and 50 times what the encoder sees at most.
MAX_PIXELS = 2**27

# Formats of photographs and drawings that Pillow decodes by itself; EPS, for one, would start Ghostscript.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF", "JPEG2000")
_SEVERAL_IMAGES = (
    "MPO",
)  # a JPEG with further pictures behind it, such as a depth map: the first is the photograph

_ALPHA = ("RGBA", "LA", "PA", "La", "RGBa")
_BROKEN = "the file is broken, cut off, or of another kind than its first bytes say; save it again"


def load_image(source: Image, *, first_frame: bool = False) -> np.ndarray:
    """An image as uint8 [H, W, 3].

    `source`: a path, bytes, an open file, a Pillow image, or an array: uint8 or float in [0, 1] (times 255, rounded) of
    shape [H, W], [H, W, 1], [H, W, 3] or [H, W, 4]. Raises RequestError for anything else, and for more than MAX_PIXELS
    pixels.
    """
    if isinstance(source, np.ndarray):
        return rgb_array(source, "image")
    if hasattr(source, "getbands"):  # a Pillow image, without importing Pillow to know it
        return pixels(cast("Picture", source), name_of(source, "image"))
    at = name_of(source, "image")
    with (
        opened(source, "image", "an array [H, W, 3] or a Pillow image") as file,
        open_picture(file, at) as picture,
    ):
        frames = 1 if first_frame or picture.format in _SEVERAL_IMAGES else frame_count(picture, at)
        if frames > 1:
            what = f"is {picture.format} with {frames} frames; an image is one"
            raise RequestError(what, at=at, remedy="give it as a video, or save the frame that is meant")
        return pixels(picture, at)


def open_picture(file: Any, at: str) -> "Picture":
    """The picture in `file`, its size checked and nothing decoded yet."""
    library = require("PIL.Image", "reading images")
    library.init()  # or formats whose plugin it has not met yet are an error of its own
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", library.DecompressionBombWarning)
            picture = library.open(file, formats=[kind for kind in FORMATS if kind in library.OPEN])
    except library.DecompressionBombError as error:
        raise RequestError(f"{error}; {MAX_PIXELS} are taken", at=at, remedy="scale it down") from error
    except library.UnidentifiedImageError:
        what = f"is not an image of a known kind; expected {', '.join(FORMATS)}"
        raise RequestError(what, at=at, remedy=_BROKEN) from None
    except Exception as error:  # a decoder raises whatever comes to it on a file that is made up
        raise RequestError(f"cannot be opened: {error}", at=at, remedy=_BROKEN) from error
    _check_size(picture.width, picture.height, at)
    return picture


def frame_count(picture: "Picture", at: str) -> int:
    """Frames or pages of the file, all of which are looked at to know it."""
    try:
        return int(getattr(picture, "n_frames", 1))
    except Exception as error:  # see open_picture
        raise RequestError(f"its frames cannot be counted: {error}", at=at, remedy=_BROKEN) from error


def pixels(picture: "Picture", at: str) -> np.ndarray:
    """The current frame of a Pillow image, upright, as uint8 [H, W, 3]."""
    from PIL import ImageOps

    _check_size(picture.width, picture.height, at)
    try:
        picture.load()
        with suppress(SyntaxError):  # an EXIF block that is not one turns nothing
            picture = ImageOps.exif_transpose(picture)
        return np.asarray(_rgb(picture, at))
    except RequestError:
        raise
    except Exception as error:  # see open_picture
        raise RequestError(f"cannot be decoded: {error}", at=at, remedy=_BROKEN) from error


def _rgb(picture: "Picture", at: str) -> "Picture":
    import PIL.Image

    if picture.mode in _ALPHA or picture.info.get("transparency") is not None:
        picture = picture.convert("RGBA")
        return PIL.Image.alpha_composite(PIL.Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    if picture.mode.startswith("I") or picture.mode == "F":
        return PIL.Image.fromarray(_upper_bits(np.asarray(picture), picture.mode, at)).convert("RGB")
    return picture.convert("RGB")


def _upper_bits(values: np.ndarray, mode: str, at: str) -> np.ndarray:
    """16-bit grey to 8 bits. Wider values have no agreed range, and are refused."""
    if mode == "F" or values.min() < 0 or values.max() > 0xFFFF:
        what = f"has mode {mode!r} and values from {values.min()} to {values.max()}; expected 8 or 16 bits per channel"
        raise RequestError(what, at=at, remedy="scale it to 0 to 255 and save it as 8 bits")
    return (values.astype(np.uint16) >> 8).astype(np.uint8)


def rgb_array(array: np.ndarray, at: str) -> np.ndarray:
    """An array of an accepted shape and dtype as uint8 [H, W, 3]. Raises RequestError for any other."""
    channels = array.shape[2] if array.ndim == 3 else 1
    if array.ndim not in (2, 3) or channels not in (1, 3, 4):
        what = f"array of shape {list(array.shape)}; expected [H, W], [H, W, 1], [H, W, 3] or [H, W, 4]"
        raise RequestError(what, at=at, remedy="channels come last" if 3 in array.shape[:1] else "")
    _check_size(array.shape[1], array.shape[0], at)
    array = _bytes(array.reshape(*array.shape[:2], channels), at)
    if channels == 4:
        return _on_white(array)
    return np.ascontiguousarray(np.broadcast_to(array, (*array.shape[:2], 3)))


def _on_white(array: np.ndarray) -> np.ndarray:
    """uint8 [H, W, 4] as transformers lays arrays on white: in f32, cut to 8 bits. Pillow rounds; 1 of 255 between."""
    values = array.astype(np.float32) / np.float32(255)
    colour, alpha = values[..., :3], values[..., 3:]
    return ((colour * alpha + (1 - alpha)) * np.float32(255.999)).astype(np.uint8)


def _bytes(array: np.ndarray, at: str) -> np.ndarray:
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind != "f":
        what = f"array of {array.dtype}; expected uint8, or floating point in [0, 1]"
        raise RequestError(what, at=at, remedy="bring it to 0 to 255 and to uint8")
    low, high = float(array.min()), float(array.max())
    if not (low >= 0.0 and high <= 1.0):  # NaN fails as well
        what = f"array of {array.dtype} with values from {low:g} to {high:g}; expected [0, 1]"
        raise RequestError(what, at=at, remedy="divide by 255 what was 8 bits")
    return np.rint(array.astype(np.float32) * 255).astype(np.uint8)


def _check_size(width: int, height: int, at: str) -> None:
    if not width or not height:
        raise RequestError(f"has {height} x {width} pixels (height x width); expected at least one", at=at)
    if (count := math.prod((width, height))) > MAX_PIXELS:
        what = f"has {height} x {width} pixels (height x width), {count}; {MAX_PIXELS} are taken"
        raise RequestError(what, at=at, remedy="scale it down; the encoder sees a fraction of that")
