"""What a check found, and the files in which a package carries it."""

import json
import math
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cabochon import files, sums

__all__ = ["Evidence", "Verdict", "identity", "versions", "write"]

LIBRARIES = ("cabochon", "numpy", "onnx", "onnxruntime", "tokenizers", "torch", "transformers")


@dataclass(frozen=True)
class Verdict:
    """One level of a check: whether it held, one line of figures, and the file that says it all."""

    level: str
    passed: bool
    summary: str
    file: str | None = None


@dataclass(frozen=True)
class Evidence:
    """All verdicts of a check of one package."""

    package: Path
    verdicts: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        """True when there are verdicts and every one held."""
        return bool(self.verdicts) and all(verdict.passed for verdict in self.verdicts)

    def as_json(self) -> dict[str, Any]:
        """The evidence as plain data, for `--json`."""
        verdicts = [asdict(verdict) for verdict in self.verdicts]
        return {"package": str(self.package), "passed": self.passed, "verdicts": verdicts}


def versions(*more: str) -> dict[str, str]:
    """The versions of what took part, as installed; what is absent is left out."""
    found = {"python": platform.python_version()}
    for name in (*LIBRARIES, *more):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def identity(package: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """What ties evidence to what it was measured on: target, precision, hashes of graph and weights."""
    found = sorted([*package.glob("model.onnx*"), *package.glob("*.safetensors")])
    return {
        "target": metadata.get("cabochon.target"),
        "precision": metadata.get("cabochon.precision"),
        "sha256": {path.name: files.sha256(path) for path in found},
    }


def write(package: Path, name: str, document: Mapping[str, Any]) -> str:
    """Writes `evidence/<name>`, whole or not at all, and its line in SHA256SUMS. Returns its path inside."""
    inside = f"evidence/{name}"
    text = json.dumps(_finite(document), indent=1, ensure_ascii=False, allow_nan=False)
    (package / "evidence").mkdir(exist_ok=True)
    files.replace(package / inside, f"{text}\n".encode())
    sums.note(package, inside)
    return inside


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become the strings "nan" and "inf"."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
