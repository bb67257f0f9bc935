"""Pairs of a target and its drafter, each built once a session: `pairs("tiny", "default", "f32")` is its path."""

from functools import cache
from pathlib import Path
from typing import Any

import cabochon
from packages import MINIATURE, TINY, Packages

PARTS = {
    "tiny": ("tiny", TINY / "assistant"),
    "tiny-dense": ("tiny", TINY / "assistant-dense"),
    "miniature": ("miniature", MINIATURE / "assistant"),
}


class Pairs:
    """Builds what is asked for beside the packages, over the target's own package."""

    def __init__(self, packages: Packages) -> None:
        self.packages = packages
        self.model = cache(self._model)

    def __call__(self, source: str = "tiny", target: str = "default", precision: str = "f32") -> Path:
        out = self.packages.root / f"with-drafter-{source}-{target}-{precision}"
        if not out.exists():
            name, assistant = PARTS[source]
            built = self.packages(name, target, precision)
            said: dict[str, Any] = {"target": target, "precision": precision, "license": "apache-2.0"}
            cabochon.build(built, out, assistant=assistant, **said)
        return out

    def _model(
        self, source: str = "tiny", target: str = "default", precision: str = "f32", **options: Any
    ) -> "cabochon.runtime.Model":
        return cabochon.load(self(source, target, precision), threads=1, provider="cpu", **options)
