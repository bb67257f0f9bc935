"""What a SOURCE means: a folder on this machine, or a hub id."""

import re
from pathlib import Path

from cabochon.errors import SourceError, UnsupportedError

__all__ = ["hub_id_of", "snapshot_identity"]

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")


def hub_id_of(source: str | Path) -> str | None:
    """The hub id that `source` is, or None if it is a local folder.

    What exists here is local; of the rest `org/name` is a hub id. Raises SourceError for what is neither.
    """
    path = Path(source).expanduser()
    if path.is_dir():
        return None
    if path.exists():
        raise _is_a_file(path)
    if isinstance(source, str) and _HUB_ID.fullmatch(source):
        return source
    if "://" in str(source):
        raise SourceError(
            "is an address", at=str(source), remedy="give the hub id, org/name, or a local folder"
        )
    raise SourceError(
        "no such folder, and not a hub id, which has the form org/name",
        at=str(source),
        remedy="check the spelling",
    )


def _is_a_file(path: Path) -> SourceError:
    if path.suffix == ".safetensors":
        return SourceError(
            "is one file of a checkpoint", at=str(path), remedy=f"give its folder: {path.parent}"
        )
    if path.suffix == ".gguf":
        return UnsupportedError(
            "is a GGUF file", at=str(path), remedy="give the original checkpoint in safetensors"
        )
    return SourceError(
        "is a file; expected the folder of a checkpoint", at=str(path), remedy="give the folder"
    )


def snapshot_identity(folder: Path) -> tuple[str | None, str | None]:
    """(hub id, commit) of `models--{org}--{name}/snapshots/{commit}` in a hub cache, else (None, None)."""
    for place in (folder.absolute(), folder.resolve()):
        repository = place.parent.parent.name
        if (
            place.parent.name == "snapshots"
            and repository.startswith("models--")
            and _COMMIT.fullmatch(place.name)
        ):
            return repository.removeprefix("models--").replace("--", "/", 1), place.name
    return None, None
