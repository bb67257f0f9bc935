"""Packages that many tests run: built once a session from the tiny checkpoints and the miniature."""

from functools import cache
from pathlib import Path

import cabochon

TESTS = Path(__file__).parent
TINY = TESTS / "data" / "tiny"
MINIATURE = Path(cabochon.__file__).parent / "demo" / "miniature"
SOURCES = {"tiny": TINY / "text", "miniature": MINIATURE / "target"}


class Packages:
    """Builds what is asked for under one folder, each once: `packages("tiny", "default", "f32")` is its path."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.model = cache(self._model)

    def __call__(self, source: str = "tiny", target: str = "default", precision: str = "f32") -> Path:
        out = self.root / f"{source}-{target}-{precision}"
        if not out.exists():
            cabochon.build(SOURCES[source], out, target=target, precision=precision, license="apache-2.0")
        return out

    def _model(
        self, source: str = "tiny", target: str = "default", precision: str = "f32"
    ) -> "cabochon.runtime.Model":
        return cabochon.load(self(source, target, precision), threads=1, provider="cpu")
