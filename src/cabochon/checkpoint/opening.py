"""Opening a checkpoint: which folder, which files, what a user should know."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cabochon.errors import ConfigError, SourceError
from cabochon.checkpoint.shards import read_shards
from cabochon.checkpoint.strict_json import parse_object
from cabochon.checkpoint.tensor import Tensor

__all__ = ["Checkpoint", "open_checkpoint"]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk: its configuration as written, its tensors as views, its other files."""

    source: str
    root: Path
    id: str | None
    revision: str | None
    config: dict[str, Any]
    tensors: Mapping[str, Tensor]
    files: Mapping[str, Path]
    remarks: tuple[str, ...]


def open_checkpoint(source: str | Path, *, revision: str | None = None) -> Checkpoint:
    """Open the checkpoint in a local folder. No weight is read."""
    root = Path(source).expanduser()
    if not root.is_dir():
        raise SourceError("no such folder", at=str(source), remedy="check the path")
    tensors, remarks = read_shards(root)
    return Checkpoint(
        source=str(source), root=root.resolve(), id=None, revision=revision, config=read_config(root),
        tensors=MappingProxyType(tensors), files=MappingProxyType(_other_files(root)), remarks=tuple(remarks),
    )  # fmt: skip


def read_config(root: Path) -> dict[str, Any]:
    """config.json of the folder, as written."""
    file = root / "config.json"
    if not file.is_file():
        raise SourceError("config.json is missing", at=str(root), remedy="give the folder of a checkpoint")
    try:
        return parse_object(file.read_bytes())
    except ValueError as error:
        raise ConfigError(str(error), at="config.json", remedy="download the file again") from None


_WEIGHTS = (".safetensors", ".safetensors.index.json", ".bin", ".pt", ".pth", ".gguf")


def _other_files(root: Path) -> dict[str, Path]:
    found = sorted(path for path in root.iterdir() if path.is_file() and not path.name.endswith(_WEIGHTS))
    return {path.name: path.resolve() for path in found}
