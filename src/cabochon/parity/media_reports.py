"""processors.json: what our processors make of texts and media, beside transformers'."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cabochon.media import read_processors
from cabochon.parity.exhibits import RATE, Exhibits, played
from cabochon.parity.full_processor import HOW
from cabochon.parity.passed import Prepared
from cabochon.parity.prompts import Prompt

__all__ = ["Processed", "processed", "processors"]

PIXELS, SOUND = 1e-6, 1e-4
LIMITS = {
    "pixel_values": f"within {PIXELS:g}: equal after resizing in 8 bits, up to the last bit of a division by 255",
    "input_features": f"within {SOUND:g}, in natural logarithms",
    "everything else": "equal",
}


@dataclass(frozen=True)
class Processed:
    """One question with media, as both prepare it.

    differences: the largest by port, infinite for another shape. pillow: the share of pixel values that another
    resampler changes, and by how many of 255 levels at most.
    """

    prompts: tuple[Prompt, ...]
    differences: Mapping[str, float]
    pillow: tuple[float, float] | None

    @property
    def passed(self) -> bool:
        """Everything equal but for rounding."""
        limits = {"pixel_values": PIXELS, "input_features": SOUND}
        return all(found <= limits.get(port, 0.0) for port, found in self.differences.items())

    def described(self) -> dict[str, Any]:
        """The row of the evidence file."""
        described = [prompt.described() for prompt in self.prompts]
        row: dict[str, Any] = {"name": self.prompts[0].name} if len(described) == 1 else {"name": "rows"}
        row |= {"rows": described, "largest_difference": dict(self.differences), "passed": self.passed}
        if self.pillow:
            row["resized_by_pillow"] = dict(zip(("share", "levels_of_255"), self.pillow, strict=True))
        return row


def processed(package: Path, asked: Sequence[Prepared], ids: Mapping[str, Sequence[int]]) -> list[Processed]:
    """Every question that has media; `ids` are the package's own, by prompt."""
    ours = read_processors(package)
    return [_processed(ours, one, ids) for one in asked if one.media]


def _processed(ours: Any, asked: Prepared, ids: Mapping[str, Sequence[int]]) -> Processed:
    made = {port: np.concatenate(parts) for port, parts in _made(ours, asked).items()}
    found = {port: _largest(made.get(port), array) for port, array in asked.media.items()}
    same = all([int(i) for i in ids[prompt.name]] == list(prompt.ids) for prompt in asked.prompts)
    pillow = None
    if asked.pillow is not None:
        apart = np.abs(asked.pillow - asked.media["pixel_values"][: asked.images])
        pillow = (float((apart > PIXELS).mean()), round(float(apart.max() * 255), 3))
    return Processed(asked.prompts, {"input_ids": 0.0 if same else float("inf"), **found}, pillow)


def _made(ours: Any, asked: Prepared) -> dict[str, list[np.ndarray]]:
    """All media of a question in one call each, as transformers takes them."""
    given = [prompt.exhibits or Exhibits() for prompt in asked.prompts]
    images, sounds = [x for one in given for x in one.images], [x for one in given for x in one.sounds]
    parts: dict[str, list[np.ndarray]] = {}
    made = [ours.image(images)] if images else []
    made += [ours.video(played(frames)) for one in given for frames in one.films]
    made += [ours.audio([(sound, RATE) for sound in sounds])] if sounds else []
    for one in made:
        for port in asked.media:
            if hasattr(one, port):
                parts.setdefault(port, []).append(getattr(one, port))
    return parts


def _largest(a: np.ndarray | None, b: np.ndarray) -> float:
    if a is None or a.shape != b.shape:
        return float("inf")
    return float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max())


def processors(found: Sequence[Processed], facts: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """processors.json and its one line."""
    passed = bool(found) and all(one.passed for one in found)
    trial = {
        "how": "cabochon.media and the runtime's prompts, with this package's processor_config.json and tokenizer.json",
        "reference": HOW,
        "limits": LIMITS,
        "passed": passed,
        "prompts": [one.described() for one in found],
    }
    what = "token ids and the inputs of encoders, of texts with images, sound and video"
    document = {"level": "processors", "what": what, "passed": passed, **facts, "trials": [trial]}
    return document, _line(found)


def _line(found: Sequence[Processed]) -> str:
    wrong = [one.described()["name"] for one in found if not one.passed]
    largest = dict(_maxima(found))
    line = f"{len(found) - len(wrong)} of {len(found)} prompts prepared alike"
    for port, name in (("pixel_values", "pixels"), ("input_features", "sound")):
        if port in largest:
            line += f"; {name} {f'within {largest[port]:.1e}' if largest[port] else 'equal'}"
    return line + (f"; not {', '.join(wrong)}" if wrong else "")


def _maxima(found: Sequence[Processed]) -> Iterator[tuple[str, float]]:
    ports = {port for one in found for port in one.differences}
    return ((port, max(one.differences.get(port, 0.0) for one in found)) for port in ports)
