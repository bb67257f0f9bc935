"""The files in which a package carries what was measured on it: whole, bound to its bytes, known to SHA256SUMS."""

import json
import math
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cabochon import files, sums

__all__ = ["activations", "identity", "versions", "write"]

_LIBRARIES = ("cabochon", "numpy", "onnx", "onnxruntime", "tokenizers")


def activations(metadata: Mapping[str, str]) -> str | None:
    """The type of a graph's ports and activations, "f32", "f16" or "bf16", by its properties: its precision, but where
    weights are quantized. None where they do not say."""
    return metadata.get("cabochon.activations", metadata.get("cabochon.precision"))


def versions(*more: str) -> dict[str, str]:
    """The versions of what took part, as installed; what is absent is left out."""
    found = {"python": platform.python_version()}
    for name in (*_LIBRARIES, *more):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def identity(package: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """What ties evidence to what it was measured on: target, precision, hashes of graph and weights.

    Those of the components where the package has several and none in its root.
    """
    own = "model.onnx*", "openvino_model.*", "*.safetensors"
    inner = "*/model.onnx", "*/*.data*", "*/openvino_model.*"
    found = sorted(path for each in own for path in package.glob(each))
    found = found or sorted(path for each in inner for path in package.glob(each))
    return {
        "target": metadata.get("cabochon.target"),
        "precision": metadata.get("cabochon.precision"),
        "sha256": {path.relative_to(package).as_posix(): files.sha256(path) for path in found},
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
