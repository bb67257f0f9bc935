"""Opening a checkpoint: which folder, which files, what a user should know."""

import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cabochon.checkpoint.hub import fetch
from cabochon.checkpoint.refusals import (
    refuse_kinds,
    refuse_pointer,
    refuse_quantized,
    refuse_quantized_tensors,
)
from cabochon.checkpoint.shards import read_shards, real_file
from cabochon.checkpoint.source import hub_id_of, snapshot_identity
from cabochon.checkpoint.tensor import Tensor
from cabochon.errors import ConfigError, SourceError
from cabochon.strict_json import parse_object

__all__ = ["Check", "Checkpoint", "open_checkpoint"]

Check = Callable[[Mapping[str, Any]], object]

_WEIGHTS = (
    ".safetensors",
    ".safetensors.index.json",
    ".bin",
    ".pt",
    ".pth",
    ".ckpt",
    ".gguf",
    ".h5",
    ".msgpack",
)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk.

    `id` and `revision` are the hub id and the commit, where they are known. `config` is config.json as
    written. `tensors` are named as in the files; `files` are the other files of the folder by name, as real
    paths. `remarks` are what a user should know.
    """

    source: str
    root: Path
    id: str | None
    revision: str | None
    config: dict[str, Any]
    tensors: Mapping[str, Tensor]
    files: Mapping[str, Path]
    remarks: tuple[str, ...]


def open_checkpoint(
    source: str | Path,
    *,
    revision: str | None = None,
    check: Check | None = None,
) -> Checkpoint:
    """Open the checkpoint in the folder `source`, or of the hub id `source` at `revision`. No weight is read.

    `check` is called with config.json before a weight is fetched, and may refuse it by raising.
    Raises SourceError or one of its kinds.
    """
    try:
        return _open(source, revision, check)
    except OSError as error:
        raise SourceError(
            f"cannot be read: {error.strerror or error}",
            at=str(error.filename or source),
            remedy="check the permissions and the disk",
        ) from error


def _open(source: str | Path, revision: str | None, check: Check | None) -> Checkpoint:
    repository = hub_id_of(source)
    if repository is None:
        root = Path(source).expanduser()
        _check_revision(root, revision)
    else:
        root = fetch(repository, revision, lambda folder: _examine(folder, check))
    refuse_kinds({path.name for path in root.iterdir()}, str(root))
    config = _examine(root, check)
    with _named(root):
        tensors, remarks = read_shards(root)
        others = _other_files(root)
    refuse_quantized_tensors(tensors, str(root))
    identity, commit = snapshot_identity(root)
    return Checkpoint(
        source=str(source),
        root=root.resolve(),
        id=repository or identity,
        revision=commit,
        config=config,
        tensors=MappingProxyType(tensors),
        files=MappingProxyType(others),
        remarks=tuple(remarks),
    )


def _examine(root: Path, check: Check | None) -> dict[str, Any]:
    """config.json of the folder, once nothing in it speaks against the checkpoint."""
    with _named(root):
        config = _read_config(root)
        refuse_quantized(config)
        if check is not None:
            check(config)
    return config


@contextmanager
def _named(root: Path) -> Generator[None]:
    """Errors about what lies in the folder name it: of a target and an assistant there are two."""
    try:
        yield
    except SourceError as error:
        if error.at != str(root):
            error.at = f"{root}/{error.at}"
        raise


def _check_revision(root: Path, revision: str | None) -> None:
    """A folder has one revision at most: that of the hub cache it lies in."""
    commit = snapshot_identity(root)[1]
    if revision is not None and revision != commit:
        raise SourceError(
            f"revision {revision!r} was asked for, but this is a local folder"
            + (f" at {commit}" if commit else " without a known revision"),
            at=str(root), remedy="leave the revision out, or give the hub id",
        )  # fmt: skip


def _read_config(root: Path) -> dict[str, Any]:
    if not os.path.lexists(root / "config.json"):
        raise SourceError(
            "is missing",
            at="config.json",
            remedy="give the folder of the checkpoint, or download it again, all files from one revision",
        )
    text = real_file(root, "config.json").read_bytes()
    refuse_pointer(text, "config.json")
    try:
        return parse_object(text)
    except ValueError as error:
        raise ConfigError(str(error), at="config.json", remedy="download the file again") from None


def _other_files(root: Path) -> dict[str, Path]:
    """Everything else at the top of the folder, by name."""
    names = sorted(
        path.name for path in root.iterdir() if not path.is_dir() and not path.name.endswith(_WEIGHTS)
    )
    files = {name: real_file(root, name) for name in names}
    for name, file in files.items():
        with file.open("rb") as opened:
            refuse_pointer(opened.read(64), name)
    return files
