"""Packages of OpenVINO's IR for tests: `converted("tiny", "f32")` is the path of one, made of that of onnx-standard."""

from functools import cache
from pathlib import Path
from typing import Any

import cabochon
from cabochon.openvino import convert
from cabochon.runtime.openvino_graph import EXACT
from packages import Packages, alone


class Converted:
    """Converts each once a run, for all of its workers."""

    def __init__(self, packages: Packages) -> None:
        self.packages = packages
        self.model = cache(self._model)

    def __call__(self, source: str = "tiny", precision: str = "f32", *, stateful: bool = False) -> Path:
        out = self.packages.root / f"{source}-openvino-{precision}{'-stateful' * stateful}"
        with alone(out):
            if not out.exists():
                convert(self.packages(source, "onnx-standard", precision), out, stateful=stateful)
        return out

    def _model(
        self, source: str = "tiny", precision: str = "f32", *, stateful: bool = False
    ) -> "cabochon.runtime.Model":
        options: Any = {"threads": 1, "provider_options": EXACT}
        return cabochon.load(self(source, precision, stateful=stateful), **options)
