"""The members of the family, the tiny checkpoint of each (folders of tests/data/tiny), and what was recorded of it."""

import json
from dataclasses import dataclass

import numpy as np

from checkpoints import TINY


@dataclass(frozen=True)
class Member:
    """A published model: its name, its tiny checkpoint, that of its drafter, and the media that it takes."""

    name: str
    folder: str
    assistant: str
    media: tuple[str, ...]


MEMBERS = (
    Member("E2B", "target", "assistant", ("image", "audio", "video")),
    Member("E4B", "e4b", "assistant-e4b", ("image", "audio", "video")),
    Member("12B unified", "unified", "assistant-unified", ("image", "audio", "video")),
    Member("26B-A4B", "moe", "assistant-moe", ("image", "video")),
    Member("31B", "31b", "assistant-31b", ("image", "video")),
)
RECORDED = json.loads((TINY / "ref" / "outputs.json").read_bytes())
OTHERS = MEMBERS[1:]  # all but the one that has tests of its own everywhere
CASES = [
    (member.folder, case)
    for member in OTHERS
    for case in ("text", "text_long", *member.media)
    if f"{member.folder}/{case}" in RECORDED
]


def recorded_inputs(folder: str, case: str) -> dict[str, np.ndarray]:
    """Of a member in a case, by the names of transformers: the tiny target's where it has none of its own."""
    own = TINY / "ref" / f"inputs_{folder}_{case}.npz"
    return dict(np.load(own if own.exists() else TINY / "ref" / f"inputs_{case}.npz"))


def recorded_prefill(folder: str, case: str) -> dict[str, np.ndarray]:
    """What transformers made of it; features without the rows of padding."""
    found = dict(np.load(TINY / "ref" / f"prefill_{folder}_{case}.npz"))
    if "audio_features" in found:
        rows = found["audio_features"].reshape(-1, found["audio_features"].shape[-1])
        real = found["audio_mask"].ravel()
        found["audio_features"] = rows[real] if len(rows) == len(real) else rows
    return found
