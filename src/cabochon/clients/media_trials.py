"""What is tried with images and sound: files of a content that is always the same, and our own answers to them.

Every runtime resizes in its own way. So the pictures have sizes that no budget changes, but for one.
"""

import math
import struct
import wave
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from cabochon.media import Processors
    from cabochon.runtime import Model

__all__ = ["Shown", "shown"]

_WORDS = " What is it?"
_SECONDS = 1


@dataclass(frozen=True)
class Shown:
    """A prompt with files. `parts` is its text cut at the placeholders: what stands between them, without them.

    `media`: the files in the order of their placeholders, each with its kind, "image" or "audio".
    """

    name: str
    tried: str
    media: tuple[tuple[str, Path], ...]
    content: tuple[np.ndarray, ...]
    marks: Mapping[str, str]
    begin: str

    def text(self, before: str = "", behind: str = "") -> str:
        """The prompt with its first token; `before` and `behind` stand around each placeholder."""
        return self.begin + self.ours(before, behind)

    def ours(self, before: str = "", behind: str = "") -> str:
        """The prompt as our own runtime takes it."""
        return "".join(f"{before}{self.marks[f'{kind}_token']}{behind}" for kind, _ in self.media) + _WORDS

    def given(self) -> dict[str, Any]:
        """The media as our own runtime takes them."""
        found: dict[str, Any] = {"image": [], "audio": []}
        for (kind, _), content in zip(self.media, self.content, strict=True):
            found[kind].append(content)
        return {
            option: found[kind] for kind, option in (("image", "images"), ("audio", "audio")) if found[kind]
        }

    def files(self, kind: str) -> list[str]:
        """The paths of one kind."""
        return [str(path) for one, path in self.media if one == kind]


def shown(model: "Model", processors: "Processors", folder: Path) -> tuple[Shown, ...]:
    """What is tried with a package that takes media; the files are made in `folder`."""
    named = model.tokens.named if model.tokens else {}
    taken = model.session.embedder.placeholders
    made = {name: each for name, each in _made(processors, folder) if each[0] in taken}
    tried = {
        "image": ("a picture", ("square",)),
        "resized image": ("a picture that is resized first", ("small",)),
        "two images": ("two pictures of different shape", ("square", "wide")),
        "audio": ("a recording", ("tone",)),
        "two clips": ("two recordings", ("tone", "tone")),
        "image and audio": ("a picture and a recording", ("square", "tone")),
    }
    return tuple(
        Shown(
            name,
            what,
            tuple((made[each][0], made[each][1]) for each in files),
            tuple(made[each][2] for each in files),
            named,
            named.get("bos_token", ""),
        )
        for name, (what, files) in tried.items()
        if made.keys() >= set(files)
    )


def _made(processors: "Processors", folder: Path) -> Iterator[tuple[str, tuple[str, Path, np.ndarray]]]:
    if processors.image:
        patching = processors.image.patching
        side, most = patching.patch_size * patching.pooling_kernel_size, patching.max_soft_tokens
        square, low = math.isqrt(most), max(1, math.isqrt(most // 2))
        sizes = {"square": (square, square), "wide": (low, most // low)}
        for seed, (name, (rows, columns)) in enumerate(sizes.items()):
            yield name, ("image", *_picture(folder / f"{name}.png", rows * side, columns * side, seed))
        yield "small", ("image", *_picture(folder / "small.png", side, 2 * side - 1, len(sizes)))
    if processors.audio:
        yield "tone", ("audio", *_tone(folder / "tone.wav", processors.audio.sampling_rate))


def _picture(path: Path, height: int, width: int, seed: int) -> tuple[Path, np.ndarray]:
    """Stripes of random colours, as a PNG.   [height, width, 3]"""
    rng = np.random.default_rng(seed)
    pixels = np.repeat(rng.integers(0, 256, (height, width // 8 + 1, 3), np.uint8), 8, axis=1)[:, :width]
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts))
    return path, pixels


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _tone(path: Path, rate: int) -> tuple[Path, np.ndarray]:
    """A tone that falls, as a WAV of 16 bits; samples in [-1, 1)."""
    at = np.arange(_SECONDS * rate) / rate
    samples = np.round(8000 * np.sin(2 * np.pi * (440 - 100 * at) * at)).astype(np.int16)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())
    return path, samples.astype(np.float32) / 2**15
