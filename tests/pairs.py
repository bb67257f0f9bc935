"""Pairs of a target and its drafter: `pairs("tiny", "default", "f32")` is the path of the package "tiny-pair"."""

from functools import cache
from pathlib import Path
from typing import Any

import cabochon
from packages import Packages


class Pairs:
    """The packages of pairs, and what they load as."""

    def __init__(self, packages: Packages) -> None:
        self.packages = packages
        self.model = cache(self._model)

    def __call__(self, source: str = "tiny", target: str = "default", precision: str = "f32") -> Path:
        return self.packages(f"{source}-pair", target, precision)

    def _model(
        self, source: str = "tiny", target: str = "default", precision: str = "f32", **options: Any
    ) -> "cabochon.runtime.Model":
        return cabochon.load(self(source, target, precision), threads=1, provider="cpu", **options)
