"""What is planned from: the config of a checkpoint, and the checkpoint where it is at hand."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cabochon.checkpoint import Checkpoint, open_checkpoint
from cabochon.checkpoint.source import hub_id_of
from cabochon.errors import ConfigError, SourceError

__all__ = ["Opened", "open_config", "open_source"]


@dataclass(frozen=True)
class Opened:
    """`raw` is config.json as written; `checkpoint` is None of a hub id and of a config alone."""

    source: str
    raw: Mapping[str, Any]
    checkpoint: Checkpoint | None = None


def open_source(source: str | Path, revision: str | None) -> Opened:
    """A checkpoint in a folder, or one of the hub, of which only the small files are fetched."""
    if hub_id_of(source) is not None:
        return Opened(str(source), _config_of(source, revision))
    checkpoint = open_checkpoint(source, revision=revision)
    return Opened(checkpoint.source, checkpoint.config, checkpoint)


def open_config(config: str | Path) -> Opened:
    """A config.json, or the folder of one."""
    return Opened(str(config), _read(Path(config)))


class _Enough(Exception):  # noqa: N818  (nothing is wrong)
    """Stops the opening of a checkpoint before its weights are fetched."""


def _config_of(source: str | Path, revision: str | None) -> Mapping[str, Any]:
    found: dict[str, Any] = {}

    def enough(config: Mapping[str, Any]) -> None:
        found.update(config)
        raise _Enough

    with suppress(_Enough):
        open_checkpoint(source, revision=revision, check=enough)
    return found


def _read(file: Path) -> dict[str, Any]:
    file = file / "config.json" if file.is_dir() else file
    try:
        raw = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise SourceError(
            f"cannot be read: {error.strerror}", at=str(file), remedy="check the path"
        ) from None
    except ValueError as error:
        raise ConfigError(f"is not JSON: {error}", at=str(file), remedy="download the file again") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"holds {type(raw).__name__}; expected an object", at=str(file))
    return raw
