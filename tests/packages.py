"""Packages that many tests run: built once a run, for all of its workers, from the tiny checkpoints and the miniature.

Nobody writes into one: a test that changes a package takes a copy.
"""

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import cabochon
from family import MEMBERS

TESTS = Path(__file__).parent
TINY = TESTS / "data" / "tiny"
MINIATURE = Path(cabochon.__file__).parent / "demo" / "miniature"
SOURCES = {"tiny": TINY / "text", "moe": TINY / "moe", "miniature": MINIATURE / "target"}
DRAFTERS = {
    "tiny-drafter": TINY / "assistant",
    "tiny-dense-drafter": TINY / "assistant-dense",
    "miniature-drafter": MINIATURE / "assistant",
}
PAIRS = {
    "tiny-pair": ("tiny", "tiny-drafter"),
    "tiny-dense-pair": ("tiny", "tiny-dense-drafter"),
    "miniature-pair": ("miniature", "miniature-drafter"),
}
for member in MEMBERS:  # text, drafter and pair of each: "unified", "assistant-unified", "unified-pair"
    SOURCES[member.folder], DRAFTERS[member.assistant] = TINY / member.folder, TINY / member.assistant
    PAIRS[f"{member.folder}-pair"] = (member.folder, member.assistant)
WHOLE = {"tiny-full": "target", "moe-full": "moe", "unified-full": "unified"}
FULL = (*WHOLE, "big-full")
BIG_SEED = 24  # of the checkpoint that tests/record_full.py recorded


class Packages:
    """Builds what is asked for under one folder, each once: `packages("tiny", "default", "f32")` is its path,
    `packages("tiny-pair")` that of it with its drafter, `packages("tiny-full")` that of the model with its towers,
    `packages("big-full")` that of a random model of the 31B kind."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.model = cache(self._model)

    def __call__(self, source: str = "tiny", target: str = "default", precision: str = "f32") -> Path:
        out = self.root / f"{source}-{target}-{precision}"
        with alone(out):
            if not out.exists():
                self._build(out, source, target=target, precision=precision, license="apache-2.0")
        return out

    def _build(self, out: Path, source: str, **said: Any) -> None:
        if source in DRAFTERS:
            cabochon.build(DRAFTERS[source], out, model="drafter", **said)
        elif source in PAIRS:
            name, drafter = PAIRS[source]
            built = self(name, said["target"], said["precision"])
            cabochon.build(built, out, assistant=DRAFTERS[drafter], **said)
        elif source in FULL:
            cabochon.build(self.whole(source), out, model="full", **said)
        else:
            cabochon.build(SOURCES[source], out, **said)

    def whole(self, source: str) -> Path:
        """The checkpoint with towers that a full package is built from."""
        if source in WHOLE:
            return TINY / WHOLE[source]
        folder = self.root / f"{source}-checkpoint"
        with alone(folder):
            if not folder.exists():
                from full_graphs import big

                big(folder, BIG_SEED)
        return folder

    def _model(
        self, source: str = "tiny", target: str = "default", precision: str = "f32"
    ) -> "cabochon.runtime.Model":
        return cabochon.load(self(source, target, precision), threads=1, provider="cpu")


@contextmanager
def alone(out: Path) -> Generator[None]:
    """One worker at a time makes `out`; the others find it made."""
    with out.with_name(f"{out.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
